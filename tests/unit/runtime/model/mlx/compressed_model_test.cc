// Compressed attention and residual streams as MLX's graph against our CPU kernels, which
// tests/conformance/engine holds against mlx-lm: however steps are cut, behind a cached prefix,
// after drafts that were wrong, over stages, also of both kinds, and over ranks.

#include <gmock/gmock.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "runtime/model/mlx/compressed_index.h"
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

template <typename Stack>
std::unique_ptr<Stack> Load(int begin = 0, int end = 5) {
  return Load<Stack>(Small(), begin, end);
}

constexpr int kLength = 90;
constexpr int kVocabulary = 101;

// Of the kernels, for a text.
Logits Expected(int seed) { return InParts({Load<CpuModel>().get()}, {kLength}, seed); }

// How many rows are the same but for how sums are rounded. Where that makes another 4-bit number of
// a key, or another expert chosen, the rows behind differ by more.
double SameRows(const Logits& ours, const Logits& expected) {
  EXPECT_EQ(ours.size(), expected.size());
  const size_t rows = ours.size() / kVocabulary;
  size_t same = 0;
  for (size_t row = 0; row < rows; ++row) {
    double largest = 0;
    for (size_t i = row * kVocabulary; i < (row + 1) * kVocabulary; ++i) {
      largest = std::max(largest, std::fabs(double{ours[i]} - double{expected[i]}));
    }
    if (largest < 2e-4) ++same;
  }
  return static_cast<double>(same) / static_cast<double>(rows);
}

// What is compared is of many texts: what is wrong is wrong in nearly every row of each. Where
// roundings fall is a matter of the processor (seen: 0.86 to 1).
constexpr int kTexts = 5;
constexpr double kSameMin = 0.4;

// Of every text `run` gives the rows from position `begin` on.
void ExpectSame(const std::function<Logits(int seed)>& run, int begin = 0) {
  double same = 0;
  for (int seed = 1; seed <= kTexts; ++seed) {
    same += SameRows(run(seed), Rows(Expected(seed), begin, kLength));
  }
  EXPECT_GT(same / kTexts, kSameMin);
}

TEST(MlxCompressedModelTest, GivesWhatTheKernelsGive) {
  ExpectSame([](int seed) { return InParts({Load<Decoder>().get()}, {kLength}, seed); });
}

TEST(MlxCompressedModelTest, StepsMayBeCutAnywhere) {
  ExpectSame([](int seed) {
    return InParts({Load<Decoder>().get()}, {1, 4, 37, 64, 65, 88, kLength}, seed);
  });
  std::vector<int> ends;
  for (int end = 1; end <= kLength; ++end) ends.push_back(end);
  ExpectSame([&](int seed) { return InParts({Load<Decoder>().get()}, ends, seed); });
}

TEST(MlxCompressedModelTest, TogetherIsAsAlone) {
  ExpectSame([](int seed) {
    const auto both = Load<Decoder>();
    const Logits a =
        Compute({both.get()}, {{}, {Part(3, 0, 41, 7, 0, 0), Part(7, 0, 33, seed, 8, 0)}});
    const Logits b =
        Compute({both.get()}, {{}, {Part(7, 33, kLength, seed, 8, 2), Part(3, 41, 42, 7, 0, 2)}});
    Logits own = Rows(a, 41, 74);
    const Logits rest = Rows(b, 0, kLength - 33);
    own.insert(own.end(), rest.begin(), rest.end());
    return own;
  });
}

TEST(MlxCompressedModelTest, ASharedPrefixIsAsGoodAsARecomputedOne) {
  ExpectSame(
      [](int seed) {
        const auto shared = Load<Decoder>();
        InParts({shared.get()}, {70}, seed);
        // Another sequence takes the first two blocks as they are.
        Segment next = Part(1, 64, kLength, seed, 4, 2);
        next.new_blocks.insert(next.new_blocks.begin(), {0, 1});
        return Compute({shared.get()}, {{0}, {next}});
      },
      64);
}

TEST(MlxCompressedModelTest, DraftsThatWereWrongLeaveNothing) {
  ExpectSame(
      [](int seed) {
        const auto drafted = Load<Decoder>();
        InParts({drafted.get()}, {61}, seed);
        // Twelve tokens of another text run behind an odd position, over the end of a block.
        Compute({drafted.get()}, {{}, {Part(0, 61, 73, seed + 9, 0, 2)}});
        return Compute({drafted.get()}, {{}, {Part(0, 61, kLength, seed, 0, 3)}});
      },
      61);
}

TEST(MlxCompressedModelTest, StagesOfBothKindsGiveWhatOneGives) {
  const std::vector<std::vector<int>> cuts = {{0, 1, 5}, {0, 4, 5}, {0, 1, 2, 3, 4, 5}};
  for (const auto& cut : cuts) {
    for (const bool is_mixed : {false, true}) {
      ExpectSame([&](int seed) {
        std::vector<std::unique_ptr<LayerStack>> held;
        std::vector<LayerStack*> stages;
        for (size_t i = 0; i + 1 < cut.size(); ++i) {
          const bool is_cpu = is_mixed && i % 2 == static_cast<size_t>(seed % 2);
          if (is_cpu) held.push_back(Load<CpuModel>(cut[i], cut[i + 1]));
          if (!is_cpu) held.push_back(Load<Decoder>(cut[i], cut[i + 1]));
          stages.push_back(held.back().get());
        }
        return InParts(stages, {40, 77, 78, kLength}, seed);
      });
    }
  }
}

// What a stage is handed is what the layer before it gave, and in its order: every sum is the same.
TEST(MlxCompressedModelTest, StagesOfTheGraphHaveTheBitsOfOne) {
  for (const std::vector<int>& cut :
       {std::vector{0, 1, 5}, std::vector{0, 4, 5}, std::vector{0, 1, 2, 3, 4, 5}}) {
    std::vector<std::unique_ptr<Decoder>> held;
    std::vector<LayerStack*> stages;
    for (size_t i = 0; i + 1 < cut.size(); ++i) {
      held.push_back(Load<Decoder>(cut[i], cut[i + 1]));
      stages.push_back(held.back().get());
    }
    const std::vector<int> ends = {40, 77, 78, 79, kLength};
    EXPECT_EQ(InParts(stages, ends, 3), InParts({Load<Decoder>().get()}, ends, 3))
        << "of " << held.size() << " stages";
  }
}

// A layer that looks at its window alone, between two that look at entries: what it hands on is
// what came.
TEST(MlxCompressedModelTest, EntriesPassThroughAStageThatLooksAtNone) {
  const Model model(ModelOfConfig(CompressedConfig({{"compress_ratios", {2, 0, 2, 1, 1}},
                                                    {"kv_source_layer_ids", {0, 3}},
                                                    {"index_source_layer_ids", {0, 3, 4}}})));
  double same = 0;
  for (int seed = 1; seed <= kTexts; ++seed) {
    const auto whole = Load<Decoder>(model, 0, 5), first = Load<Decoder>(model, 0, 1),
               second = Load<Decoder>(model, 1, 2), third = Load<Decoder>(model, 2, 5);
    same += SameRows(InParts({first.get(), second.get(), third.get()}, {40, 77, kLength}, seed),
                     InParts({whole.get()}, {40, 77, kLength}, seed));
  }
  EXPECT_GT(same / kTexts, kSameMin);
}

TEST(MlxCompressedModelTest, RanksOfATensorSplitGiveWhatOneGives) {
  // The last ones have ranks without heads.
  ExpectModelSplits<Decoder>(Small(), {{1, 1}, {2, 1, 1}, {1, 30}, {1, 1, 1, 1, 1}});
}

TEST(MlxCompressedModelTest, BlocksAreTheSameInAnotherProcess) {
  ExpectSame(
      [](int seed) {
        const auto from = Load<Decoder>(), to = Load<Decoder>();
        InParts({from.get()}, {64}, seed);
        InParts({to.get()}, {1}, seed);  // so that its buffers are there
        for (const int32_t block : {0, 1}) {
          std::vector<std::byte> bytes(from->stored_block_bytes());
          from->ReadBlock(block, bytes);
          to->WriteBlock(block + 5, bytes);
        }
        Segment next = Part(1, 64, kLength, seed, 7, 2);
        next.new_blocks = {5, 6, 9};
        return Compute({to.get()}, {{}, {next}});
      },
      64);
}

// A part of one row is taken for a sequence's last row, which sees all entries.
TEST(MlxCompressedModelTest, PartsOfAPromptHaveTwoRowsHoweverLargeTheyAre) {
  EXPECT_EQ(CompressedRowsAtOnce(1), 64);
  EXPECT_EQ(CompressedRowsAtOnce(size_t{8} << 20), 8);
  EXPECT_EQ(CompressedRowsAtOnce(size_t{1} << 40), 2);
}

TEST(MlxCompressedModelTest, WhatCannotBeTakenUpAgainIsRefused) {
  const auto model = Load<Decoder>();
  InParts({model.get()}, {80}, 1);
  Segment within = Part(1, 33, 40, 1, 4, 0);
  within.new_blocks = {0, 5};
  EXPECT_THAT(std::string(model->Begin({{}, {within}}).message()), HasSubstr("did not compute"));
  EXPECT_THAT(std::string(model->Begin({{}, {Part(0, 47, 49, 1, 0, 3)}}).message()),
              HasSubstr("goes back from 80 to 47, more than 32"));
}

}  // namespace
}  // namespace macrame::runtime::engine
