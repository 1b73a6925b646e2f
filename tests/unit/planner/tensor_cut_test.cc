// What a plan counts of a rank's slices is never less than what rankd then cuts for it, and no more
// than one unit more.

#include "planner/tensor_cut.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>
#include <random>

#include "planner/memory_model.h"
#include "tests/unit/planner/test_models.h"

namespace macrame::planner {
namespace {

// What a rank of rankd gets of [0, whole) for slices [begin, end) of `count`: as near to its part
// as whole units allow (runtime/model/cuts/tensor_cut.h).
uint64_t NearestCut(uint64_t whole, uint64_t unit, uint64_t begin, uint64_t end, uint64_t count) {
  const auto cut = [&](uint64_t slice) {
    const uint64_t units = (whole + unit - 1) / unit;
    const uint64_t nearest = (2 * units * slice + count) / (2 * count);
    return std::min(whole, nearest * unit);
  };
  return cut(end) - cut(begin);
}

// The most that any rank with so many of the slices gets, wherever they lie.
uint64_t MostCut(uint64_t whole, uint64_t unit, uint32_t width, uint32_t count) {
  uint64_t most = 0;
  for (uint32_t begin = 0; begin + width <= count; ++begin) {
    most = std::max(most, NearestCut(whole, unit, begin, begin + width, count));
  }
  return most;
}

uint64_t GroupOf(const v1::ModelDescription& model) {
  return model.quantization().bits() == 0 ? 1 : model.quantization().group_size();
}

// Key-value heads that are cut together: until their columns are whole groups.
uint64_t HeadUnit(const v1::ModelDescription& model) {
  const uint64_t columns = uint64_t{model.attention_heads()} / model.kv_heads() * model.head_dim();
  uint64_t unit = 1;
  while (unit < model.kv_heads() && unit * columns % GroupOf(model) != 0) ++unit;
  return unit;
}

// As files are: a head's columns and the feed-forward's width in whole groups of weights.
v1::ModelDescription MakeModel(std::mt19937_64& random) {
  const auto pick = [&](uint32_t low, uint32_t high) {
    return low + static_cast<uint32_t>(random() % (high - low + 1));
  };
  v1::ModelDescription model =
      random() % 2 == 0 ? LargeModel("m", 8 * kGiB, 4) : MixtureModel("m", 8 * kGiB, 4);
  model.set_kv_heads(pick(1, 12));
  model.set_attention_heads(model.kv_heads() * pick(1, 8));
  model.set_head_dim(16 * pick(1, 12));
  model.set_intermediate_size(128 * pick(1, 100));
  if (model.experts() > 0) model.set_experts(pick(2, 200));
  constexpr uint32_t kGroups[] = {32, 64, 128};
  if (random() % 4 > 0) {
    model.mutable_quantization()->set_bits(4);
    model.mutable_quantization()->set_group_size(kGroups[random() % 3]);
  }
  return model;
}

// Widths of ranks side by side.
std::vector<uint32_t> MakeWidths(std::mt19937_64& random) {
  std::vector<uint32_t> widths(1 + random() % 8);
  for (uint32_t& width : widths) width = 1 + static_cast<uint32_t>(random() % 7);
  return widths;
}

TEST(TensorCut, CountsAtLeastWhatRankdCutsAndAtMostAUnitMore) {
  for (uint64_t seed = 0; seed < 3000; ++seed) {
    SCOPED_TRACE(testing::Message() << "seed " << seed);
    std::mt19937_64 random(seed);
    const v1::ModelDescription model = MakeModel(random);
    const std::vector<uint32_t> widths = MakeWidths(random);
    const uint32_t count = std::accumulate(widths.begin(), widths.end(), 0u);
    for (const uint32_t width : widths) {
      const Cut cut = CutOf(model, {width, count});
      const uint64_t heads = MostCut(model.kv_heads(), HeadUnit(model), width, count);
      EXPECT_GE(cut.kv_heads, heads);
      EXPECT_LE(cut.kv_heads, std::min<uint64_t>(model.kv_heads(), heads + HeadUnit(model)));
      const uint64_t inner = MostCut(model.intermediate_size(), GroupOf(model), width, count);
      EXPECT_GE(cut.inner, inner);
      EXPECT_LE(cut.inner, inner + GroupOf(model));
      EXPECT_EQ(cut.experts, model.experts()) << "a part of each";
      if (!cut.even) continue;
      EXPECT_EQ(cut.kv_heads * count, uint64_t{model.kv_heads()} * width);
      EXPECT_EQ(cut.inner * count, uint64_t{model.intermediate_size()} * width);
    }
  }
}

TEST(TensorCut, WholeExpertsAreThoseThatRankdDealsOut) {
  for (uint64_t seed = 0; seed < 2000; ++seed) {
    SCOPED_TRACE(testing::Message() << "seed " << seed);
    std::mt19937_64 random(seed);
    const v1::ModelDescription model = MakeModel(random);
    if (model.experts() == 0) continue;
    const std::vector<uint32_t> widths = MakeWidths(random);
    const uint32_t count = std::accumulate(widths.begin(), widths.end(), 0u);
    uint32_t first = 0, all = 0;
    for (const uint32_t width : widths) {
      const Slice slice{width, count, true};
      const uint64_t dealt = NearestCut(model.experts(), 1, first, first + width, count);
      EXPECT_EQ(ExpertsHeld(model, first, slice), dealt);
      EXPECT_GE(CutOf(model, slice).experts, dealt);
      EXPECT_EQ(CutOf(model, slice).inner, model.intermediate_size()) << "the whole width of each";
      all += ExpertsHeld(model, first, slice);
      first += width;
    }
    EXPECT_EQ(all, model.experts()) << "each has one owner";
  }
}

TEST(TensorCut, SharesAreNoLessThanTheSliceAndNoMoreThanTheWhole) {
  for (uint64_t seed = 0; seed < 2000; ++seed) {
    SCOPED_TRACE(testing::Message() << "seed " << seed);
    std::mt19937_64 random(seed);
    const v1::ModelDescription model = MakeModel(random);
    const uint32_t count = 1 + static_cast<uint32_t>(random() % 16);
    double before = 0;
    for (uint32_t width = 1; width <= count; ++width) {
      const double share = ShareOf(model, 0, {width, count});
      EXPECT_GE(share, static_cast<double>(width) / count - 1e-12);
      EXPECT_GE(share, before - 1e-12) << "a wider slice holds no less";
      EXPECT_LE(share, 1 + 1e-12);
      before = share;
    }
    EXPECT_NEAR(before, 1, 1e-12) << "all slices are the whole";
  }
}

TEST(TensorCut, EqualSlicesCutNoHeadAndNoGroup) {
  for (uint64_t seed = 0; seed < 3000; ++seed) {
    SCOPED_TRACE(testing::Message() << "seed " << seed);
    std::mt19937_64 random(seed);
    const v1::ModelDescription model = MakeModel(random);
    const uint32_t slices = SliceCount(model);
    ASSERT_GE(slices, 1u);
    ASSERT_LE(slices, kSliceCountMax);
    EXPECT_EQ(model.attention_heads() % slices, 0u);
    EXPECT_EQ(model.kv_heads() % slices, 0u);
    if (slices > 1) {
      EXPECT_EQ(model.intermediate_size() % (slices * GroupOf(model)), 0u);
      EXPECT_EQ(model.attention_heads() * model.head_dim() % (slices * GroupOf(model)), 0u);
    }
    for (uint32_t tp = 2; tp <= 70; ++tp) {
      const uint32_t equal = SlicesFor(model, tp, /*uneven=*/false);
      if (equal > 0 && model.kv_heads() > 1) {
        EXPECT_EQ(equal % tp, 0u);
        EXPECT_TRUE(CutOf(model, {equal / tp, equal}).even) << tp << " ranks";
      }
      const uint32_t fine = SlicesFor(model, tp, /*uneven=*/true);
      EXPECT_EQ(fine == 0, tp > kSliceCountMax && slices % tp != 0) << tp << " ranks";
      if (fine > 0) {
        EXPECT_EQ(fine % tp, 0u) << "ranks alike get equal parts";
        EXPECT_LE(fine, kSliceCountMax);
      }
    }
    EXPECT_EQ(SlicesFor(model, 1, true), 1u);
    EXPECT_EQ(SlicesFor(model, 0, false), 1u);
  }
}

TEST(TensorCut, AnEntryThatDoesNotTellItsWidthsIsCutByTheSlice) {
  v1::ModelDescription model = LargeModel("m", 8 * kGiB, 4);
  model.set_intermediate_size(0);
  const Slice third{1, 3};
  const Cut cut = CutOf(model, third);
  EXPECT_EQ(cut.inner, 0u);
  EXPECT_NEAR(InnerPart(model, cut, third), 1.0 / 3, 1e-12);
  EXPECT_EQ(cut.kv_heads, 3u) << "of 8 heads one rank has three";
  EXPECT_NEAR(AttentionPart(model, 0), 1, 1e-12) << "nothing is known of a feed-forward";
  EXPECT_NEAR(ShareOf(model, 0, third), 3.0 / 8, 1e-12);
}

TEST(TensorCut, OfAMixtureAttentionIsWhatIsNoExpert) {
  v1::ModelDescription model = MixtureModel("m", 8 * kGiB, 4);
  const double divisible = static_cast<double>(model.layer_divisible_bytes(0));
  const double experts = static_cast<double>(model.layer_expert_bytes(0));
  EXPECT_NEAR(AttentionPart(model, 0), (divisible - experts) / divisible, 1e-12);
  // Experts that are more than what can be divided, as of files that say nonsense.
  model.set_layer_expert_bytes(0, model.layer_divisible_bytes(0) * 3);
  EXPECT_EQ(AttentionPart(model, 0), 0);
  model.set_layer_divisible_bytes(0, 0);
  EXPECT_EQ(AttentionPart(model, 0), 0);
  EXPECT_GT(AttentionPart(model, 1), 0);
}

}  // namespace
}  // namespace macrame::planner
