// Gangs over their lives: launched, lost, launched anew and ended, on simulated machines.

#include "agentd/gangs/gang_controller.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <random>
#include <set>

#include "agentd/cores/gang_reconciler.h"
#include "tests/sim/asked_agents.h"

namespace macrame::agentd {
namespace {

using ::testing::IsEmpty;
using ::testing::SizeIs;

class GangControllerTest : public sim::AskedAgents {
 protected:
  std::optional<v1::DeploymentStatus> Status(int at, const std::string& name) {
    return parts(at).gang_controller.Status(name);
  }
  // Machines that hold ranks of it.
  std::set<int> Holders(const std::string& name, int nodes) {
    std::set<int> holders;
    for (int at = 0; at < nodes; ++at) {
      if (sim().RanksOn(at, name) > 0) holders.insert(at);
    }
    return holders;
  }
  bool RunUntilReadyAfter(const std::string& name, uint64_t epoch, int limit_ms = 30'000) {
    return RunUntil([&] { return sim().IsReady(name) && sim().EpochOf(name) > epoch; }, limit_ms);
  }
};

TEST_F(GangControllerTest, WhereNothingIsWantedNothingRunsAndNothingIsDone) {
  Begin(2);
  sim().RunFor(1000);
  for (int at = 0; at < 2; ++at) {
    EXPECT_THAT(parts(at).gang_controller.Statuses(), IsEmpty());
    EXPECT_FALSE(Status(at, "m0").has_value());
    EXPECT_TRUE(parts(at).gang_controller.IsIdle()) << at;
  }
  LoadAndWait("m1");
  EXPECT_FALSE(parts(Leader()).gang_controller.IsIdle());
  sim().Unload(Leader(), "m1");
  ASSERT_TRUE(RunUntil([&] { return parts(Leader()).gang_controller.IsIdle(); }, 20'000));
  EXPECT_THAT(parts(Leader()).gang_controller.Statuses(), IsEmpty());
}

TEST_F(GangControllerTest, ARankThatDiesIsToldAndTheGangIsLaunchedAnewAsAWhole) {
  Begin(3);
  LoadAndWait("m0");
  uint64_t epoch = sim().EpochOf("m0");
  for (int death = 0; death < 5; ++death) {
    // One of all that it tells of, those that have ended among them.
    while (sim().RanksOn(death % 3, "m0") > 0) sim().KillRank(death % 3);
    ASSERT_TRUE(RunUntilReadyAfter("m0", epoch)) << "death " << death;
    EXPECT_GT(sim().EpochOf("m0"), epoch);
    epoch = sim().EpochOf("m0");
    EXPECT_THAT(Holders("m0", 3), SizeIs(3)) << "no rank of an older gang is left beside it";
    const auto status = Status(Leader(), "m0");
    ASSERT_TRUE(status.has_value());
    EXPECT_EQ(status->state(), v1::DEPLOYMENT_STATE_READY);
    EXPECT_EQ(status->failure().code(), "RANK_KILLED") << "why stays visible";
    EXPECT_EQ(status->entry_node_id(), status->plan().assignments(0).node_id());
    for (const v1::RankStatus& rank : status->ranks()) {
      if (rank.epoch() == epoch) {
        EXPECT_EQ(rank.phase(), v1::RANK_PHASE_READY);
      }
    }
    sim().RunFor(5000);
  }
}

TEST_F(GangControllerTest, AModelMovesOffADeadNodeAndStaysWhereItIsWhenThatIsBack) {
  Begin(3);
  LoadAndWait("m1");
  const uint64_t epoch = sim().EpochOf("m1");
  int dead = -1;
  for (const int holder : Holders("m1", 3)) {
    if (holder != Leader()) dead = holder;
  }
  ASSERT_GE(dead, 0);
  sim().Crash(dead);
  ASSERT_TRUE(RunUntilReadyAfter("m1", epoch, 60'000));
  EXPECT_FALSE(Holders("m1", 3).contains(dead));
  const uint64_t moved = sim().EpochOf("m1");
  const std::set<int> holders = Holders("m1", 3);
  sim().Start(dead);
  sim().RunFor(15'000);
  EXPECT_EQ(sim().EpochOf("m1"), moved) << "nothing is moved back by itself";
  EXPECT_EQ(Holders("m1", 3), holders);
}

TEST_F(GangControllerTest, TheNextCoordinatorLeavesAGangThatServesAlone) {
  Begin(3);
  LoadAndWait("m1");
  const uint64_t epoch = sim().EpochOf("m1");
  const int leader = Leader();
  if (Holders("m1", 3).contains(leader)) {
    // It holds a rank: cut off it would take the gang along, so it hands over in order.
    sim().Pause(leader);
    sim().RunFor(900);
    sim().Resume(leader);
  } else {
    sim().Crash(leader);
  }
  ASSERT_TRUE(RunUntil([&] { return Leader() >= 0 && sim().IsReady("m1"); }, 20'000));
  sim().RunFor(5000);
  EXPECT_EQ(sim().EpochOf("m1"), epoch);
}

TEST_F(GangControllerTest, AModelThatIsLoadedAgainHasAHigherEpoch) {
  Begin(2);
  uint64_t epoch = 0;
  for (int round = 0; round < 3; ++round) {
    LoadAndWait("m1");
    EXPECT_GT(sim().EpochOf("m1"), epoch) << "ranks of the last one could be taken for its own";
    epoch = sim().EpochOf("m1");
    sim().Unload(Follower(), "m1");
    ASSERT_TRUE(RunUntil([&] { return Holders("m1", 2).empty(); }, 20'000));
    ASSERT_TRUE(RunUntil([&] { return desired(Leader()).FindGang("m1") == nullptr; }, 20'000));
  }
}

TEST_F(GangControllerTest, WhatHappensToOneModelIsNothingToAnother) {
  Begin(3);
  LoadAndWait("m0");
  LoadAndWait("m1");
  const uint64_t other = sim().EpochOf("m0");
  v1::UnloadModelRequest unload;
  unload.set_name("m1");
  ASSERT_TRUE(Ask(Follower(), kUnloadModel, unload).ok());
  LoadAndWait("m1");
  sim().RunFor(3000);
  EXPECT_EQ(sim().EpochOf("m0"), other);
  EXPECT_THAT(parts(Leader()).gang_controller.InForce(), SizeIs(2));
}

TEST_F(GangControllerTest, EachChangeOfStateIsToldOnceByWhoLeads) {
  Begin(3);
  std::vector<std::string> news;
  for (int at = 0; at < 3; ++at) {
    parts(at).gang_controller.SetOnNews([&news, at](const Notify& one) {
      news.push_back(std::to_string(at) + " " + one.deployment + " " +
                     v1::DeploymentState_Name(one.state) + " " + std::to_string(one.epoch));
    });
  }
  LoadAndWait("m1");
  sim().RunFor(5000);
  const std::string ready = std::to_string(Leader()) + " m1 DEPLOYMENT_STATE_READY " +
                            std::to_string(sim().EpochOf("m1"));
  EXPECT_EQ(std::count(news.begin(), news.end(), ready), 1) << ::testing::PrintToString(news);
  for (const std::string& one : news) {
    EXPECT_EQ(one.substr(0, 1), std::to_string(Leader())) << one;
  }
}

TEST_F(GangControllerTest, WhatWasLearntOfTheSpeedIsForgottenByOrderOfAnyNode) {
  Begin(2);
  for (const int at : LeaderAndFollower()) {
    EXPECT_TRUE(Ask(at, kForgetSpeeds, v1::ForgetSpeedsRequest()).ok());
  }
  absl::Status refused;
  parts(Follower()).gang_controller.ForgetSpeeds([&](const absl::Status& status) {
    refused = status;
  });
  EXPECT_FALSE(refused.ok()) << "who does not lead changes nothing";
}

// Ranks die at any time, nodes come and go: in the end each model that is wanted serves, once, and
// what is unloaded has no rank anywhere.
TEST_F(GangControllerTest, WhateverDiesWhatIsWantedServesInTheEnd) {
  for (uint32_t seed = 1; seed <= 6; ++seed) {
    SCOPED_TRACE(seed);
    Begin(3, [&](sim::SimOptions& options) { options.seed = 100 + seed; });
    std::mt19937 dice(seed);
    LoadAndWait("m1");
    uint64_t epoch = sim().EpochOf("m1");
    for (int step = 0; step < 12; ++step) {
      const int at = static_cast<int>(dice() % 3);
      switch (dice() % 4) {
        case 0:
          if (sim().machine(at).up()) sim().Crash(at);
          sim().RunFor(500);
          if (!sim().machine(at).up()) sim().Start(at);
          break;
        case 1:
          if (sim().machine(at).up() && !sim().machine(at).paused()) {
            sim().Pause(at);
            sim().RunFor(static_cast<int>(dice() % 1500));
            sim().Resume(at);
          }
          break;
        default:
          sim().KillRank(at);
      }
      sim().RunFor(static_cast<int>(dice() % 4000));
    }
    ASSERT_TRUE(RunUntil([&] { return Leader() >= 0 && sim().IsReady("m1"); }, 90'000));
    EXPECT_GE(sim().EpochOf("m1"), epoch) << "epochs never fall";
    EXPECT_THAT(Holders("m1", 3), SizeIs(2));
    sim().Unload(Leader(), "m1");
    ASSERT_TRUE(RunUntil([&] { return Holders("m1", 3).empty(); }, 30'000));
    sim().RunFor(5000);
    EXPECT_THAT(Holders("m1", 3), IsEmpty());
    EXPECT_EQ(sim().violation(), "");
  }
}

}  // namespace
}  // namespace macrame::agentd
