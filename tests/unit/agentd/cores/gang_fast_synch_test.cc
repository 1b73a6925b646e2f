// MLX's fast GPU synchronisation is given up at the first stall over jaccl, once, and told.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/unit/agentd/cores/gang_harness.h"

namespace macrame::agentd {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;
using testing::HasSubstr;

// Ranks that were started with it, as their supervisors report.
void UseFastSynch(Harness& harness, bool by_default = true) {
  for (v1::RankStatus& rank : harness.view.ranks) rank.set_fast_synch_by_default(by_default);
}

void Stall(Harness& harness, const std::string& code) {
  v1::RankStatus* rank = harness.FindRank("m", 1);
  ASSERT_NE(rank, nullptr);
  rank->set_phase(v1::RANK_PHASE_FAILED);
  *rank->mutable_failure() = MakeReason(code, "a forward step took more than 60 s");
}

class FastSynch : public ::testing::Test {
 protected:
  // A gang over `backend` that is ready.
  void BringUp(const std::string& backend, bool by_default = true) {
    harness_.backend = backend;
    harness_.Deploy("m");
    harness_.Run(seconds(3));
    ASSERT_EQ(harness_.epochs.size(), 1u);
    UseFastSynch(harness_, by_default);
    harness_.Run(milliseconds(100));
    harness_.effects.clear();
  }
  std::vector<ReserveAndLaunch> RunAndTakeLaunches(Duration span) {
    harness_.Run(span);
    return harness_.Take<ReserveAndLaunch>();
  }

  Harness harness_{"ab"};
};

TEST_F(FastSynch, TheFirstStallOverJacclIsAnsweredByTheSlowWayOnTheSameBackend) {
  BringUp("jaccl");
  Stall(harness_, "RANK_STALLED");
  const MonotonicTime stalled_at = harness_.now;
  const auto launches = RunAndTakeLaunches(seconds(2));
  ASSERT_EQ(launches.size(), 1u);
  EXPECT_TRUE(launches[0].fast_synch_suspended);
  EXPECT_EQ(launches[0].plan.backend(), "jaccl") << "the backend is not refused for it";
  EXPECT_LT(harness_.launched_at.back() - stalled_at, milliseconds(300)) << "no back-off";
  const v1::DeploymentStatus status = harness_.Status("m");
  EXPECT_EQ(status.state(), v1::DEPLOYMENT_STATE_READY);
  ASSERT_EQ(status.fallbacks_size(), 1);
  EXPECT_EQ(status.fallbacks(0).code(), "FAST_SYNCH_SUSPENDED");
  EXPECT_THAT(status.fallbacks(0).message(), HasSubstr("a forward step took more than 60 s"));
}

TEST_F(FastSynch, ItStaysOffForLaterLaunchesAndAnotherCoordinator) {
  BringUp("jaccl");
  Stall(harness_, "RANK_STALLED");
  harness_.Run(seconds(2));
  harness_.effects.clear();
  harness_.reconciler.BeginLeading({Term(2), Id('b')}, harness_.now);
  harness_.Run(seconds(3));
  Stall(harness_, "RANK_STALLED");  // without it this time: nothing more is to be switched off
  const auto launches = RunAndTakeLaunches(seconds(5));
  ASSERT_EQ(launches.size(), 1u);
  EXPECT_TRUE(launches[0].fast_synch_suspended);
  EXPECT_EQ(harness_.Status("m").fallbacks_size(), 1) << "said once";
}

TEST_F(FastSynch, AGroupThatStallsInItsFirstCollectiveIsTriedWithoutItBeforeJacclIsRefused) {
  harness_.backend = "jaccl";
  harness_.first_phase = v1::RANK_PHASE_CONNECTING;
  harness_.Deploy("m");
  harness_.Run(seconds(3));
  UseFastSynch(harness_);
  for (v1::RankStatus& rank : harness_.view.ranks) rank.set_phase_detail("first_collective");
  harness_.Run(seconds(20));
  harness_.effects.clear();
  auto launches = RunAndTakeLaunches(seconds(15));  // past the limit of the phase
  ASSERT_EQ(launches.size(), 1u);
  EXPECT_TRUE(launches[0].fast_synch_suspended);
  EXPECT_EQ(launches[0].plan.backend(), "jaccl");
  // It stalls again: now jaccl itself is what is refused.
  for (v1::RankStatus& rank : harness_.view.ranks) rank.set_phase_detail("first_collective");
  launches = RunAndTakeLaunches(seconds(40));
  ASSERT_FALSE(launches.empty());
  EXPECT_EQ(launches[0].plan.backend(), "ring");
}

TEST_F(FastSynch, AGroupThatNeverCameToACollectiveFallsBackAsBefore) {
  harness_.backend = "jaccl";
  harness_.first_phase = v1::RANK_PHASE_CONNECTING;
  harness_.Deploy("m");
  harness_.Run(seconds(3));
  UseFastSynch(harness_);
  for (v1::RankStatus& rank : harness_.view.ranks) rank.set_phase_detail("queue_pair");
  harness_.Run(seconds(20));
  harness_.effects.clear();
  const auto launches = RunAndTakeLaunches(seconds(15));
  ASSERT_EQ(launches.size(), 1u);
  EXPECT_FALSE(launches[0].fast_synch_suspended) << "the GPU had no part in it";
  EXPECT_EQ(launches[0].plan.backend(), "ring");
}

TEST_F(FastSynch, OtherFailuresOtherBackendsAndANodesOwnChoiceLeaveItAlone) {
  BringUp("jaccl");
  Stall(harness_, "RANK_EXITED");
  auto launches = RunAndTakeLaunches(seconds(3));
  ASSERT_EQ(launches.size(), 1u);
  EXPECT_FALSE(launches[0].fast_synch_suspended) << "a crash is not a stall";

  UseFastSynch(harness_, false);  // metal_fast_synch is on or off there: not ours to change
  harness_.Run(milliseconds(100));
  harness_.effects.clear();
  Stall(harness_, "RANK_STALLED");
  launches = RunAndTakeLaunches(seconds(5));
  ASSERT_EQ(launches.size(), 1u);
  EXPECT_FALSE(launches[0].fast_synch_suspended);
  EXPECT_EQ(harness_.Status("m").fallbacks_size(), 0);
}

}  // namespace
}  // namespace macrame::agentd
