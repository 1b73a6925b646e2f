// Where a tensor split cuts: whatever the sizes, every part of the model has one owner, and no cut
// goes through a head or a quantisation group.

#include "runtime/model/cuts/tensor_cut.h"

#include <gtest/gtest.h>

#include <numeric>
#include <random>
#include <vector>

namespace macrame::runtime::engine {
namespace {

int Pick(std::mt19937& random, int lowest, int highest) {
  return std::uniform_int_distribution<int>(lowest, highest)(random);
}

// Some runs of `count` slices, side by side.
std::vector<SliceRange> RandomSlices(std::mt19937& random) {
  const int ranks = Pick(random, 1, 8);
  std::vector<int> widths;
  for (int rank = 0; rank < ranks; ++rank) widths.push_back(Pick(random, 1, 9));
  const int count = std::accumulate(widths.begin(), widths.end(), 0);
  std::vector<SliceRange> slices;
  int begin = 0;
  for (const int width : widths) {
    slices.push_back({begin, begin + width, count});
    begin += width;
  }
  return slices;
}

ModelConfig RandomConfig(std::mt19937& random) {
  ModelConfig config;
  config.layer_count = 3;
  config.head_dim = 16 * Pick(random, 1, 16);
  config.kv_heads = Pick(random, 1, 16);
  config.attention_heads = config.kv_heads * Pick(random, 1, 8);
  config.vocab_size = Pick(random, 1, 300'000);
  const int groups[] = {16, 32, 64, 128};
  if (Pick(random, 0, 3) > 0) config.quantization = {4, groups[Pick(random, 0, 3)]};
  if (Pick(random, 0, 1) > 0) {
    config.quantization_overrides["model.layers.1.self_attn.o_proj"] = {8,
                                                                        groups[Pick(random, 0, 3)]};
    config.quantization_overrides["model.layers.2.mlp.down_proj"] = {8, groups[Pick(random, 0, 3)]};
  }
  // As files are: whole groups, in every layer.
  config.intermediate_size = 128 * Pick(random, 1, 200);
  return config;
}

template <typename PartOf>
void ExpectEveryPartOnce(int whole, const std::vector<SliceRange>& slices, const PartOf& part_of) {
  int next = 0;
  for (const SliceRange& own : slices) {
    const Range part = part_of(own);
    EXPECT_EQ(part.begin, next);
    EXPECT_GE(part.end, part.begin);
    next = part.end;
  }
  EXPECT_EQ(next, whole);
}

TEST(TensorCutTest, EveryPartHasOneOwnerAndGroupsStayWhole) {
  std::mt19937 random(7);
  for (int round = 0; round < 2000; ++round) {
    const ModelConfig config = RandomConfig(random);
    const std::vector<SliceRange> slices = RandomSlices(random);
    ExpectEveryPartOnce(config.kv_heads, slices,
                        [&](const SliceRange& own) { return KvHeadsOf(config, own); });
    ExpectEveryPartOnce(config.vocab_size, slices,
                        [&](const SliceRange& own) { return VocabularyOf(config, own); });
    for (int layer = 0; layer < config.layer_count; ++layer) {
      ExpectEveryPartOnce(config.intermediate_size, slices,
                          [&](const SliceRange& own) { return InnerOf(config, layer, own); });
      const std::string prefix = "model.layers." + std::to_string(layer);
      const auto group = [&](const char* module) {
        return std::max(1, config.QuantizationOf(prefix + module).group_size);
      };
      for (const SliceRange& own : slices) {
        const Range inner = InnerOf(config, layer, own);
        EXPECT_EQ(inner.begin % group(".mlp.down_proj"), 0);
        const Range heads = KvHeadsOf(config, own);
        if (heads.begin == config.kv_heads) continue;  // none, behind the last
        const int columns = config.attention_heads / config.kv_heads * config.head_dim;
        EXPECT_EQ(heads.begin * columns % group(".self_attn.o_proj"), 0);
      }
    }
  }
}

TEST(TensorCutTest, PartsAreAsNearToTheSlicesAsUnitsAllow) {
  std::mt19937 random(8);
  for (int round = 0; round < 2000; ++round) {
    const int unit = Pick(random, 1, 128), units = Pick(random, 1, 500);
    const int whole = unit * units - Pick(random, 0, unit - 1);
    for (const SliceRange& own : RandomSlices(random)) {
      const Range part = CutInUnits(whole, unit, own);
      const double due = double{1} * units * (own.end - own.begin) / own.count;
      EXPECT_LT(std::abs(static_cast<double>(part.size()) / unit - due), 2.0);
      EXPECT_LE((part.size() + unit - 1) / unit,
                (units * (own.end - own.begin) + own.count - 1) / own.count)
          << "the planner counts on it";
    }
  }
}

TEST(TensorCutTest, WholeExpertsHaveOneOwnerEachAndKeepTheirWidth) {
  std::mt19937 random(9);
  ModelConfig config;
  config.layer_count = 1;
  config.quantization = {4, 64};
  for (int round = 0; round < 500; ++round) {
    config.experts.count = Pick(random, 2, 300);
    config.experts.width = 64 * Pick(random, 1, 40);
    const std::vector<SliceRange> slices = RandomSlices(random);
    ExpectEveryPartOnce(config.experts.count, slices, [&](SliceRange own) {
      own.whole_experts = true;
      EXPECT_EQ(ExpertInnerOf(config, 0, own).size(), config.experts.width);
      return ExpertsOf(config, own);
    });
    ExpectEveryPartOnce(config.experts.width, slices, [&](const SliceRange& own) {
      EXPECT_EQ(ExpertsOf(config, own).size(), config.experts.count);
      return ExpertInnerOf(config, 0, own);
    });
  }
  config.experts.count = 16;
  EXPECT_EQ(ExpertsOf(config, {5, 7, 8, true}), (Range{10, 14}));
}

TEST(TensorCutTest, WhatDividesIsDividedEvenly) {
  EXPECT_EQ(CutInUnits(8192, 64, {1, 2, 2}), (Range{4096, 8192}));
  EXPECT_EQ(CutInUnits(8, 1, {2, 3, 4}), (Range{4, 6}));
}

TEST(TensorCutTest, FewerUnitsThanRanksLeaveSomeWithNone) {
  EXPECT_EQ(CutInUnits(2, 1, {0, 1, 3}).size(), 1);
  EXPECT_EQ(CutInUnits(2, 1, {1, 2, 3}).size(), 0);
  EXPECT_EQ(CutInUnits(2, 1, {2, 3, 3}).size(), 1);
}

TEST(TensorCutTest, HeadsNarrowerThanAGroupAreCutTogether) {
  ModelConfig config;
  config.layer_count = 1;
  config.head_dim = 64;
  config.attention_heads = config.kv_heads = 6;
  config.quantization = {4, 128};
  EXPECT_EQ(KvHeadsOf(config, {0, 1, 2}), (Range{0, 4})) << "pairs of heads: two and one of three";
  EXPECT_EQ(KvHeadsOf(config, {1, 2, 2}), (Range{4, 6}));
}

}  // namespace
}  // namespace macrame::runtime::engine
