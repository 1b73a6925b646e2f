#include "planner/layer_balance.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <limits>
#include <random>

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

// Burdens of single layers, on stages that carry each of them the lighter the stronger they are.
struct Load {
  std::vector<double> layers;
  std::vector<double> strength;
  double limit = 0;

  double Of(uint32_t stage, uint32_t begin, uint32_t end) const {
    double sum = 0;
    for (uint32_t layer = begin; layer < end; ++layer) sum += layers[layer];
    return sum / strength[stage];
  }
};

Load MakeLoad(uint64_t seed) {
  std::mt19937_64 random(seed);
  Load load;
  for (uint64_t i = 1 + random() % 9; i > 0; --i) {
    load.layers.push_back(static_cast<double>(1 + random() % 8));
  }
  for (uint64_t i = 1 + random() % 4; i > 0; --i) {
    load.strength.push_back(static_cast<double>(1u << random() % 4));
  }
  load.limit = static_cast<double>(4 + random() % 30);
  return load;
}

// Of all ways to cut: the least worst burden, and of those the least sum of squares.
struct Burdens {
  double worst = std::numeric_limits<double>::infinity();
  double squares = std::numeric_limits<double>::infinity();
};

Burdens OfCut(const Load& load, const Ends& ends) {
  Burdens burdens{0, 0};
  for (uint32_t stage = 0; stage < ends.size(); ++stage) {
    const double here = load.Of(stage, stage == 0 ? 0 : ends[stage - 1], ends[stage]);
    burdens.worst = std::max(burdens.worst, here);
    burdens.squares += here * here;
  }
  return burdens;
}

void TryCuts(const Load& load, Ends* ends, Burdens* best) {
  const auto layers = static_cast<uint32_t>(load.layers.size());
  const uint32_t begin = ends->empty() ? 0 : ends->back();
  if (ends->size() + 1 == load.strength.size()) {
    if (begin >= layers) return;
    ends->push_back(layers);
    const Burdens here = OfCut(load, *ends);
    if (here.worst <= load.limit &&
        std::pair(here.worst, here.squares) < std::pair(best->worst, best->squares)) {
      *best = here;
    }
    ends->pop_back();
    return;
  }
  for (uint32_t end = begin + 1; end < layers; ++end) {
    ends->push_back(end);
    TryCuts(load, ends, best);
    ends->pop_back();
  }
}

TEST(LayerBalance, IsTheBestOfAllCutsFirstByTheWorstThenBySquares) {
  uint32_t fit = 0, none = 0;
  for (uint64_t seed = 0; seed < 4000; ++seed) {
    SCOPED_TRACE(testing::Message() << "seed " << seed);
    const Load load = MakeLoad(seed);
    Burdens best;
    Ends tried;
    TryCuts(load, &tried, &best);
    const auto ends = BalanceLayers(
        static_cast<uint32_t>(load.strength.size()), static_cast<uint32_t>(load.layers.size()),
        [&](uint32_t stage, uint32_t begin, uint32_t end) { return load.Of(stage, begin, end); },
        load.limit);
    ASSERT_EQ(ends.has_value(), best.worst <= load.limit);
    ++(ends.has_value() ? fit : none);
    if (!ends.has_value()) continue;
    const Burdens found = OfCut(load, *ends);
    EXPECT_DOUBLE_EQ(found.worst, best.worst);
    EXPECT_NEAR(found.squares, best.squares, 1e-9 * best.squares);
  }
  EXPECT_GT(fit, 1000u);
  EXPECT_GT(none, 500u);
}

TEST(LayerBalance, AStageThatHoldsNothingLeavesNoWay) {
  const auto never = [](uint32_t stage, uint32_t begin, uint32_t end) {
    return stage == 1 ? std::numeric_limits<double>::infinity() : 0.01 * (end - begin);
  };
  EXPECT_FALSE(BalanceLayers(3, 9, never, 1).has_value());
  EXPECT_TRUE(BalanceLayers(1, 9, never, 1).has_value());
}

}  // namespace
}  // namespace macrame::planner
