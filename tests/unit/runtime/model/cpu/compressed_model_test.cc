// Compressed attention and residual streams on a CPU: whatever else is in a step, however a prompt
// is cut, behind a cached prefix, after drafts that were wrong and over any stages, a token's
// logits keep every bit. That they are the model's, tests/conformance/engine shows.

#include <gmock/gmock.h>

#include "absl/strings/str_cat.h"
#include "tests/unit/runtime/model/compressed_model.h"
#include "tests/unit/runtime/model/family_model.h"
#include "tests/unit/runtime/model/sequence_runs.h"
#include "tests/unit/runtime/model/split_ranks.h"

namespace macrame::runtime::engine {
namespace {

using ::testing::HasSubstr;

const Model& Small() {
  static const Model model(ModelOfConfig(CompressedConfig()));
  return model;
}

std::unique_ptr<CpuModel> Load() { return Load(Small(), 0, Small().config.layer_count); }

TEST(CompressedModelTest, ChunksKeepEveryBit) {
  const auto whole = Load(), parts = Load(), single = Load();
  const Logits expected = InParts({whole.get()}, {90}, 1);
  EXPECT_EQ(InParts({parts.get()}, {1, 4, 37, 64, 65, 88, 90}, 1), expected);
  std::vector<int> ends;
  for (int end = 1; end <= 90; ++end) ends.push_back(end);
  EXPECT_EQ(InParts({single.get()}, ends, 1), expected);
}

TEST(CompressedModelTest, ChunksOfAQuantisedModelKeepEveryBit) {
  const nlohmann::json packed = {{"q_lora_rank", 64},
                                 {"quantization", {{"bits", 4}, {"group_size", 32}}}};
  const Model model(ModelOfConfig(CompressedConfig(packed)));
  const auto whole = Load(model, 0, 5), parts = Load(model, 0, 2), last = Load(model, 2, 5);
  EXPECT_EQ(InParts({parts.get(), last.get()}, {1, 4, 37, 64, 65, 88, 90}, 1),
            InParts({whole.get()}, {90}, 1));
}

TEST(CompressedModelTest, TogetherIsAsAlone) {
  const auto one = Load(), other = Load(), both = Load();
  const Logits first = InParts({one.get()}, {50}, 1), second = InParts({other.get()}, {61}, 2);
  const Logits a = Compute({both.get()}, {{}, {Part(3, 0, 33, 1, 0, 0), Part(7, 0, 40, 2, 8, 0)}});
  const Logits b =
      Compute({both.get()}, {{}, {Part(7, 40, 61, 2, 8, 2), Part(3, 33, 50, 1, 0, 2)}});
  EXPECT_EQ(Rows(a, 0, 33), Rows(first, 0, 33));
  EXPECT_EQ(Rows(a, 33, 73), Rows(second, 0, 40));
  EXPECT_EQ(Rows(b, 0, 21), Rows(second, 40, 61));
  EXPECT_EQ(Rows(b, 21, 38), Rows(first, 33, 50));
}

TEST(CompressedModelTest, ASharedPrefixIsAsGoodAsARecomputedOne) {
  const auto whole = Load(), shared = Load();
  const Logits expected = InParts({whole.get()}, {90}, 1);
  InParts({shared.get()}, {70}, 1);
  // Another sequence takes the first two blocks as they are.
  Segment next = Part(1, 64, 90, 1, 4, 2);
  next.new_blocks.insert(next.new_blocks.begin(), {0, 1});
  EXPECT_EQ(Compute({shared.get()}, {{0}, {next}}), Rows(expected, 64, 90));
}

TEST(CompressedModelTest, DraftsThatWereWrongLeaveNothing) {
  const auto whole = Load(), drafted = Load();
  const Logits expected = InParts({whole.get()}, {90}, 1);
  InParts({drafted.get()}, {61}, 1);
  // Twelve tokens of another text run behind an odd position, over the end of a block.
  Segment wrong = Part(0, 61, 73, 5, 0, 2);
  Compute({drafted.get()}, {{}, {wrong}});
  EXPECT_EQ(Compute({drafted.get()}, {{}, {Part(0, 61, 90, 1, 0, 3)}}), Rows(expected, 61, 90));
}

TEST(CompressedModelTest, StagesKeepEveryBit) {
  const auto whole = Load();
  const Logits expected = InParts({whole.get()}, {40, 77, 78}, 1);
  const std::vector<std::vector<int>> cuts = {{0, 1, 5}, {0, 2, 5}, {0, 4, 5}, {0, 1, 2, 3, 4, 5}};
  for (const auto& cut : cuts) {
    std::vector<std::unique_ptr<CpuModel>> held;
    std::vector<LayerStack*> stages;
    for (size_t i = 0; i + 1 < cut.size(); ++i) {
      held.push_back(Load(Small(), cut[i], cut[i + 1]));
      stages.push_back(held.back().get());
    }
    EXPECT_EQ(InParts(stages, {40, 77, 78}, 1), expected) << cut.size() << " from " << cut[1];
  }
}

TEST(CompressedModelTest, RanksOfATensorSplitGiveWhatOneGives) {
  // The last ones have ranks without heads.
  ExpectModelSplits<CpuModel>(Small(), {{1, 1}, {2, 1, 1}, {1, 30}, {1, 1, 1, 1, 1}});
}

TEST(CompressedModelTest, BlocksAreTheSameInAnotherProcess) {
  const auto whole = Load(), from = Load(), to = Load();
  const Logits expected = InParts({whole.get()}, {90}, 1);
  InParts({from.get()}, {64}, 1);
  for (const int32_t block : {0, 1}) {
    std::vector<std::byte> bytes(from->stored_block_bytes());
    from->ReadBlock(block, bytes);
    to->WriteBlock(block + 5, bytes);
  }
  Segment next = Part(1, 64, 90, 1, 7, 2);
  next.new_blocks = {5, 6, 9};
  EXPECT_EQ(Compute({to.get()}, {{}, {next}}), Rows(expected, 64, 90));
  EXPECT_THAT(from->kv_layout(), HasSubstr("entries of 2"));
}

TEST(CompressedModelTest, ASequenceThatBeginsWithinABlockIsRefused) {
  const auto model = Load();
  InParts({model.get()}, {40}, 1);
  Segment next = Part(1, 33, 40, 1, 4, 0);
  next.new_blocks = {0, 5};
  EXPECT_THAT(std::string(model->Begin({{}, {next}}).message()), HasSubstr("did not compute"));
}

TEST(CompressedModelTest, GoingBackFurtherThanIsKeptIsRefused) {
  const auto model = Load();
  InParts({model.get()}, {80}, 1);
  EXPECT_THAT(std::string(model->Begin({{}, {Part(0, 47, 49, 1, 0, 3)}}).message()),
              HasSubstr("goes back from 80 to 47, more than 32"));
}

// The rows of a pooled group see it once its last position is there.
TEST(CompressedModelTest, EntriesMatterBeyondTheWindow) {
  const auto one = Load(), other = Load();
  const Logits a = InParts({one.get()}, {60}, 1);
  Segment changed = Part(0, 0, 60, 1, 0, 0);
  changed.tokens[3] = (changed.tokens[3] + 1) % 101;
  const Logits b = Compute({other.get()}, {{}, {changed}});
  EXPECT_EQ(Rows(a, 0, 3), Rows(b, 0, 3));
  // Five layers of windows reach 55 positions back.
  EXPECT_NE(Rows(a, 59, 60), Rows(b, 59, 60));
}

}  // namespace
}  // namespace macrame::runtime::engine
