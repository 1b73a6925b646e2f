// Models of sizes that nobody publishes: of each family's config some whole numbers are changed at
// random. What is not refused is served: kernels, MLX's graph and ranks of a split give the same
// logits, and none of them stops the process.

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <nlohmann/json.hpp>
#include <random>
#include <string>
#include <vector>

#include "runtime/model/families/config_file.h"
#include "tests/unit/runtime/model/compressed_model.h"
#include "tests/unit/runtime/model/family_model.h"
#include "tests/unit/runtime/model/split_ranks.h"

namespace macrame::runtime::engine {
namespace {

using nlohmann::json;

int Pick(std::mt19937& random, int lowest, int highest) {
  return std::uniform_int_distribution<int>(lowest, highest)(random);
}

// Whole numbers that are sizes, as pointers into the config.
void AddSizes(const json& value, const json::json_pointer& at,
              std::vector<json::json_pointer>& out) {
  for (const auto& [key, inner] : value.items()) {
    if (inner.is_object()) AddSizes(inner, at / key, out);
    const bool is_count_of_layers =
        key == "num_hidden_layers" || key.find("position") == 0 || key == "max_position_embeddings";
    if (inner.is_number_integer() && !is_count_of_layers) out.push_back(at / key);
  }
}

json WithOddSizes(const json& whole, std::mt19937& random) {
  constexpr int kSizes[] = {1, 2, 3, 4, 5, 6, 7, 8, 10, 12, 16, 18, 20, 24, 32, 33, 40, 48, 64, 80};
  std::vector<json::json_pointer> sizes;
  AddSizes(whole, json::json_pointer(), sizes);
  json config = whole;
  for (int changes = Pick(random, 1, 4); changes > 0; --changes) {
    const auto& place =
        sizes[static_cast<size_t>(Pick(random, 0, static_cast<int>(sizes.size()) - 1))];
    config[place] = kSizes[Pick(random, 0, static_cast<int>(std::size(kSizes)) - 1)];
  }
  return config;
}

// Few bits are multiplied with rounded inputs on a CPU, and entries rounded to 4 bits.
void ExpectSame(const std::vector<float>& ours, const std::vector<float>& other, const char* what) {
  EXPECT_LE(RowsOff(ours, other), kRowsOffMax) << what;
}

bool IsRefused(const Model& model) {
  for (const std::vector<int>& widths : {std::vector<int>{1}, {2, 1}, {1, 2}}) {
    for (const ShardPlace& place : PlacesOf(widths, model.config.layer_count)) {
      if (!CheckWeights(model.config, place, *model.files).ok()) return true;
    }
  }
  return false;
}

void ExpectServed(const Model& model) {
  NoRankSums alone;
  const ShardPlace whole = PlacesOf({1}, model.config.layer_count)[0];
  const auto ours = RunRank<CpuModel>(model, whole, alone);
  for (const float logit : ours) ASSERT_TRUE(std::isfinite(logit));
  ExpectSame(ours, RunSplit<CpuModel>(model, {2, 1}), "two ranks");
  if (model.config.experts.count > 0) {
    ExpectSame(ours, RunSplit<CpuModel>(model, {1, 2}, /*whole_experts=*/true), "dealt out");
  }
  ExpectSame(ours, RunRank<Decoder>(model, whole, alone), "the graph");
  ExpectSame(ours, RunSplit<Decoder>(model, {2, 1}), "two ranks of the graph");
}

class OddSizesTest : public ::testing::TestWithParam<std::string> {};

TEST_P(OddSizesTest, WhatIsNotRefusedIsServed) {
  const json whole = GetParam() == "deepseek_v41" ? CompressedConfig() : FamilyConfig({GetParam()});
  std::mt19937 random(static_cast<uint32_t>(GetParam().size()));
  constexpr int kWanted = 4;
  int served = 0;
  for (int round = 0; served < kWanted && round < 400; ++round) {
    json config = WithOddSizes(whole, random);
    const int bits = 4 * Pick(random, 0, 2);
    if (bits > 0) config["quantization"] = {{"bits", bits}, {"group_size", 32}};
    if (!ParseModelConfig(config.dump(), "m").ok()) continue;
    SCOPED_TRACE(config.dump());
    const Model model(ModelOfConfig(config));
    if (IsRefused(model)) continue;
    ExpectServed(model);
    ++served;
    if (HasFailure()) return;
  }
  EXPECT_EQ(served, kWanted);
}

std::vector<std::string> AllNames() {
  std::vector<std::string> names = FamilyNames();
  names.push_back("deepseek_v41");
  return names;
}

std::string NameOf(const ::testing::TestParamInfo<std::string>& info) {
  std::string name = info.param;
  std::replace(name.begin(), name.end(), ' ', '_');
  return name;
}
INSTANTIATE_TEST_SUITE_P(Families, OddSizesTest, ::testing::ValuesIn(AllNames()), NameOf);

}  // namespace
}  // namespace macrame::runtime::engine
