#include "tests/sim/reconciler_growth.h"

#include <gtest/gtest.h>

namespace macrame::tests {
namespace {

TEST(ReconcilerGrowth, ConvergesAfterEveryDisturbanceWithoutLaunchingWhatNeedsNone) {
  for (uint64_t seed = 1; seed <= 8; ++seed) {
    const ReconcilerGrowthReport report =
        GrowReconciled({seed, static_cast<uint32_t>(4 + 12 * seed), 12, 5, 240});
    EXPECT_EQ(report.fault, "") << "seed " << seed;
    EXPECT_EQ(report.launches_without_need, 0u) << "seed " << seed;
    EXPECT_EQ(report.admissions_refused, 0u) << "seed " << seed;
    EXPECT_GT(report.served, 0u) << "seed " << seed;
  }
}

TEST(ReconcilerGrowth, TheSameSeedGivesTheSameHistory) {
  const ReconcilerGrowthReport one = GrowReconciled({5, 40, 10, 3, 120});
  const ReconcilerGrowthReport other = GrowReconciled({5, 40, 10, 3, 120});
  EXPECT_EQ(one.launches, other.launches);
  EXPECT_EQ(one.plans, other.plans);
  EXPECT_EQ(one.served, other.served);
  EXPECT_EQ(one.slowest_convergence_s, other.slowest_convergence_s);
}

}  // namespace
}  // namespace macrame::tests
