// Gangs leave a node that is about to stop, and their answers are not cut off.

#include <algorithm>

#include "tests/unit/agentd/cores/gang_harness.h"

namespace macrame::agentd {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

// m is ready on a, b and c; then c is told to stop.
class GangDrain : public ::testing::Test {
 protected:
  GangDrain() {
    h_.Deploy("m");
    h_.Run(seconds(5));
    first_ = h_.Status("m").epoch();
    h_.effects.clear();
  }

  void SetRunning(uint32_t requests) {
    for (v1::RankStatus& rank : h_.view.ranks) {
      if (rank.epoch() == first_ && rank.rank() == 0) rank.set_requests_running(requests);
    }
  }
  void TellToStop() { h_.Node('c').draining = true; }
  size_t RanksOf(uint64_t epoch) const {
    return static_cast<size_t>(
        std::count_if(h_.view.ranks.begin(), h_.view.ranks.end(),
                      [&](const v1::RankStatus& rank) { return rank.epoch() == epoch; }));
  }
  bool IsOnC(const std::string& name) {
    const v1::Plan plan = h_.Status(name).plan();
    return std::any_of(plan.assignments().begin(), plan.assignments().end(),
                       [](const auto& one) { return one.node_id() == Id('c').value(); });
  }

  Harness h_{"abc"};
  uint64_t first_ = 0;
};

TEST_F(GangDrain, TheNextGangIsLaunchedBesideTheOneThatStillAnswers) {
  ASSERT_EQ(RanksOf(first_), 3u);
  SetRunning(8);
  TellToStop();
  h_.Run(seconds(2));
  const uint64_t second = h_.Status("m").epoch();
  EXPECT_GT(second, first_);
  EXPECT_EQ(h_.Status("m").state(), v1::DEPLOYMENT_STATE_READY);
  EXPECT_EQ(h_.Status("m").failure().code(), "NODE_LEFT") << "why it moved";
  EXPECT_EQ(h_.Status("m").failure().node_id(), Id('c').value());
  EXPECT_FALSE(IsOnC("m"));
  h_.Run(seconds(15));
  EXPECT_EQ(RanksOf(first_), 3u) << "its answers go on";
  EXPECT_EQ(h_.Status("m").epoch(), second) << "moved once";
  SetRunning(0);
  h_.Run(milliseconds(2000));
  EXPECT_EQ(RanksOf(first_), 3u) << "a request may be on its way to it";
  h_.Run(milliseconds(1000));
  EXPECT_EQ(RanksOf(first_), 0u);
  EXPECT_EQ(RanksOf(second), 2u);
}

TEST_F(GangDrain, AnIdleGangIsEndedWhenNoRequestCanBeOnItsWayToItAnyMore) {
  TellToStop();
  h_.Run(milliseconds(2000));
  EXPECT_GT(h_.Status("m").epoch(), first_);
  EXPECT_EQ(RanksOf(first_), 3u);
  h_.Run(milliseconds(1500));
  EXPECT_EQ(RanksOf(first_), 0u);
}

TEST_F(GangDrain, ANodeThatIsAnotherTenantsIsLeft) {
  SetRunning(8);
  h_.Node('c').tenant = "acme";
  h_.Run(seconds(2));
  EXPECT_GT(h_.Status("m").epoch(), first_);
  EXPECT_FALSE(IsOnC("m"));
  EXPECT_EQ(h_.Status("m").state(), v1::DEPLOYMENT_STATE_READY);
  EXPECT_NE(h_.Status("m").failure().message().find("mini-c, which is dedicated to another tenant"),
            std::string::npos)
      << h_.Status("m").failure().message();
  EXPECT_EQ(h_.Status("m").failure().message().find("acme"), std::string::npos);
  EXPECT_EQ(RanksOf(first_), 3u) << "its answers go on";
}

TEST_F(GangDrain, ANodeThatIsAnotherTenantsIsLeftWhereNothingElseIsThere) {
  for (const char node : std::string("abc")) h_.Node(node).tenant = "acme";
  h_.Run(seconds(2));
  EXPECT_NE(h_.Status("m").failure().message().find("dedicated to another tenant"),
            std::string::npos)
      << h_.Status("m").failure().message();
  h_.Run(seconds(8));
  EXPECT_EQ(h_.Status("m").state(), v1::DEPLOYMENT_STATE_PENDING);
  EXPECT_EQ(RanksOf(first_), 0u);
}

TEST_F(GangDrain, TheTenantsOwnModelsStay) {
  v1::Deployment own = h_.view.deployments.at(0);
  own.mutable_placement()->set_tenant("acme");
  h_.view.deployments = {own};
  h_.Run(seconds(10));
  const uint64_t epoch = h_.Status("m").epoch();
  for (const char node : std::string("abc")) h_.Node(node).tenant = "acme";
  h_.Run(seconds(10));
  EXPECT_EQ(h_.Status("m").epoch(), epoch);
  EXPECT_EQ(h_.Status("m").state(), v1::DEPLOYMENT_STATE_READY);
}

TEST_F(GangDrain, AnswersHaveALimit) {
  SetRunning(1);
  TellToStop();
  h_.Run(GangReconcilerOptions().drain_limit - seconds(1));
  EXPECT_EQ(RanksOf(first_), 3u);
  h_.Run(seconds(3));
  EXPECT_EQ(RanksOf(first_), 0u);
}

TEST_F(GangDrain, WhatHasNoRoomBesideItselfIsPlannedWhenItsAnswersAreFinished) {
  SetRunning(3);
  h_.fits = false;
  TellToStop();
  h_.Run(seconds(10));
  EXPECT_EQ(RanksOf(first_), 3u) << "its answers go on";
  ASSERT_EQ(h_.view.gangs.size(), 1u);
  EXPECT_EQ(h_.view.gangs[0].entry_node_id(), "") << "requests wait";
  EXPECT_EQ(h_.Status("m").state(), v1::DEPLOYMENT_STATE_PENDING);
  EXPECT_EQ(h_.Status("m").failure().code(), "MEMORY_SHORT");
  EXPECT_NE(h_.Status("m").failure().message().find("mini-c, which is about to stop"),
            std::string::npos)
      << h_.Status("m").failure().message();
  const size_t planned = h_.planned.size();
  h_.Run(seconds(5));
  EXPECT_EQ(h_.planned.size(), planned) << "in vain while it holds its memory";
  SetRunning(0);
  h_.Run(seconds(3));
  EXPECT_EQ(RanksOf(first_), 0u);
  h_.fits = true;
  h_.Run(seconds(2));
  EXPECT_EQ(h_.Status("m").state(), v1::DEPLOYMENT_STATE_READY);
  EXPECT_FALSE(IsOnC("m"));
}

TEST_F(GangDrain, WhatDoesNotFitWithoutTheNodeIsPlannedWhenItIsBack) {
  h_.fits = false;
  TellToStop();
  h_.Run(seconds(5));
  EXPECT_EQ(RanksOf(first_), 0u);
  h_.Node('c').state = v1::NODE_STATE_LEFT;
  h_.Run(seconds(5));
  EXPECT_EQ(h_.Status("m").state(), v1::DEPLOYMENT_STATE_PENDING);
  h_.Node('c').state = v1::NODE_STATE_ALIVE;
  h_.Node('c').draining = false;
  h_.fits = true;
  h_.Run(seconds(2));
  EXPECT_EQ(h_.Status("m").state(), v1::DEPLOYMENT_STATE_READY);
  EXPECT_TRUE(IsOnC("m"));
}

TEST_F(GangDrain, ALaunchThatFailsLeavesTheAnswersUnderWayAlone) {
  SetRunning(2);
  h_.launches = ReasonStatus(absl::StatusCode::kResourceExhausted, "MEMORY_SHORT", "no room",
                             Id('a').value());
  TellToStop();
  h_.Run(seconds(10));
  EXPECT_EQ(RanksOf(first_), 3u);
  SetRunning(0);
  h_.launches = absl::OkStatus();
  h_.Run(seconds(8));
  EXPECT_EQ(RanksOf(first_), 0u);
  EXPECT_EQ(h_.Status("m").state(), v1::DEPLOYMENT_STATE_READY);
}

TEST_F(GangDrain, AReplacementThatFailsIsEndedWhileAnswersGoOn) {
  SetRunning(2);
  TellToStop();
  h_.Run(seconds(2));
  const uint64_t second = h_.Status("m").epoch();
  ASSERT_EQ(RanksOf(second), 2u);
  for (v1::RankStatus& rank : h_.view.ranks) {
    if (rank.epoch() != second || rank.rank() != 0) continue;
    rank.set_phase(v1::RANK_PHASE_FAILED);
    *rank.mutable_failure() = MakeReason("RANK_KILLED", "out of memory", rank.node_id());
  }
  h_.Run(milliseconds(500));
  EXPECT_EQ(RanksOf(second), 0u) << "its other rank holds no memory any more";
  EXPECT_EQ(RanksOf(first_), 3u) << "the answers of the first go on";
  SetRunning(0);
  h_.Run(seconds(10));
  EXPECT_EQ(RanksOf(first_), 0u);
  EXPECT_EQ(h_.Status("m").state(), v1::DEPLOYMENT_STATE_READY);
}

TEST_F(GangDrain, ANodeThatIsAllThereIsKeepsItsGang) {
  for (NodeView& node : h_.view.nodes) node.draining = true;
  h_.Run(seconds(10));
  EXPECT_EQ(RanksOf(first_), 3u);
  EXPECT_EQ(h_.Status("m").epoch(), first_);
  EXPECT_EQ(h_.Status("m").state(), v1::DEPLOYMENT_STATE_READY);
}

TEST_F(GangDrain, ADrainByOrderGivesAnswersTheTimeThatItNames) {
  SetRunning(1);
  h_.Node('c').cordoned = h_.Node('c').draining = true;
  h_.Node('c').answers_have = seconds(4);
  h_.Run(seconds(3));
  EXPECT_EQ(RanksOf(first_), 3u);
  EXPECT_NE(h_.Status("m").failure().message().find("was drained"), std::string::npos)
      << h_.Status("m").failure().message();
  h_.Run(seconds(5));
  EXPECT_EQ(RanksOf(first_), 0u);
  EXPECT_FALSE(IsOnC("m"));
  EXPECT_EQ(h_.Status("m").state(), v1::DEPLOYMENT_STATE_READY);
}

TEST_F(GangDrain, WhatRunsOnACordonedNodeStaysThere) {
  h_.Node('c').cordoned = true;
  h_.Run(seconds(10));
  EXPECT_EQ(h_.Status("m").epoch(), first_);
  EXPECT_TRUE(IsOnC("m"));
}

TEST_F(GangDrain, RemovingItEndsEverythingAtOnce) {
  SetRunning(2);
  TellToStop();
  h_.Run(seconds(2));
  h_.view.deployments.clear();
  h_.Run(seconds(1));
  EXPECT_TRUE(h_.view.ranks.empty());
}

TEST_F(GangDrain, ANewCoordinatorGoesOnWithTheMove) {
  SetRunning(2);
  TellToStop();
  h_.reconciler.StopLeading();
  h_.reconciler.BeginLeading({Term(2), Id('b')}, h_.now);
  h_.Run(seconds(5));
  EXPECT_GT(h_.Status("m").epoch(), first_);
  EXPECT_EQ(RanksOf(first_), 3u);
  h_.reconciler.StopLeading();
  h_.reconciler.BeginLeading({Term(3), Id('a')}, h_.now);
  h_.Run(seconds(5));
  EXPECT_EQ(RanksOf(first_), 3u) << "answers go on under another one, too";
  SetRunning(0);
  h_.Run(seconds(4));
  EXPECT_EQ(RanksOf(first_), 0u);
}

TEST(GangDrainStart, WhatIsBeingBroughtUpOnTheNodeBeginsAnewElsewhere) {
  Harness h("abc");
  h.first_phase = v1::RANK_PHASE_LOADING;
  h.Deploy("m");
  h.Run(seconds(3));
  ASSERT_EQ(h.epochs.size(), 1u);
  h.Node('c').draining = true;
  h.first_phase = v1::RANK_PHASE_READY;
  h.Run(seconds(2));
  ASSERT_EQ(h.epochs.size(), 2u);
  EXPECT_EQ(h.Status("m").state(), v1::DEPLOYMENT_STATE_READY);
  EXPECT_EQ(h.Status("m").plan().assignments_size(), 2);
}

}  // namespace
}  // namespace macrame::agentd
