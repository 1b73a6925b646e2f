// Uneven slices of every family are shown to be the layers they were cut from; wrong ones are not.

#include "runtime/model/split_proof.h"

#include <gmock/gmock.h>

#include "proto/reasons.h"
#include "tests/unit/runtime/model/family_model.h"
#include "tests/unit/runtime/model/split_ranks.h"

namespace macrame::runtime::engine {
namespace {

using ::testing::HasSubstr;

// What each rank of the stage gets to know.
std::vector<absl::Status> Prove(const Model& model, const std::vector<ShardPlace>& places) {
  Meeting meeting(places.size());
  std::vector<absl::Status> proven(places.size());
  std::vector<std::thread> threads;
  for (size_t rank = 0; rank < places.size(); ++rank) {
    threads.emplace_back([&, rank] {
      MeetingSums sums(meeting, rank);
      proven[rank] = ProveSplit({model.config, places[rank], model.files}, sums);
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
TEST_P(SplitProofTest, RefusesSlicesThatDoNot) {
  if (GetParam().find("fp8") != std::string::npos) {
    GTEST_SKIP() << "8-bit floats become others as they load: such layers are not proven";
  }
  const Model model(FamilyModel({GetParam()}));
  std::vector<ShardPlace> places = PlacesOf({1, 1}, model.config.layer_count);
  places[1].slice_begin = places[0].slice_begin;
  places[1].slice_end = places[0].slice_end;
  const std::vector<absl::Status> proven = Prove(model, places);
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

std::string NameOf(const ::testing::TestParamInfo<std::string>& info) {
  std::string name = info.param;
  std::replace(name.begin(), name.end(), ' ', '_');
  return name;
}

INSTANTIATE_TEST_SUITE_P(Families, SplitProofTest, ::testing::ValuesIn(FamilyNames()), NameOf);

}  // namespace
}  // namespace macrame::runtime::engine
