// Gangs that lost nodes go back to the ranks that were asked for, and faults of a model's own files
// are not tried again.

#include <algorithm>

#include "tests/unit/agentd/cores/gang_harness.h"

namespace macrame::agentd {
namespace {

using std::chrono::minutes;
using std::chrono::seconds;

// m was asked for with 3 ranks; c died and came back: it is served by two.
class GangRestore : public ::testing::Test {
 protected:
  GangRestore() {
    h_.Deploy("m");
    h_.view.deployments.back().mutable_placement()->set_world_size(3);
    h_.Run(seconds(5));
    EXPECT_EQ(Ranks(), 3);
    EXPECT_FALSE(h_.Status("m").has_degraded());
    h_.Node('c').state = v1::NODE_STATE_DEAD;
    h_.Node('c').orderable = false;
    std::erase_if(h_.view.ranks,
                  [](const v1::RankStatus& rank) { return rank.node_id() == Id('c').value(); });
    h_.Run(seconds(10));
    EXPECT_EQ(h_.Status("m").state(), v1::DEPLOYMENT_STATE_READY);
    EXPECT_EQ(Ranks(), 2);
    short_ = h_.Status("m").epoch();
    h_.effects.clear();
  }

  int Ranks() { return h_.Status("m").plan().assignments_size(); }
  void BringBack() {
    h_.Node('c').state = v1::NODE_STATE_ALIVE;
    h_.Node('c').orderable = true;
  }
  void SetRunning(uint32_t requests) {
    for (v1::RankStatus& rank : h_.view.ranks) {
      if (rank.epoch() == short_) rank.set_requests_running(requests);
    }
  }
  std::string Degraded() { return h_.Status("m").degraded().message(); }

  Harness h_{"abc"};
  uint64_t short_ = 0;
};

TEST_F(GangRestore, WhatServesLessThanWasAskedForSaysBothFigures) {
  EXPECT_EQ(h_.Status("m").degraded().code(), "TOO_FEW_NODES");
  EXPECT_NE(Degraded().find("by 2 ranks, 3 were asked for"), std::string::npos) << Degraded();
  EXPECT_NE(Degraded().find("2 nodes can be used"), std::string::npos) << Degraded();
  EXPECT_NE(h_.Status("m").degraded().remedy().find("--ranks 2"), std::string::npos);
  // Who does not lead knows it of the record.
  EXPECT_NE(DegradedBy(h_.view.deployments[0], h_.view.gangs[0].plan()).message().find("3 were"),
            std::string::npos);
}

TEST_F(GangRestore, AnIdleGangGoesBackOnceTheNodesStayed) {
  BringBack();
  h_.Run(seconds(25));
  EXPECT_EQ(Ranks(), 2) << "it may be gone again in a moment";
  EXPECT_NE(Degraded().find("goes back to 3"), std::string::npos) << Degraded();
  h_.Run(seconds(10));
  EXPECT_EQ(Ranks(), 3);
  EXPECT_EQ(h_.Status("m").state(), v1::DEPLOYMENT_STATE_READY);
  EXPECT_FALSE(h_.Status("m").has_degraded());
  const auto plans = h_.Take<PlanDeployment>();
  ASSERT_EQ(plans.size(), 1u);
  EXPECT_TRUE(plans[0].restores);
  const uint64_t restored = h_.Status("m").epoch();
  h_.Run(minutes(10));
  EXPECT_EQ(h_.Status("m").epoch(), restored) << "once";
}

// c is alive, but no rank there comes up.
TEST_F(GangRestore, WhatFailsWithTheNodeComesBackWithoutIt) {
  BringBack();
  h_.first_phase = v1::RANK_PHASE_CONNECTING;
  size_t launches = 0;
  seconds down{};
  for (int second = 0; second < 600; ++second) {
    h_.Run(seconds(1));
    const bool has_c = Ranks() == 3;
    for (v1::RankStatus& rank : h_.view.ranks) {
      if (rank.phase() != v1::RANK_PHASE_CONNECTING) continue;
      if (!has_c) rank.set_phase(v1::RANK_PHASE_READY);
      if (!has_c || rank.node_id() != Id('c').value()) continue;
      rank.set_phase(v1::RANK_PHASE_FAILED);
      *rank.mutable_failure() =
          MakeReason("CONNECT_FAILED", "its data port is filtered", rank.node_id());
    }
    down += seconds(h_.Status("m").state() != v1::DEPLOYMENT_STATE_READY);
    launches += h_.Take<ReserveAndLaunch>().size();
  }
  EXPECT_EQ(h_.Status("m").state(), v1::DEPLOYMENT_STATE_READY);
  EXPECT_EQ(Ranks(), 2);
  EXPECT_GE(launches, 2u) << "it was tried";
  EXPECT_LE(launches, 6u);
  EXPECT_LT(down, seconds(40));
}

TEST_F(GangRestore, AGangThatServesIsNeverEndedForIt) {
  SetRunning(1);
  BringBack();
  h_.Run(minutes(20));
  EXPECT_EQ(Ranks(), 2);
  EXPECT_EQ(h_.Status("m").epoch(), short_);
  EXPECT_TRUE(h_.Take<StopRanks>().empty());
  EXPECT_TRUE(h_.Take<PlanDeployment>().empty());
  SetRunning(0);
  h_.Run(seconds(9));
  EXPECT_EQ(h_.Status("m").epoch(), short_) << "the next request may come at once";
  h_.Run(seconds(4));
  EXPECT_EQ(Ranks(), 3);
}

TEST_F(GangRestore, ShortAnswersThatNoLookSeesKeepIt) {
  BringBack();
  for (int i = 0; i < 20; ++i) {
    h_.Run(seconds(9));
    for (v1::RankStatus& rank : h_.view.ranks) {
      if (rank.rank() == 0) rank.set_tokens_generated_total(rank.tokens_generated_total() + 1);
    }
  }
  EXPECT_EQ(h_.Status("m").epoch(), short_);
  h_.Run(seconds(13));
  EXPECT_EQ(Ranks(), 3);
}

TEST_F(GangRestore, ARequestThatCameMeanwhileKeepsIt) {
  BringBack();
  h_.plans = false;
  h_.Run(seconds(31));
  ASSERT_FALSE(h_.Take<PlanDeployment>().empty());
  SetRunning(1);
  v1::PlanResult result;
  for (const char node : {'a', 'b', 'c'}) {
    result.mutable_plan()->add_assignments()->set_node_id(Id(node).value());
  }
  h_.reconciler.OnPlanned("m", result, h_.now);
  h_.Run(seconds(2));
  EXPECT_EQ(h_.Status("m").epoch(), short_);
  EXPECT_EQ(h_.Status("m").state(), v1::DEPLOYMENT_STATE_READY);
  EXPECT_TRUE(h_.Take<StopRanks>().empty());
}

TEST_F(GangRestore, WithoutRoomBesideItselfItEndsOnceAndThenSaysWhyItStays) {
  BringBack();
  h_.fits = false;
  h_.Run(seconds(32));
  EXPECT_NE(h_.Status("m").state(), v1::DEPLOYMENT_STATE_READY) << "stopped by preemption";
  h_.Node('c').state = v1::NODE_STATE_DEAD;  // and it comes back with two all the same
  h_.fits = true;
  h_.Run(seconds(12));
  ASSERT_EQ(h_.Status("m").state(), v1::DEPLOYMENT_STATE_READY);
  ASSERT_EQ(Ranks(), 2);
  const uint64_t again = h_.Status("m").epoch();
  BringBack();
  h_.fits = false;
  h_.Run(minutes(12));
  EXPECT_EQ(h_.Status("m").epoch(), again) << "not a second time for the same nodes";
  EXPECT_EQ(h_.Status("m").state(), v1::DEPLOYMENT_STATE_READY);
  EXPECT_NE(Degraded().find("7 GiB short"), std::string::npos) << Degraded();
}

TEST(GangGivesUp, AFaultOfTheModelsFilesIsLaunchedOnceAndSaidUntilItIsLoadedAgain) {
  Harness h("ab");
  h.first_phase = v1::RANK_PHASE_STAGING;
  h.Deploy("m");
  h.Run(seconds(3));
  ASSERT_EQ(h.epochs.size(), 1u);
  for (v1::RankStatus& rank : h.view.ranks) {
    rank.set_phase(v1::RANK_PHASE_FAILED);
    *rank.mutable_failure() = MakeReason("TOKENIZER_INVALID", "no such pre-tokenizer");
  }
  h.Run(minutes(15));
  EXPECT_EQ(h.epochs.size(), 1u) << "time does not heal it";
  const v1::DeploymentStatus status = h.Status("m");
  EXPECT_EQ(status.state(), v1::DEPLOYMENT_STATE_PENDING);
  EXPECT_EQ(status.failure().code(), "TOKENIZER_INVALID");
  EXPECT_NE(status.failure().remedy().find("model load m"), std::string::npos);
  EXPECT_EQ(status.retry_in_ms(), 0u);
  EXPECT_EQ(h.view.gangs[0].entry_node_id(), "");
  // Nor by the next coordinator.
  h.reconciler.BeginLeading({Term(2), Id('a')}, h.now);
  h.Run(minutes(2));
  EXPECT_EQ(h.epochs.size(), 1u);
  EXPECT_EQ(h.Status("m").failure().code(), "TOKENIZER_INVALID");
  // Loaded again.
  h.first_phase = v1::RANK_PHASE_READY;
  h.view.deployments[0].set_created_unix_ms(7);
  h.Run(seconds(5));
  EXPECT_EQ(h.Status("m").state(), v1::DEPLOYMENT_STATE_READY);
}

void FailFiles(Harness& h, char node, const char* code = "TOKENIZER_INVALID") {
  for (v1::RankStatus& rank : h.view.ranks) {
    rank.set_phase(rank.node_id() == Id(node).value() ? v1::RANK_PHASE_FAILED
                                                      : v1::RANK_PHASE_STOPPED);
    if (rank.phase() != v1::RANK_PHASE_FAILED) continue;
    *rank.mutable_failure() = MakeReason(code, "no such pre-tokenizer");
  }
}

TEST(GangGivesUp, WhatIsBrokenOnOneNodeIsTriedOnTheOthers) {
  for (const char* code : {"TOKENIZER_INVALID", "DEVICE_DIFFERS"}) {
    Harness h("abc");
    h.first_phase = v1::RANK_PHASE_STAGING;
    h.Deploy("m");
    h.Run(seconds(3));
    FailFiles(h, 'a', code);
    h.first_phase = v1::RANK_PHASE_READY;
    h.Run(seconds(5));
    EXPECT_EQ(h.epochs.size(), 2u);
    const v1::DeploymentStatus status = h.Status("m");
    ASSERT_EQ(status.state(), v1::DEPLOYMENT_STATE_READY);
    for (const v1::Assignment& assignment : h.view.gangs[0].plan().assignments()) {
      EXPECT_NE(assignment.node_id(), Id('a').value());
    }
    ASSERT_EQ(status.fallbacks_size(), 1);
    EXPECT_EQ(status.fallbacks(0).code(), "NODE_FILES_UNUSABLE");
    EXPECT_NE(status.fallbacks(0).message().find("mini-a"), std::string::npos);
    EXPECT_NE(status.fallbacks(0).message().find(code), std::string::npos);
  }
}

TEST(GangGivesUp, TwoNodesWithTheSameFaultSayItOfTheModel) {
  Harness h("abc");
  h.first_phase = v1::RANK_PHASE_STAGING;
  h.Deploy("m");
  h.Run(seconds(3));
  FailFiles(h, 'a');
  h.Run(seconds(3));
  ASSERT_EQ(h.epochs.size(), 2u);
  FailFiles(h, 'b');
  h.Run(minutes(15));
  EXPECT_EQ(h.epochs.size(), 2u);
  EXPECT_EQ(h.Status("m").failure().code(), "TOKENIZER_INVALID");
  EXPECT_EQ(h.Status("m").state(), v1::DEPLOYMENT_STATE_PENDING);
}

TEST(GangGivesUp, WithNoOtherNodeThatHasTheFilesItIsTheModelsFault) {
  Harness h("ab");
  h.rooms["m"] = 'a';  // planned there or nowhere
  h.first_phase = v1::RANK_PHASE_STAGING;
  h.Deploy("m");
  h.Run(seconds(3));
  ASSERT_EQ(h.epochs.size(), 1u);
  FailFiles(h, 'a');
  h.rooms.clear();
  h.fits = false;  // b never has the memory
  h.Run(minutes(2));
  EXPECT_EQ(h.epochs.size(), 1u);
  EXPECT_EQ(h.Status("m").failure().code(), "TOKENIZER_INVALID");
  EXPECT_NE(h.Status("m").failure().remedy().find("model load m"), std::string::npos);
}

TEST(GangGivesUp, WhatServedBeforeIsBroughtBackWhereverThatWorks) {
  Harness h("ab");
  h.Deploy("m");
  h.Run(seconds(5));
  ASSERT_EQ(h.Status("m").state(), v1::DEPLOYMENT_STATE_READY);
  for (v1::RankStatus& rank : h.view.ranks) {
    rank.set_phase(v1::RANK_PHASE_FAILED);
    *rank.mutable_failure() = MakeReason("TOKENIZER_INVALID", "no such pre-tokenizer");
  }
  h.Run(seconds(10));
  EXPECT_EQ(h.Status("m").state(), v1::DEPLOYMENT_STATE_READY);
}

TEST(GangGivesUp, ARefusalIsSaidOnce) {
  Harness h("ab");
  h.fits = false;
  h.Deploy("m");
  h.Run(minutes(2));
  EXPECT_GT(h.planned.size(), 5u) << "memory may become free";
  const auto told = h.Take<Notify>();
  EXPECT_EQ(std::count_if(told.begin(), told.end(),
                          [](const Notify& one) { return one.reason.code() == "MEMORY_SHORT"; }),
            1);
}

}  // namespace
}  // namespace macrame::agentd
