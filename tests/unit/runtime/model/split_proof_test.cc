// Uneven slices of every family are shown to be the layers they were cut from; wrong ones are not.

#include "runtime/model/split_proof.h"

#include <gmock/gmock.h>

#include "absl/strings/str_cat.h"
#include "proto/reasons.h"
#include "runtime/model/weights/weight_loader.h"
#include "tests/unit/runtime/model/compressed_model.h"
#include "tests/unit/runtime/model/family_model.h"
#include "tests/unit/runtime/model/split_ranks.h"

namespace macrame::runtime::engine {
namespace {

using ::testing::HasSubstr;

// What each rank of the stage gets to know.
std::vector<absl::Status> Prove(const Model& model, const std::vector<ShardPlace>& places,
                                uint64_t layer_bytes_max = uint64_t{1} << 30) {
  Meeting meeting(places.size());
  std::vector<absl::Status> proven(places.size());
  std::vector<std::thread> threads;
  for (size_t rank = 0; rank < places.size(); ++rank) {
    threads.emplace_back([&, rank] {
      MeetingSums sums(meeting, rank);
      proven[rank] = ProveSplit(
          {model.config, places[rank], model.files, EngineDevice::kCpu, 1, layer_bytes_max}, sums);
    });
  }
  for (std::thread& thread : threads) thread.join();
  return proven;
}

class SplitProofTest : public ::testing::TestWithParam<std::string> {};

TEST_P(SplitProofTest, HoldsForSlicesThatMakeUpTheLayer) {
  for (const int bits : {0, 4}) {
    const Model model(FamilyModel({GetParam(), bits}));
    for (const std::vector<int>& widths : {std::vector<int>{5, 2, 1}, {1, 30}}) {
      for (const absl::Status& status : Prove(model, PlacesOf(widths, model.config.layer_count))) {
        EXPECT_TRUE(status.ok()) << status.ToString();
      }
      if (model.config.experts.count == 0) continue;
      for (const absl::Status& status :
           Prove(model, PlacesOf(widths, model.config.layer_count, /*whole_experts=*/true))) {
        EXPECT_TRUE(status.ok()) << status.ToString();
      }
    }
  }
}

// One slice is computed twice, and another by nobody.
std::vector<ShardPlace> WrongPlaces(const Model& model) {
  std::vector<ShardPlace> places = PlacesOf({1, 1}, model.config.layer_count);
  places[1].slice_begin = places[0].slice_begin;
  places[1].slice_end = places[0].slice_end;
  return places;
}

TEST_P(SplitProofTest, RefusesSlicesThatDoNot) {
  const Model model(FamilyModel({GetParam()}));
  const std::vector<absl::Status> proven = Prove(model, WrongPlaces(model));
  EXPECT_EQ(ReasonOf(proven[0]).code(), "SPLIT_DIFFERS") << proven[0].ToString();
  EXPECT_THAT(ReasonOf(proven[0]).message(), HasSubstr("the 2 slices of layer 0"));
}

// One rank deals experts out, the other cuts their width.
TEST(SplitProofsTest, RefusesRanksThatCutExpertsInDifferentWays) {
  const Model model(FamilyModel({"minimax_m2"}));
  std::vector<ShardPlace> places = PlacesOf({1, 1}, model.config.layer_count);
  places[1].whole_experts = true;
  EXPECT_EQ(ReasonOf(Prove(model, places)[0]).code(), "SPLIT_DIFFERS");
}

// Of experts that are copied as they load, as many as a token takes are enough, and as much memory.
TEST(SplitProofOfExpertsTest, EightBitFloatsAreProvenWithAFew) {
  nlohmann::json config = FamilyConfig({"glm4_moe groups"});
  config["quantization_config"] = {
      {"quant_method", "fp8"}, {"fmt", "e4m3"}, {"weight_block_size", {40, 48}}};
  const Model model(ModelOfConfig(config));
  for (const std::vector<int>& widths : {std::vector<int>{5, 2, 1}, {1, 30}}) {
    for (const absl::Status& status : Prove(model, PlacesOf(widths, model.config.layer_count))) {
      EXPECT_TRUE(status.ok()) << status.ToString();
    }
  }
  EXPECT_EQ(ReasonOf(Prove(model, WrongPlaces(model))[0]).code(), "SPLIT_DIFFERS");

  ShardPlace layer{0, 1};
  layer.embeds = layer.has_head = false;
  const auto bytes_with = [&](int experts) {
    ModelConfig some = model.config;
    some.experts_stored = some.experts.count;
    some.experts.count = experts;
    EXPECT_TRUE(CheckWeights(some, layer, *model.files).ok());
    return WeightLoader(model.files, some, layer, EngineDevice::kCpu, [](uint64_t) {})
        .BytesNeeded();
  };
  const uint64_t few = bytes_with(2), expert = uint64_t{3} * 64 * 96 * 2;
  EXPECT_EQ(bytes_with(6) - few, 4 * (expert + 64 * 2));  // and their rows of the router
  EXPECT_EQ(ReasonOf(Prove(model, WrongPlaces(model), few)[0]).code(), "SPLIT_DIFFERS");
  EXPECT_TRUE(Prove(model, WrongPlaces(model), few - 1)[0].ok());
}

// Of each kind of layer: those that look at entries of a layer before them too.
TEST(SplitProofsTest, LayersThatShareCompressedEntries) {
  const Model model(ModelOfConfig(CompressedConfig()));
  for (const std::vector<int>& widths : {std::vector<int>{5, 2, 1}, {1, 30}}) {
    for (const absl::Status& status : Prove(model, PlacesOf(widths, model.config.layer_count))) {
      EXPECT_TRUE(status.ok()) << status.ToString();
    }
  }
  for (int layer = 0; layer < model.config.layer_count; ++layer) {
    std::vector<ShardPlace> places = PlacesOf({1, 1}, model.config.layer_count);
    for (ShardPlace& place : places) place.layer_begin = layer;
    places[1].slice_begin = places[0].slice_begin;
    places[1].slice_end = places[0].slice_end;
    EXPECT_THAT(ReasonOf(Prove(model, places)[0]).message(),
                HasSubstr(absl::StrCat("the 2 slices of layer ", layer)));
  }
}

std::string NameOf(const ::testing::TestParamInfo<std::string>& info) {
  std::string name = info.param;
  std::replace(name.begin(), name.end(), ' ', '_');
  return name;
}

INSTANTIATE_TEST_SUITE_P(Families, SplitProofTest, ::testing::ValuesIn(FamilyNames()), NameOf);

}  // namespace
}  // namespace macrame::runtime::engine
