#include <gtest/gtest.h>

#include "tests/unit/agentd/cores/gang_harness.h"

namespace macrame::agentd {
namespace {

using std::chrono::seconds;

TEST(GangEviction, ALowerPriorityMakesRoomAndComesBackWhenThereIsRoomAgain) {
  Harness h("a");
  h.rooms = {{"low", 'a'}, {"high", 'a'}};
  h.Deploy("low");
  h.Run(seconds(3));
  ASSERT_EQ(h.Status("low").state(), v1::DEPLOYMENT_STATE_READY);
  h.Deploy("high");
  h.view.deployments.back().set_priority(2);
  h.Run(seconds(3));
  EXPECT_EQ(h.Status("high").failure().code(), "MEMORY_SHORT") << "it may not evict";
  EXPECT_EQ(h.Status("low").state(), v1::DEPLOYMENT_STATE_READY);
  h.view.deployments.back().set_may_evict(true);
  h.Run(seconds(3));
  EXPECT_EQ(h.Status("high").state(), v1::DEPLOYMENT_STATE_READY) << "leave is taken at once";
  EXPECT_EQ(h.Status("low").state(), v1::DEPLOYMENT_STATE_PENDING);
  EXPECT_EQ(h.Status("high").attempts(), 0u) << "preemption is no failure";
  h.view.deployments.pop_back();
  h.Run(seconds(12));
  EXPECT_EQ(h.Status("low").state(), v1::DEPLOYMENT_STATE_READY);
}

TEST(GangEviction, WhoEvictedAndFailsLetsTheOtherBackAndTriesAgainLater) {
  Harness h("a");
  h.rooms = {{"low", 'a'}, {"high", 'a'}};
  h.Deploy("low");
  h.Run(seconds(3));
  h.launches = absl::UnavailableError("no such program");
  h.DeployEvicting("high", 2);
  h.Run(seconds(30));
  EXPECT_EQ(h.Status("low").state(), v1::DEPLOYMENT_STATE_PENDING);
  EXPECT_EQ(h.Status("low").failure().code(), "EVICTED");
  h.Run(seconds(60));
  h.launches = absl::OkStatus();
  h.Run(seconds(60));
  h.effects.clear();
  h.Run(std::chrono::minutes(30));
  int endings = 0;
  for (const StopRanks& end : h.Take<StopRanks>()) endings += end.deployment == "low" ? 1 : 0;
  EXPECT_LE(endings, 2) << "the two do not push each other out for ever";
  EXPECT_EQ(h.Status("high").state(), v1::DEPLOYMENT_STATE_READY) << "the priority wins in the end";
}

TEST(GangEviction, ARankThatFailsWhileItLoadsDoesNotGiveTheRoomBack) {
  Harness h("a");
  h.rooms = {{"low", 'a'}, {"high", 'a'}};
  h.Deploy("low");
  h.Run(seconds(3));
  h.first_phase = v1::RANK_PHASE_LOADING;
  h.DeployEvicting("high", 2);
  h.Run(seconds(10));
  ASSERT_NE(h.FindRank("high", 0), nullptr);
  h.FindRank("high", 0)->set_phase(v1::RANK_PHASE_FAILED);
  *h.FindRank("high", 0)->mutable_failure() = MakeReason("RANK_EXITED", "a bad read");
  h.first_phase = v1::RANK_PHASE_READY;
  h.Run(seconds(10));
  EXPECT_EQ(h.Status("high").state(), v1::DEPLOYMENT_STATE_READY);
  EXPECT_EQ(h.Status("low").state(), v1::DEPLOYMENT_STATE_PENDING);
}

TEST(GangEviction, PreemptionIsNotARefusalWhileMemoryIsNotSeenToBeFree) {
  Harness h("a");
  h.rooms = {{"low", 'a'}, {"high", 'a'}};
  h.Deploy("low");
  h.Run(seconds(3));
  h.DeployEvicting("high", 2);
  h.is_memory_seen = false;
  h.Run(seconds(20));
  EXPECT_EQ(h.Status("high").failure().code(), "AWAITS_ROOM");
  h.is_memory_seen = true;
  h.Run(seconds(5));
  EXPECT_EQ(h.Status("high").state(), v1::DEPLOYMENT_STATE_READY);
}

TEST(GangEviction, ANewCoordinatorKnowsAnEvictedGangForWhatItIs) {
  Harness h("a");
  h.rooms = {{"low", 'a'}, {"high", 'a'}};
  h.backend = "jaccl";
  h.Deploy("low");
  h.Run(seconds(3));
  h.DeployEvicting("high", 2);
  h.Run(seconds(12));
  ASSERT_EQ(h.Status("high").state(), v1::DEPLOYMENT_STATE_READY);
  h.reconciler.BeginLeading({Term(2), Id('a')}, h.now);
  h.effects.clear();
  h.Run(seconds(30));
  EXPECT_EQ(h.Status("high").state(), v1::DEPLOYMENT_STATE_READY);
  EXPECT_EQ(h.Status("low").state(), v1::DEPLOYMENT_STATE_PENDING);
  EXPECT_EQ(h.Take<RefuseTransport>().size(), 0u) << "nothing failed at forming a group";
}

TEST(GangEviction, AnEqualPriorityIsNotEvictedWhateverThePlannerSays) {
  Harness h("a");
  h.rooms = {{"first", 'a'}, {"second", 'a'}};
  h.Deploy("first");
  h.Run(seconds(3));
  h.Deploy("second");
  h.view.deployments.back().set_may_evict(true);
  h.Run(seconds(30));
  EXPECT_EQ(h.Status("first").state(), v1::DEPLOYMENT_STATE_READY);
  EXPECT_EQ(h.Status("second").state(), v1::DEPLOYMENT_STATE_PENDING);
}

// "first" and "second" hold the only room; "high" was given leave to take it and "first" is ending.
class WhileAVictimEnds : public ::testing::Test {
 protected:
  WhileAVictimEnds() {
    h.rooms = {{"first", 'a'}, {"high", 'a'}};
    h.Deploy("first");
    h.Run(seconds(3));
    h.Deploy("second");
    h.Run(seconds(3));
    h.rooms["second"] = 'a';
    h.ends = false;
    h.DeployEvicting("high", 2);
    h.Run(seconds(1));
  }

  v1::Deployment& high() { return h.view.deployments.back(); }

  Harness h{"a"};
};

TEST_F(WhileAVictimEnds, AnotherPriorityEvictsNobodyElse) {
  ASSERT_EQ(h.Status("first").state(), v1::DEPLOYMENT_STATE_BACKING_OFF);
  high().set_priority(5);
  h.Run(seconds(1));
  high().set_priority(3);
  h.Run(seconds(1));
  EXPECT_EQ(h.Status("high").failure().code(), "AWAITS_ROOM");
  h.ends = true;
  h.Run(seconds(10));
  EXPECT_EQ(h.Status("second").state(), v1::DEPLOYMENT_STATE_READY);
  EXPECT_EQ(h.Status("first").state(), v1::DEPLOYMENT_STATE_PENDING) << "it waits for high";
}

TEST_F(WhileAVictimEnds, OtherOptionsEvictNobodyElse) {
  high().mutable_placement()->set_context_length(4096);
  h.Run(seconds(1));
  h.ends = true;
  h.Run(seconds(10));
  EXPECT_EQ(h.Status("second").state(), v1::DEPLOYMENT_STATE_READY);
}

TEST_F(WhileAVictimEnds, LaterOnlyAHigherPriorityOrNewLeaveEvictsAgain) {
  h.ends = true;
  h.Run(seconds(70));
  ASSERT_EQ(h.Status("high").failure().code(), "MEMORY_SHORT");
  high().set_priority(1);
  h.Run(seconds(3));
  EXPECT_EQ(h.Status("second").state(), v1::DEPLOYMENT_STATE_READY) << "it matters less now";
  high().set_priority(3);
  h.Run(seconds(3));
  EXPECT_EQ(h.Status("high").state(), v1::DEPLOYMENT_STATE_READY);
  EXPECT_EQ(h.Status("second").state(), v1::DEPLOYMENT_STATE_PENDING);
}

TEST(GangEviction, LeaveThatWasTakenBackWhileItWasPlannedEndsNobody) {
  Harness h("a");
  h.rooms = {{"low", 'a'}, {"high", 'a'}};
  h.Deploy("low");
  h.Run(seconds(3));
  h.plans = false;
  h.DeployEvicting("high", 2);
  h.Run(seconds(1));
  h.view.deployments.back().set_may_evict(false);
  v1::PlanResult late;
  late.add_evicted("low");
  h.reconciler.OnPlanned("high", late, h.now);
  h.Run(seconds(1));
  EXPECT_EQ(h.Status("low").state(), v1::DEPLOYMENT_STATE_READY);
}

}  // namespace
}  // namespace macrame::agentd
