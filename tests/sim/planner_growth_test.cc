#include "tests/sim/planner_growth.h"

#include <gtest/gtest.h>

namespace macrame::tests {
namespace {

TEST(PlannerGrowth, NoNodeIsOverItsBudgetAndNothingMovesWithoutNeed) {
  for (uint64_t seed = 0; seed < 12; ++seed) {
    const GrowthReport report = Grow({seed, static_cast<uint32_t>(6 + 20 * seed), 20, 15});
    EXPECT_EQ(report.fault, "") << "seed " << seed;
    EXPECT_EQ(report.moved_without_need, 0u) << "seed " << seed;
    EXPECT_GT(report.plans, 0u) << "seed " << seed;
  }
}

TEST(PlannerGrowth, TheSameSeedGivesTheSameCluster) {
  const GrowthReport one = Grow({7, 60, 20, 8}), other = Grow({7, 60, 20, 8});
  EXPECT_EQ(one.plans, other.plans);
  EXPECT_EQ(one.refused, other.refused);
  EXPECT_EQ(one.moved, other.moved);
}

}  // namespace
}  // namespace macrame::tests
