#include "agentd/cores/gang_reconciler.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "absl/strings/str_cat.h"
#include "agentd/cores/state_table.h"
#include "proto/rank_words.h"
#include "proto/reasons.h"
#include "proto/replicas.h"
#include "tests/unit/agentd/cores/gang_harness.h"

namespace macrame::agentd {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;
using ::testing::HasSubstr;

TEST(GangReconciler, BringsADeploymentToReady) {
  Harness h("abc");
  h.Deploy("m");
  h.Run(seconds(3));
  EXPECT_EQ(h.Status("m").state(), v1::DEPLOYMENT_STATE_READY);
  EXPECT_EQ(h.Status("m").ranks_size(), 3);
  EXPECT_EQ(h.Status("m").entry_node_id(), Id('a').value());
  EXPECT_EQ(h.epochs, std::vector<uint64_t>{1001});
}

TEST(GangReconciler, NothingIsLaunchedBeforeItsRecordIsWritten) {
  Harness h("ab");
  h.writes = false;
  h.Deploy("m");
  h.Run(seconds(4));
  EXPECT_TRUE(h.epochs.empty());
  h.Run(seconds(5));
  EXPECT_EQ(h.Status("m").failure().code(), "NOT_ACKNOWLEDGED");
  h.writes = true;
  h.Run(seconds(10));
  EXPECT_EQ(h.Status("m").state(), v1::DEPLOYMENT_STATE_READY);
  EXPECT_GT(h.epochs.at(0), 1001u) << "an epoch that was written is spent";
}

TEST(GangReconciler, OneFailedRankEndsAllAndTheNextEpochFollows) {
  Harness h("abc");
  h.Deploy("m");
  h.Run(seconds(3));
  h.Take<Notify>();
  h.FindRank("m", 1)->set_phase(v1::RANK_PHASE_FAILED);
  *h.FindRank("m", 1)->mutable_failure() = MakeReason("RANK_EXITED", "out of cheese");
  h.Run(milliseconds(0));
  EXPECT_EQ(h.Take<StopRanks>().size(), 3u);
  EXPECT_THAT(h.Status("m").failure().message(), HasSubstr("out of cheese"));
  h.Run(seconds(1));
  EXPECT_EQ(h.epochs, (std::vector<uint64_t>{1001, 1002}));
  EXPECT_EQ(h.Status("m").state(), v1::DEPLOYMENT_STATE_READY);
  EXPECT_THAT(h.Status("m").failure().message(), HasSubstr("out of cheese")) << "stays visible";
}

TEST(GangReconciler, WhoWasKilledIsNamedBeforeWhoComplained) {
  Harness h("abc");
  h.Deploy("m");
  h.Run(seconds(3));
  for (uint32_t rank = 0; rank < 3; ++rank) {
    h.FindRank("m", rank)->set_phase(v1::RANK_PHASE_FAILED);
    *h.FindRank("m", rank)->mutable_failure() =
        MakeReason(rank == 2 ? "RANK_KILLED" : "CONNECT_FAILED", "rank " + std::to_string(rank));
  }
  h.Run(milliseconds(0));
  EXPECT_EQ(h.Status("m").failure().code(), "RANK_KILLED");
}

// The rank that ended is the last in the list, and its neighbours' words have the same code.
TEST(GangReconciler, WhoEndedIsNamedBeforeWhoLostTheLinkToIt) {
  for (const uint32_t ended : {0U, 1U, 2U}) {
    Harness h("abc");
    h.Deploy("m");
    h.Run(seconds(3));
    for (uint32_t rank = 0; rank < 3; ++rank) {
      h.FindRank("m", rank)->set_phase(v1::RANK_PHASE_FAILED);
      *h.FindRank("m", rank)->mutable_failure() =
          rank == ended ? MakeReason("RANK_EXITED", "a rank of 'm' exited with code 3")
                        : ReasonOf(LinkFailed("rank 2 (10.0.0.3) is gone: reset"));
    }
    h.Run(milliseconds(0));
    EXPECT_THAT(h.Status("m").failure().message(), HasSubstr("exited with code 3")) << ended;
  }
}

// Its neighbours notice at once, and what became of it comes a heartbeat later.
TEST(GangReconciler, TheRankThatEndedIsNamedWhereItsNeighboursComplainFirst) {
  for (const int late_ms : {100, 500, 900}) {
    Harness h("abc");
    h.Deploy("m");
    h.Run(seconds(3));
    h.Take<Notify>();
    for (const uint32_t rank : {0u, 1u}) {
      h.FindRank("m", rank)->set_phase(v1::RANK_PHASE_FAILED);
      *h.FindRank("m", rank)->mutable_failure() = ReasonOf(LinkFailed("rank 2 is gone: reset"));
    }
    h.Run(milliseconds(late_ms));
    EXPECT_TRUE(h.Take<Notify>().empty()) << "nothing is told that is not known";
    h.FindRank("m", 2)->set_phase(v1::RANK_PHASE_FAILED);
    *h.FindRank("m", 2)->mutable_failure() = MakeReason("RANK_KILLED", "rank 2 was killed");
    h.Run(milliseconds(100));
    const auto told = h.Take<Notify>();
    ASSERT_FALSE(told.empty());
    EXPECT_EQ(told[0].reason.code(), "RANK_KILLED");
    EXPECT_EQ(told[0].reason.node_id(), Id('c').value());
    h.Run(seconds(2));
    EXPECT_EQ(h.Status("m").failure().code(), "RANK_KILLED");
    EXPECT_EQ(h.Status("m").state(), v1::DEPLOYMENT_STATE_READY);
  }
}

TEST(GangReconciler, WhereNoRankSaysWhyTheOneThatComplainsIsNamedWithItsNode) {
  Harness h("abc");
  h.Deploy("m");
  h.Run(seconds(3));
  h.FindRank("m", 1)->set_phase(v1::RANK_PHASE_FAILED);
  *h.FindRank("m", 1)->mutable_failure() = ReasonOf(LinkFailed("rank 2 is gone: reset"));
  h.Run(milliseconds(900));
  EXPECT_EQ(h.Status("m").state(), v1::DEPLOYMENT_STATE_READY);
  h.Run(milliseconds(200));
  EXPECT_THAT(h.Status("m").failure().message(),
              HasSubstr("rank 1 on mini-b of 'm': the link to a neighbouring rank failed: rank 2"));
  EXPECT_THAT(h.Status("m").failure().remedy(), HasSubstr("'clusterctl events'"));
  h.Run(seconds(1));
  EXPECT_EQ(h.Status("m").state(), v1::DEPLOYMENT_STATE_READY) << "it waits no longer than that";
}

TEST(GangReconciler, WhenAllRanksLostALinkThereIsNothingToWaitFor) {
  Harness h("ab");
  h.Deploy("m");
  h.Run(seconds(3));
  h.Take<Notify>();
  for (v1::RankStatus& rank : h.view.ranks) {
    rank.set_phase(v1::RANK_PHASE_FAILED);
    *rank.mutable_failure() = ReasonOf(LinkFailed("reset"));
  }
  h.Run(milliseconds(0));
  EXPECT_FALSE(h.Take<Notify>().empty());
}

// The node is held for dead seconds after its ranks' neighbours lost it; its ranks don't stop.
TEST(GangReconciler, ACauseThatComesLateCorrectsWhatWasTold) {
  Harness h("abc");
  h.Deploy("m");
  h.Run(seconds(3));
  h.ends = false;
  h.FindRank("m", 0)->set_phase(v1::RANK_PHASE_FAILED);
  *h.FindRank("m", 0)->mutable_failure() = MakeReason("PEER_LOST", "rank 2 answers no more");
  h.Run(seconds(2));
  EXPECT_EQ(h.Status("m").failure().code(), "PEER_LOST");
  h.Take<Notify>();
  h.FindRank("m", 1)->set_phase(v1::RANK_PHASE_STOPPED);
  h.Run(seconds(1));
  EXPECT_EQ(h.Status("m").failure().code(), "PEER_LOST") << "that one was told to stop";
  h.Node('c').state = v1::NODE_STATE_DEAD;
  h.Run(milliseconds(100));
  EXPECT_EQ(h.Status("m").failure().code(), "GANG_LOST_NODE");
  EXPECT_EQ(h.Status("m").failure().node_id(), Id('c').value());
  const auto told = h.Take<Notify>();
  ASSERT_FALSE(told.empty());
  EXPECT_EQ(told[0].reason.code(), "GANG_LOST_NODE");
  EXPECT_EQ(told[0].epoch, 1001u);
  h.ends = true;
  h.Run(seconds(20));
  EXPECT_EQ(h.Status("m").state(), v1::DEPLOYMENT_STATE_READY);
  EXPECT_EQ(h.Status("m").failure().code(), "GANG_LOST_NODE");
}

TEST(RankWords, ALostLinkSaysWhereTheCauseIsToldAndNoRemedyOfAnotherError) {
  const absl::Status failed = LinkFailed("rank 2 (10.0.0.3) is gone: reset");
  EXPECT_EQ(ReasonOf(failed).code(), "RANK_EXITED") << "as ranks' exit codes go by";
  EXPECT_TRUE(TellsOfLink(ReasonOf(failed)));
  EXPECT_THAT(std::string(failed.message()), HasSubstr("rank 2 (10.0.0.3) is gone: reset. the"));
  EXPECT_THAT(std::string(failed.message()), HasSubstr("'clusterctl events' tells which"));
}

TEST(GangReconciler, ALostNodeIsPlannedAround) {
  Harness h("abc");
  h.Deploy("m");
  h.Run(seconds(3));
  h.Node('b').state = v1::NODE_STATE_SUSPECT;
  h.Run(seconds(1));
  EXPECT_EQ(h.Status("m").state(), v1::DEPLOYMENT_STATE_READY) << "suspect is not lost";
  h.Node('b').state = v1::NODE_STATE_DEAD;
  h.Run(seconds(1));
  EXPECT_EQ(h.Status("m").state(), v1::DEPLOYMENT_STATE_READY);
  EXPECT_EQ(h.Status("m").plan().assignments_size(), 2);
  EXPECT_EQ(h.Status("m").failure().code(), "GANG_LOST_NODE");
  h.Node('b').state = v1::NODE_STATE_ALIVE;
  h.Node('b').inventory_revision = 9;
  h.Run(seconds(100));
  EXPECT_EQ(h.epochs.size(), 2u) << "a node that comes back disturbs nothing";
}

TEST(GangReconciler, BacksOffAndStartsAnewAfterAStableMinute) {
  Harness h("a");
  h.launches = ReasonStatus(absl::StatusCode::kUnavailable, "PORT_TAKEN", "port 1 is taken", "a");
  h.Deploy("m");
  h.Run(seconds(120));
  std::vector<int> waits;
  for (size_t i = 1; i < h.launched_at.size(); ++i) {
    waits.push_back(
        static_cast<int>((h.launched_at[i] - h.launched_at[i - 1]) / milliseconds(100)));
  }
  ASSERT_GE(waits.size(), 8u);
  const std::vector<int> expected = {2, 10, 20, 40, 80, 160, 300, 300};
  for (size_t i = 0; i < expected.size(); ++i) EXPECT_NEAR(waits[i], expected[i], 2) << i;
  for (size_t i = 1; i < h.epochs.size(); ++i) EXPECT_EQ(h.epochs[i], h.epochs[i - 1] + 1);
  EXPECT_EQ(h.Status("m").failure().code(), "PORT_TAKEN");
  EXPECT_GT(h.Status("m").retry_in_ms(), 0u);
  h.launches = absl::OkStatus();
  h.Run(seconds(31 + 61));
  ASSERT_EQ(h.Status("m").state(), v1::DEPLOYMENT_STATE_READY);
  const size_t before = h.launched_at.size();
  const MonotonicTime failed_at = h.now;
  h.FindRank("m", 0)->set_phase(v1::RANK_PHASE_STOPPED);
  h.Run(seconds(2));
  ASSERT_GT(h.launched_at.size(), before);
  EXPECT_LT(h.launched_at[before] - failed_at, milliseconds(400));
}

TEST(GangReconciler, DeathsOfDifferentNodesAreNotOneCauseThatRepeats) {
  Harness h("abcdef");
  h.Deploy("m");
  h.Run(seconds(3));
  for (const char dead : {'f', 'e', 'd', 'c', 'b'}) {
    ASSERT_EQ(h.Status("m").state(), v1::DEPLOYMENT_STATE_READY);
    const size_t before = h.launched_at.size();
    const MonotonicTime died = h.now;
    h.Node(dead).state = v1::NODE_STATE_DEAD;
    std::erase_if(h.view.ranks, [&](const auto& r) { return r.node_id() == Id(dead).value(); });
    h.Run(seconds(3));
    ASSERT_GT(h.launched_at.size(), before);
    EXPECT_LT(h.launched_at[before] - died, milliseconds(700)) << dead;
  }
}

TEST(GangReconciler, ANodeWhereLaunchesFailIsLeftOutForAWhile) {
  Harness h("abc");
  h.launches =
      ReasonStatus(absl::StatusCode::kUnavailable, "STATE_DISK_FULL", "no space", Id('b').value());
  h.Deploy("m");
  h.Run(milliseconds(1600));
  const auto first = h.Take<PlanDeployment>();
  ASSERT_FALSE(first.empty());
  EXPECT_TRUE(first.front().left_out.empty());
  h.Run(seconds(10));
  const auto later = h.Take<PlanDeployment>();
  ASSERT_FALSE(later.empty());
  EXPECT_EQ(later.back().left_out, std::set<NodeId>{Id('b')});
  h.launches = absl::OkStatus();
  h.Run(seconds(200));
  ASSERT_EQ(h.Status("m").state(), v1::DEPLOYMENT_STATE_READY);
  h.Take<PlanDeployment>();
  h.view.ranks.clear();
  h.Run(seconds(3));
  const auto then = h.Take<PlanDeployment>();
  ASSERT_FALSE(then.empty());
  EXPECT_TRUE(then.back().left_out.empty()) << "two minutes later it counts again";
}

TEST(GangReconciler, PhaseLimitsNameThePhaseAndTheRank) {
  struct Case {
    v1::RankPhase phase;
    Duration limit;
    std::string code;
    std::string words;
  };
  const GangReconcilerOptions options;
  for (const Case& one :
       {Case{v1::RANK_PHASE_STAGING, options.staging_limit, "PHASE_DEADLINE", "staging"},
        Case{v1::RANK_PHASE_CONNECTING, options.connecting_limit, "PHASE_DEADLINE", "connecting"},
        Case{v1::RANK_PHASE_LOADING, options.loading_stall_limit, "PHASE_DEADLINE", "loading"},
        Case{v1::RANK_PHASE_WARMING_UP, options.warming_up_limit, "PHASE_DEADLINE",
             "warming up"}}) {
    Harness h("ab");
    h.first_phase = v1::RANK_PHASE_WARMING_UP;
    h.Deploy("m");
    h.Run(seconds(2));
    h.FindRank("m", 1)->set_phase(one.phase);
    h.Run(one.limit - seconds(1));
    EXPECT_EQ(h.epochs.size(), 1u) << one.words;
    h.Run(seconds(2));
    EXPECT_EQ(h.Status("m").failure().code(), one.code);
    EXPECT_THAT(h.Status("m").failure().message(), HasSubstr(one.words));
    if (one.phase != v1::RANK_PHASE_WARMING_UP) {
      EXPECT_THAT(h.Status("m").failure().message(), HasSubstr("rank 1 on mini-b"));
    }
  }
}

TEST(GangReconciler, SlowLoadingIsNoFailure) {
  Harness h("ab");
  h.first_phase = v1::RANK_PHASE_LOADING;
  h.Deploy("m");
  h.Run(seconds(2));
  for (int i = 1; i < 100; ++i) {
    for (v1::RankStatus& rank : h.view.ranks) rank.set_bytes_loaded(i);
    h.Run(seconds(10));
  }
  EXPECT_EQ(h.epochs.size(), 1u);
}

TEST(GangReconciler, ANewCoordinatorAdoptsARunningGang) {
  Harness h("abc");
  h.Deploy("m");
  h.Run(seconds(3));
  h.reconciler.StopLeading();
  EXPECT_TRUE(h.reconciler.Reconcile(h.view, h.now).empty());
  auto ranks = std::exchange(h.view.ranks, {});
  h.reconciler.BeginLeading({Term(2), Id('b')}, h.now);
  h.Take<Notify>();
  h.Run(seconds(1));
  h.view.ranks = ranks;  // heartbeats come a little later
  h.Run(seconds(30));
  EXPECT_EQ(h.epochs.size(), 1u);
  EXPECT_TRUE(h.Take<StopRanks>().empty());
  EXPECT_EQ(h.Status("m").state(), v1::DEPLOYMENT_STATE_READY);
}

TEST(GangReconciler, AnAdoptedGangWithoutRanksIsLaunchedAnew) {
  Harness h("abc");
  h.Deploy("m");
  h.Run(seconds(3));
  h.view.ranks.clear();
  h.reconciler.BeginLeading({Term(2), Id('b')}, h.now);
  h.Run(seconds(10));
  EXPECT_EQ(h.epochs, (std::vector<uint64_t>{1001, 2001}));
  EXPECT_EQ(h.Status("m").state(), v1::DEPLOYMENT_STATE_READY);
}

TEST(GangReconciler, TheOtherHalfsGangIsAdoptedWhenItsRecordWonTheMerge) {
  Harness h("abc");
  h.Deploy("m");
  h.Run(seconds(3));
  v1::GangRecord theirs = h.view.gangs.at(0);
  theirs.set_epoch(1005);
  theirs.mutable_plan()->mutable_assignments()->DeleteSubrange(1, 2);
  h.view.gangs = {theirs};
  v1::RankStatus rank = *h.FindRank("m", 0);
  rank.set_epoch(1005);
  h.view.ranks.push_back(rank);
  h.Run(milliseconds(100));
  EXPECT_EQ(h.Status("m").state(), v1::DEPLOYMENT_STATE_READY);
  EXPECT_EQ(h.Status("m").epoch(), 1005u);
  EXPECT_EQ(h.Status("m").ranks_size(), 1);
  EXPECT_EQ(h.epochs.size(), 1u);
  EXPECT_EQ(h.FindRank("m", 1), nullptr) << "this half's ranks are orphans now";
}

TEST(GangReconciler, OrphansAreEnded) {
  Harness h("abc");
  h.Deploy("m");
  h.Run(seconds(3));
  h.Take<Notify>();
  v1::RankStatus orphan;
  orphan.set_deployment("forgotten");
  orphan.set_epoch(7);
  orphan.set_node_id(Id('b').value());
  orphan.set_phase(v1::RANK_PHASE_READY);
  h.view.ranks.push_back(orphan);
  h.Run(milliseconds(0));
  const auto ended = h.Take<StopRanks>();
  ASSERT_EQ(ended.size(), 1u);
  EXPECT_EQ(ended[0].up_to_epoch, 7u);
  EXPECT_EQ(h.Status("m").state(), v1::DEPLOYMENT_STATE_READY);
}

TEST(GangReconciler, ARankOnANodeThatTheRecordDoesNotNameIsAnOrphan) {
  Harness h("ab");
  h.Deploy("m");
  h.Run(seconds(3));
  h.view.nodes.push_back({Id('c'), "mini-c", v1::NODE_STATE_ALIVE, 1, true, true});
  v1::RankStatus other = *h.FindRank("m", 0);  // of the half that lost: same epoch, other node
  other.set_node_id(Id('c').value());
  h.view.ranks.push_back(other);
  h.Take<Notify>();
  h.Run(seconds(1));
  const auto ended = h.Take<StopRanks>();
  ASSERT_EQ(ended.size(), 1u);
  EXPECT_EQ(ended[0].node, Id('c'));
  EXPECT_EQ(h.epochs.size(), 1u);
}

TEST(GangReconciler, WhatDoesNotFitStaysPendingWithThePlannersReason) {
  Harness h("ab");
  h.fits = false;
  h.Deploy("m");
  h.Run(seconds(3));
  EXPECT_EQ(h.Status("m").state(), v1::DEPLOYMENT_STATE_PENDING);
  EXPECT_EQ(h.Status("m").failure().code(), "MEMORY_SHORT");
  EXPECT_EQ(h.Take<PlanDeployment>().size(), 1u);
  h.Run(seconds(100));
  EXPECT_LE(h.Take<PlanDeployment>().size(), 11u) << "its rate is bounded";
  h.fits = true;
  h.Node('b').inventory_revision = 2;
  h.Run(milliseconds(500));
  EXPECT_EQ(h.Status("m").state(), v1::DEPLOYMENT_STATE_READY);
}

TEST(GangReconciler, RemovalEndsTheGangThenTheRecordAndEpochsGoOn) {
  Harness h("ab");
  h.Deploy("m");
  h.Run(seconds(3));
  h.view.deployments.clear();
  h.effects.clear();
  h.Run(seconds(2));
  EXPECT_TRUE(h.view.ranks.empty());
  EXPECT_TRUE(h.view.gangs.empty());
  EXPECT_FALSE(h.reconciler.Status("m", h.view, h.now).has_value());
  h.Deploy("m");
  h.Run(seconds(2));
  EXPECT_EQ(h.epochs, (std::vector<uint64_t>{1001, 1002})) << "no epoch is used twice";
}

// The coordinator before had removed it, and word of that comes a moment late.
TEST(GangReconciler, OneThatIsGoneInTheFirstMomentsOfALeadIsLetGoOf) {
  Harness cluster("abc");
  v1::GangRecord record;
  record.set_deployment("m");
  record.set_epoch(7);
  record.mutable_plan()->add_assignments()->set_node_id(Id('b').value());
  cluster.view.gangs.push_back(record);
  cluster.Run(milliseconds(100));
  cluster.view.gangs.clear();
  cluster.Run(milliseconds(100));
  EXPECT_FALSE(cluster.reconciler.IsEmpty()) << "so that whoever runs it goes on calling it";
  cluster.Run(seconds(10));
  EXPECT_TRUE(cluster.reconciler.IsEmpty());
}

TEST(GangReconciler, ARecordWithoutADeploymentIsRemoved) {
  Harness h("ab");
  h.Deploy("m");
  h.Run(seconds(3));
  h.view.deployments.clear();
  h.reconciler.BeginLeading({Term(2), Id('b')}, h.now);
  h.Run(seconds(5));
  EXPECT_TRUE(h.view.ranks.empty());
  EXPECT_TRUE(h.view.gangs.empty());
}

TEST(GangReconciler, AChangedDeploymentIsLaunchedAnewWithoutBackOff) {
  Harness h("ab");
  h.Deploy("m");
  h.Run(seconds(3));
  h.view.deployments[0].mutable_placement()->set_context_length(99);
  h.Run(milliseconds(200));
  EXPECT_EQ(h.epochs, (std::vector<uint64_t>{1001, 1002}));
}

TEST(GangReconciler, OneDeploymentAtATimeIsPlannedAndLaunched) {
  Harness h("ab");
  h.Deploy("m");
  h.Deploy("n");
  h.writes = false;
  h.Run(seconds(3));
  EXPECT_EQ(h.Take<PlanDeployment>().size(), 1u);
  h.writes = true;
  h.Run(seconds(20));
  EXPECT_EQ(h.Status("m").state(), v1::DEPLOYMENT_STATE_READY);
  EXPECT_EQ(h.Status("n").state(), v1::DEPLOYMENT_STATE_READY);
}

TEST(GangReconciler, TheHighestPriorityIsPlannedFirstThenWhoAskedFirst) {
  Harness h("a");
  for (const auto& [name, priority, created] :
       {std::tuple("a-late", 0, 30), {"b-early", 0, 10}, {"c-urgent", 5, 40}, {"d", -1, 1}}) {
    h.Deploy(name);
    h.view.deployments.back().set_priority(priority);
    h.view.deployments.back().set_created_unix_ms(created);
  }
  h.Run(seconds(5));
  EXPECT_EQ(h.planned, (std::vector<std::string>{"c-urgent", "b-early", "a-late", "d"}));
}

TEST(GangReconciler, AChangedPriorityOrNumberOfReplicasLaunchesNothingAnew) {
  Harness h("ab");
  h.Deploy("m");
  h.Run(seconds(3));
  h.view.deployments.back().set_priority(3);
  h.view.deployments.back().set_replicas(2);
  h.view.deployments.back().set_may_evict(true);
  h.Run(seconds(3));
  EXPECT_EQ(h.epochs, std::vector<uint64_t>{1001});
}

TEST(GangReconciler, EachReplicaIsADeploymentOfItsOwn) {
  v1::Deployment deployment;
  deployment.set_name("m");
  deployment.set_replicas(3);
  StateTable table(Id('a'));
  table.BeginLeading({Term(1), Id('a')});
  ASSERT_TRUE(table.Propose(DeploymentKey("m"), deployment.SerializeAsString()).ok());
  ClusterView view;
  FillFromState(DesiredState(table), view);
  ASSERT_EQ(view.deployments.size(), 3u);
  EXPECT_EQ(view.deployments[0].name(), "m");
  EXPECT_EQ(view.deployments[2].name(), "m#3");
  for (const v1::Deployment& replica : view.deployments) {
    EXPECT_EQ(DeploymentOfReplica(replica.name()), "m");
  }
}

TEST(GangReconciler, StateIsReadFromTheTable) {
  StateTable table(Id('a'));
  table.BeginLeading({Term(1), Id('a')});
  v1::Deployment deployment;
  deployment.set_name("m");
  v1::GangRecord record;
  record.set_deployment("gone");
  record.set_epoch(5);
  ASSERT_TRUE(table.Propose(DeploymentKey("m"), deployment.SerializeAsString()).ok());
  ASSERT_TRUE(table.Propose(DeploymentKey("bad"), "\xff\xff").ok());
  ASSERT_TRUE(table.Propose(GangKey("gone"), record.SerializeAsString()).ok());
  ASSERT_TRUE(table.Remove(GangKey("gone"), record.SerializeAsString()).ok());
  ClusterView view;
  FillFromState(DesiredState(table), view);
  ASSERT_EQ(view.deployments.size(), 1u);
  EXPECT_TRUE(view.gangs.empty());
  EXPECT_EQ(view.removed_epochs.at("gone"), 5u);
}

// A rank that can't form the group over RDMA: the ring is next, at once, and it is said why.
TEST(GangReconciler, FallsToTheNextBackendWhenAGroupCantBeFormed) {
  Harness harness("ab");
  harness.backend = "jaccl";
  harness.first_phase = v1::RANK_PHASE_CONNECTING;
  harness.Deploy("m");
  harness.Run(seconds(3));
  ASSERT_EQ(harness.epochs.size(), 1u);
  harness.effects.clear();
  v1::RankStatus* rank = harness.FindRank("m", 1);
  ASSERT_NE(rank, nullptr);
  rank->set_phase(v1::RANK_PHASE_FAILED);
  *rank->mutable_failure() = MakeReason("CONNECT_FAILED", "no protection domain");
  harness.first_phase = v1::RANK_PHASE_READY;
  const MonotonicTime failed_at = harness.now;
  harness.Run(seconds(1));
  const auto refused = harness.Take<RefuseTransport>();
  ASSERT_EQ(refused.size(), 1u);
  EXPECT_EQ(refused[0].plan.backend(), "jaccl");
  EXPECT_EQ(refused[0].why.code(), "CONNECT_FAILED");
  ASSERT_EQ(harness.epochs.size(), 2u);
  EXPECT_LT(harness.launched_at[1] - failed_at, milliseconds(300)) << "no back-off";
  const v1::DeploymentStatus status = harness.Status("m");
  EXPECT_EQ(status.state(), v1::DEPLOYMENT_STATE_READY);
  EXPECT_EQ(status.plan().backend(), "ring");
  ASSERT_EQ(status.fallbacks_size(), 1);
  EXPECT_EQ(status.fallbacks(0).code(), "TRANSPORT_FALLBACK");
  EXPECT_THAT(status.fallbacks(0).message(), HasSubstr("no protection domain"));
}

// The probes see a device go before a collective does: the gang moves, and says why.
TEST(GangReconciler, LeavesATransportThatTheProbesSayIsGone) {
  Harness harness("ab");
  harness.backend = "verbs";
  harness.Deploy("m");
  harness.Run(seconds(3));
  ASSERT_EQ(harness.Status("m").plan().backend(), "verbs");
  harness.effects.clear();
  harness.backend = "ring";
  harness.view.broken_transports["m"] =
      MakeReason("NO_IPV4_GID", "rdma_cable1 has no GID", Id('b').value());
  harness.Run(milliseconds(50));
  harness.view.broken_transports.clear();
  harness.Run(seconds(1));
  EXPECT_TRUE(harness.Take<RefuseTransport>().empty()) << "the probes remember by themselves";
  const v1::DeploymentStatus status = harness.Status("m");
  EXPECT_EQ(status.state(), v1::DEPLOYMENT_STATE_READY);
  EXPECT_EQ(status.plan().backend(), "ring");
  ASSERT_EQ(status.fallbacks_size(), 1);
  EXPECT_THAT(status.fallbacks(0).message(), HasSubstr("NO_IPV4_GID"));
}

// The coordinator that saw the fault ended before it could write of it, and its ranks are stopping.
TEST(GangReconciler, WhyABackendIsLeftIsKnownToTheNextCoordinatorToo) {
  Harness h("ab");
  h.backend = "verbs";
  h.Deploy("m");
  h.Run(seconds(3));
  h.view.broken_transports["m"] = MakeReason("NO_IPV4_GID", "rdma_cable1 has no GID");
  h.reconciler.Reconcile(h.view, h.now);
  h.view.broken_transports.clear();
  h.reconciler.StopLeading();
  h.reconciler.BeginLeading({Term(2), Id('b')}, h.now);
  v1::RankStatus* rank = h.FindRank("m", 0);
  ASSERT_NE(rank, nullptr);
  rank->set_phase(v1::RANK_PHASE_FAILED);
  *rank->mutable_failure() = MakeReason("RANK_EXITED", "rank 0 of 'm' is stopping");
  h.backend = "ring";
  for (const auto* subject : {"jaccl mesh", "verbs ring", "verbs mesh"}) {
    v1::Rejection& rejection = h.rejections.emplace_back();
    rejection.set_subject(subject);
    *rejection.mutable_reason() = MakeReason("NO_IPV4_GID", absl::StrCat(subject, " has no GID"));
  }
  h.Run(seconds(10));
  const v1::DeploymentStatus status = h.Status("m");
  EXPECT_EQ(status.state(), v1::DEPLOYMENT_STATE_READY);
  EXPECT_EQ(status.plan().backend(), "ring");
  ASSERT_EQ(status.fallbacks_size(), 1);
  EXPECT_EQ(status.fallbacks(0).code(), "TRANSPORT_FALLBACK");
  EXPECT_THAT(status.fallbacks(0).message(),
              HasSubstr("goes on without verbs: NO_IPV4_GID: verbs"));
}

TEST(GangReconciler, ABackendThatIsNotWantedAnyMoreIsNoFallback) {
  Harness h("ab");
  h.backend = "verbs";
  h.Deploy("m");
  h.Run(seconds(3));
  h.backend = "ring";  // asked for, so nothing was refused
  h.FindRank("m", 0)->set_phase(v1::RANK_PHASE_FAILED);
  h.Run(seconds(10));
  EXPECT_EQ(h.Status("m").plan().backend(), "ring");
  EXPECT_EQ(h.Status("m").fallbacks_size(), 0);
}

TEST(GangReconciler, SlicesThatAreNotTheModelAreRefusedOnceAndThatIsKept) {
  Harness harness("ab");
  harness.Deploy("m");
  harness.Run(seconds(3));
  v1::RankStatus* rank = harness.FindRank("m", 0);
  ASSERT_NE(rank, nullptr);
  rank->set_phase(v1::RANK_PHASE_FAILED);
  *rank->mutable_failure() = MakeReason("SPLIT_DIFFERS", "the 2 slices of layer 0 differ");
  harness.effects.clear();
  const MonotonicTime failed_at = harness.now;
  harness.Run(seconds(3));
  EXPECT_EQ(harness.Take<ReserveAndLaunch>().size(), 1u);
  EXPECT_LT(harness.launched_at.back() - failed_at, milliseconds(300)) << "no back-off";
  const v1::DeploymentStatus status = harness.Status("m");
  EXPECT_EQ(status.state(), v1::DEPLOYMENT_STATE_READY);
  ASSERT_EQ(status.fallbacks_size(), 1);
  EXPECT_EQ(status.fallbacks(0).code(), reasons::kUnevenRefused) << "plans from now on go by it";
  EXPECT_NE(status.fallbacks(0).message().find("the 2 slices of layer 0 differ"),
            std::string::npos);
}

TEST(GangReconciler, RanksThatAllMetAndDoNotGetOnAreStalledTogether) {
  for (const char* detail : {"rendezvous", "queue_pair"}) {
    Harness harness("ab");
    harness.backend = "ring";
    harness.first_phase = v1::RANK_PHASE_CONNECTING;
    harness.Deploy("m");
    harness.Run(seconds(3));
    for (v1::RankStatus& rank : harness.view.ranks) rank.set_phase_detail(detail);
    harness.Run(GangReconcilerOptions().connecting_limit + seconds(2));
    const v1::Reason failure = harness.Status("m").failure();
    EXPECT_EQ(failure.code(),
              detail == std::string("rendezvous") ? "PHASE_DEADLINE" : "INIT_STALLED");
    EXPECT_THAT(failure.message(), HasSubstr(detail)) << "the phase is named";
    EXPECT_GE(harness.epochs.size(), 2u) << "all are ended and launched anew";
  }
}

TEST(GangReconciler, TheNodeOfTheRankThatStalledIsNamedNotThatOfWhoSaysSo) {
  Harness h("abc");
  h.Deploy("m");
  h.Run(seconds(3));
  v1::RankStatus* teller = h.FindRank("m", 0);
  ASSERT_NE(teller, nullptr);
  const std::string stalled_node = h.FindRank("m", 2)->node_id();
  ASSERT_NE(stalled_node, teller->node_id());
  teller->set_phase(v1::RANK_PHASE_FAILED);
  *teller->mutable_failure() = MakeReason("RANK_STALLED", "rank 2 has not been heard of");
  teller->mutable_stalled()->set_rank(2);
  h.effects.clear();
  h.Run(milliseconds(100));
  const v1::Reason failure = h.Status("m").failure();
  EXPECT_EQ(failure.code(), "RANK_STALLED");
  EXPECT_EQ(failure.node_id(), stalled_node);
  const auto ended = h.Take<StopRanks>();
  ASSERT_FALSE(ended.empty());
  for (const StopRanks& end : ended) EXPECT_EQ(end.why.node_id(), stalled_node);
}

TEST(GangReconciler, AGroupThatCameUpSmallerIsAFailure) {
  Harness harness("ab");
  harness.Deploy("m");
  harness.Run(seconds(3));
  ASSERT_EQ(harness.epochs.size(), 1u);
  v1::RankStatus* rank = harness.FindRank("m", 1);
  ASSERT_NE(rank, nullptr);
  rank->set_backend(harness.backend);
  rank->set_group_size(1);
  harness.Run(seconds(2));
  EXPECT_EQ(harness.epochs.size(), 2u);
  EXPECT_EQ(harness.Status("m").failure().code(), "GROUP_MISMATCH");
}

TEST(GangReconciler, TheRankThatSaysWhyIsNamedBeforeThoseThatLostIt) {
  Harness harness("ab");
  harness.Deploy("m");
  harness.Run(seconds(3));
  for (const uint32_t number : {0u, 1u}) {
    v1::RankStatus* rank = harness.FindRank("m", number);
    ASSERT_NE(rank, nullptr);
    rank->set_phase(v1::RANK_PHASE_FAILED);
    *rank->mutable_failure() = number == 0 ? MakeReason("PEER_LOST", "rank 1 is gone")
                                           : MakeReason("PORT_DOWN", "the port went down");
  }
  harness.Run(seconds(2));
  EXPECT_EQ(harness.Status("m").failure().code(), "PORT_DOWN");
}

TEST(GangReconciler, AKilledRankOrATakenPortIsNotTheTransportsFault) {
  for (const char* code : {"RANK_KILLED", "PORT_TAKEN", "MODEL_FILES_BAD"}) {
    Harness harness("ab");
    harness.backend = "verbs";
    harness.first_phase = v1::RANK_PHASE_CONNECTING;
    harness.Deploy("m");
    harness.Run(seconds(3));
    harness.effects.clear();
    v1::RankStatus* rank = harness.FindRank("m", 1);
    ASSERT_NE(rank, nullptr);
    rank->set_phase(v1::RANK_PHASE_FAILED);
    rank->mutable_failure()->set_code(code);
    harness.Run(seconds(3));
    EXPECT_TRUE(harness.Take<RefuseTransport>().empty()) << code;
    EXPECT_EQ(harness.Status("m").plan().backend(), "verbs") << code;
  }
}

// Verbs ranks agree on what is wrong and fail together, within one report.
TEST(GangReconciler, RanksThatAllFailedAtOnceStillFallBack) {
  Harness harness("ab");
  harness.backend = "verbs";
  harness.first_phase = v1::RANK_PHASE_CONNECTING;
  harness.Deploy("m");
  harness.Run(seconds(3));
  harness.effects.clear();
  harness.first_phase = v1::RANK_PHASE_READY;
  for (v1::RankStatus& rank : harness.view.ranks) {
    rank.set_phase(v1::RANK_PHASE_FAILED);
    *rank.mutable_failure() = MakeReason("PORT_DOWN", "the port is down");
  }
  harness.Run(seconds(2));
  EXPECT_EQ(harness.Take<RefuseTransport>().size(), 1u);
  EXPECT_EQ(harness.Status("m").plan().backend(), "ring");
}

TEST(GangReconciler, ARankThatDiesWhileServingIsNotTheTransportsFault) {
  Harness harness("ab");
  harness.backend = "jaccl";
  harness.Deploy("m");
  harness.Run(seconds(3));
  harness.effects.clear();
  v1::RankStatus* rank = harness.FindRank("m", 1);
  ASSERT_NE(rank, nullptr);
  rank->set_phase(v1::RANK_PHASE_FAILED);
  harness.Run(seconds(3));
  EXPECT_TRUE(harness.Take<RefuseTransport>().empty());
  EXPECT_EQ(harness.Status("m").plan().backend(), "jaccl");
}

}  // namespace
}  // namespace macrame::agentd
