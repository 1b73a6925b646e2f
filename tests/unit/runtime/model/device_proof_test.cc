// What MLX makes of each family's layers is held against our CPU kernels; a device that computes
// otherwise is refused.

#include "runtime/model/device_proof.h"

#include <gtest/gtest.h>

#include <cctype>
#include <cmath>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "runtime/model/layer_proof.h"
#include "tests/unit/runtime/model/compressed_model.h"
#include "tests/unit/runtime/model/family_model.h"
#include "tests/unit/runtime/model/split_ranks.h"

namespace macrame::runtime::engine {
namespace {

absl::StatusOr<ProvenDevice> Prove(const Model& model, uint64_t layer_bytes_max = uint64_t{1} << 30,
                                   int kv_bits = 0) {
  ShardPlace place;
  place.layer_end = model.config.layer_count;
  return ProveDevice(
      {model.config, place, model.files, EngineDevice::kMlxCpu, 1, layer_bytes_max, kv_bits});
}

std::map<std::string, std::string> ModelOf(const std::string& name, int bits) {
  if (name != "deepseek_v41") return FamilyModel({name, bits});
  nlohmann::json config = CompressedConfig({{"q_lora_rank", 64}});
  if (bits > 0) config["quantization"] = {{"bits", bits}, {"group_size", 32}};
  return ModelOfConfig(config);
}

std::vector<std::string> AllNames() {
  std::vector<std::string> names = FamilyNames();
  names.emplace_back("deepseek_v41");
  return names;
}

class DeviceProofTest : public ::testing::TestWithParam<std::string> {};

TEST_P(DeviceProofTest, HoldsForWhatMlxMakesOfTheLayers) {
  for (const int bits : {0, 4}) {
    const Model model(ModelOf(GetParam(), bits));
    const auto proven = Prove(model);
    ASSERT_TRUE(proven.ok()) << proven.status();
    EXPECT_GE(proven->layers, 1);
    EXPECT_EQ(proven->left_out, 0);
    EXPECT_EQ(proven->rows, proven->layers * kProofRows);
    EXPECT_GE(proven->agreeing, proven->rows / 2);
    const auto narrow = Prove(model, uint64_t{1} << 30, /*kv_bits=*/8);
    EXPECT_TRUE(narrow.ok()) << narrow.status();
    const auto none = Prove(model, /*layer_bytes_max=*/1);
    ASSERT_TRUE(none.ok()) << none.status();
    EXPECT_EQ(none->layers, 0);
    EXPECT_EQ(none->left_out, proven->layers);
  }
}

std::string NameOf(const ::testing::TestParamInfo<std::string>& info) {
  std::string name = info.param;
  for (char& letter : name) letter = std::isalnum(letter) != 0 ? letter : '_';
  return name;
}

INSTANTIATE_TEST_SUITE_P(Families, DeviceProofTest, ::testing::ValuesIn(AllNames()), NameOf);

// Rows as a device that computes wrongly would give them.
TEST(DeviceProofs, WrongRowsDiffer) {
  constexpr size_t kWidth = 8;
  std::vector<float> states(kProofRows * kWidth), reference(states.size());
  for (size_t i = 0; i < states.size(); ++i) {
    states[i] = static_cast<float>(i % 7) - 3;
    reference[i] = states[i] + static_cast<float>(i % 5) / 4;
  }
  std::vector<float> rounded = reference;
  for (float& value : rounded) value *= 1 + 1.0F / 512;
  const auto agree = [&](const std::vector<float>& ours) {
    return AgreementOf(RowDifferences(ours, reference, states, kDeviceProofFloor),
                       kDeviceProofTolerance)
        .rows;
  };
  EXPECT_EQ(agree(reference), kProofRows);
  EXPECT_EQ(agree(rounded), kProofRows) << "the last bit of bfloat16";
  EXPECT_EQ(agree(states), 0) << "the layer adds nothing";
  std::vector<float> zeros(states.size());
  EXPECT_EQ(agree(zeros), 0);
  std::vector<float> no_number(states.size(), std::nanf(""));
  EXPECT_EQ(agree(no_number), 0);
  std::vector<float> turned = reference;  // two columns exchanged
  for (size_t row = 0; row < kProofRows; ++row) {
    std::swap(turned[row * kWidth], turned[row * kWidth + 3]);
  }
  EXPECT_LE(agree(turned), kProofRows / 2);
}

}  // namespace
}  // namespace macrame::runtime::engine
