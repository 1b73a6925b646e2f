#include "planner/layer_balance.h"

#include <gtest/gtest.h>

namespace macrame::planner {
namespace {

using Ends = std::vector<uint32_t>;

// Layers of equal weight on stages that hold `held` of them.
StageBurden Filling(std::vector<double> held) {
  return
      [held](uint32_t stage, uint32_t begin, uint32_t end) { return (end - begin) / held[stage]; };
}

TEST(LayerBalance, EqualStagesGetEqualRanges) {
  EXPECT_EQ(BalanceLayers(3, 6, Filling({4, 4, 4}), 1), (Ends{2, 4, 6}));
  EXPECT_EQ(BalanceLayers(1, 6, Filling({6}), 1), (Ends{6}));
}

TEST(LayerBalance, RangesFollowWhatStagesHold) {
  EXPECT_EQ(BalanceLayers(2, 60, Filling({80, 40}), 1), (Ends{40, 60}));
}

TEST(LayerBalance, WhatCannotFitIsNothing) {
  EXPECT_FALSE(BalanceLayers(2, 6, Filling({2, 3}), 1).has_value());
  EXPECT_FALSE(BalanceLayers(7, 6, Filling(std::vector<double>(7, 9)), 1).has_value());
  EXPECT_FALSE(BalanceLayers(0, 6, Filling({}), 1).has_value());
  EXPECT_TRUE(BalanceLayers(6, 6, Filling(std::vector<double>(6, 1)), 1).has_value());
}

TEST(LayerBalance, ManyStagesAreDividedEvenly) {
  const auto ends = BalanceLayers(32, 128, Filling(std::vector<double>(32, 6)), 1);
  ASSERT_TRUE(ends.has_value());
  for (uint32_t i = 0; i < 32; ++i) EXPECT_EQ((*ends)[i], 4 * (i + 1));
}

}  // namespace
}  // namespace macrame::planner
