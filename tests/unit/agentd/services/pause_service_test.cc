#include "agentd/services/pause_service.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "absl/strings/str_cat.h"
#include "tests/sim/asked_agents.h"

namespace macrame::agentd {
namespace {

using sim::CodeOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

class PauseServiceTest : public sim::AskedAgents {
 protected:
  absl::StatusOr<v1::PauseClusterResponse> Order(int at, v1::PauseOrder order) {
    v1::PauseClusterRequest request;
    request.set_order(order);
    return Ask(at, kPauseCluster, request);
  }
  int RanksOf(const std::string& model, int nodes) {
    int ranks = 0;
    for (int at = 0; at < nodes; ++at) ranks += sim().RanksOn(at, model);
    return ranks;
  }
};

TEST_F(PauseServiceTest, AStoppedClusterHasNoRanksAndLoadsThemAgainWhenItIsStarted) {
  Begin(3);
  LoadAndWait("m0");
  const auto stopped = Order(Follower(), v1::PAUSE_ORDER_STOP);
  ASSERT_TRUE(stopped.ok()) << stopped.status();
  EXPECT_TRUE(stopped->changed());
  EXPECT_TRUE(stopped->pause().stopped());
  EXPECT_THAT(stopped->models(), ElementsAre("m0"));
  EXPECT_TRUE(RunUntil([&] { return RanksOf("m0", 3) == 0; }, 10'000));
  sim().RunFor(10'000);
  EXPECT_EQ(RanksOf("m0", 3), 0) << "nothing is launched while it is stopped";
  const auto started = Order(Follower(), v1::PAUSE_ORDER_START);
  ASSERT_TRUE(started.ok()) << started.status();
  EXPECT_TRUE(started->changed());
  EXPECT_FALSE(started->has_pause());
  EXPECT_THAT(started->models(), ElementsAre("m0"));
  EXPECT_TRUE(RunUntil([&] { return sim().IsReady("m0"); }, 10'000));
  EXPECT_THAT(desired(Leader()).stopped(), IsEmpty());
}

TEST_F(PauseServiceTest, ADrainedClusterKeepsItsRanks) {
  Begin(2);
  LoadAndWait("m1");
  const uint64_t epoch = sim().EpochOf("m1");
  const auto drained = Order(Follower(), v1::PAUSE_ORDER_DRAIN);
  ASSERT_TRUE(drained.ok());
  EXPECT_FALSE(drained->pause().stopped());
  sim().RunFor(5000);
  EXPECT_EQ(sim().EpochOf("m1"), epoch);
  for (int at = 0; at < 2; ++at) EXPECT_NE(desired(at).pause(), nullptr) << at;
  ASSERT_TRUE(Order(Leader(), v1::PAUSE_ORDER_START).ok());
  sim().RunFor(2000);
  for (int at = 0; at < 2; ++at) EXPECT_EQ(desired(at).pause(), nullptr) << at;
  EXPECT_EQ(sim().EpochOf("m1"), epoch);
}

TEST_F(PauseServiceTest, ARepeatedOrderChangesNothingAndSaysTheSame) {
  Begin(2);
  LoadAndWait("m1");
  const auto first = Order(Leader(), v1::PAUSE_ORDER_STOP);
  sim().RunFor(5000);
  const auto again = Order(Leader(), v1::PAUSE_ORDER_STOP);
  ASSERT_TRUE(first.ok() && again.ok());
  EXPECT_FALSE(again->changed());
  EXPECT_EQ(again->pause().since_unix_ms(), first->pause().since_unix_ms());
  EXPECT_THAT(again->models(), ElementsAre("m1"));
  // One that is stopped is not opened a bit by an order to drain.
  const auto drained = Order(Leader(), v1::PAUSE_ORDER_DRAIN);
  ASSERT_TRUE(drained.ok());
  EXPECT_TRUE(drained->pause().stopped());
  EXPECT_TRUE(Order(Leader(), v1::PAUSE_ORDER_START)->changed());
  EXPECT_FALSE(Order(Leader(), v1::PAUSE_ORDER_START)->changed());
}

TEST_F(PauseServiceTest, WhatIsNoOrderIsRefused) {
  Begin(2);
  for (const int at : LeaderAndFollower()) {
    const auto refused = Order(at, v1::PAUSE_ORDER_UNSPECIFIED);
    EXPECT_EQ(refused.status().code(), absl::StatusCode::kInvalidArgument);
    EXPECT_EQ(CodeOf(refused), reasons::kBadRequest);
  }
  EXPECT_EQ(desired(Leader()).pause(), nullptr);
}

// A load would bring ranks up in a cluster that somebody stopped, maybe to open the machines.
TEST_F(PauseServiceTest, NothingIsLoadedWhileItIsStopped) {
  Begin(2);
  ASSERT_TRUE(Order(Leader(), v1::PAUSE_ORDER_STOP).ok());
  v1::LoadModelRequest request;
  request.set_name_or_path("m1");
  for (const int at : LeaderAndFollower()) {
    const auto refused = Ask(at, kLoadModel, request);
    EXPECT_EQ(CodeOf(refused), reasons::kClusterPaused);
    EXPECT_THAT(ReasonOf(refused.status()).remedy(), HasSubstr("cluster start"));
  }
  EXPECT_THAT(desired(Leader()).deployments(), IsEmpty());
}

// What is unloaded while it is stopped does not come back.
TEST_F(PauseServiceTest, AModelIsForgottenWhileItIsStopped) {
  Begin(2);
  LoadAndWait("m1");
  ASSERT_TRUE(Order(Leader(), v1::PAUSE_ORDER_STOP).ok());
  v1::UnloadModelRequest unload;
  unload.set_name("m1");
  ASSERT_TRUE(Ask(Follower(), kUnloadModel, unload).ok());
  const auto started = Order(Leader(), v1::PAUSE_ORDER_START);
  ASSERT_TRUE(started.ok());
  EXPECT_THAT(started->models(), IsEmpty());
  sim().RunFor(5000);
  EXPECT_EQ(RanksOf("m1", 2), 0);
  EXPECT_EQ(CodeOf(Ask(Follower(), kUnloadModel, unload)), reasons::kModelNotLoaded);
}

TEST_F(PauseServiceTest, ItStaysStoppedWhenTheCoordinatorDiesAndWhenAllStartAgain) {
  Begin(3);
  LoadAndWait("m1");
  ASSERT_TRUE(Order(Leader(), v1::PAUSE_ORDER_STOP).ok());
  const int gone = Leader();
  sim().Crash(gone);
  sim().RunFor(8000);
  ASSERT_NE(Leader(), -1);
  EXPECT_TRUE(desired(Leader()).pause()->stopped());
  for (int at = 0; at < 3; ++at) sim().Crash(at);
  sim().StartAll();
  sim().RunFor(10'000);
  EXPECT_EQ(RanksOf("m1", 3), 0);
  const auto started = Order(Follower(), v1::PAUSE_ORDER_START);
  ASSERT_TRUE(started.ok()) << started.status();
  EXPECT_THAT(started->models(), ElementsAre("m1"));
  EXPECT_TRUE(RunUntil([&] { return sim().IsReady("m1"); }, 10'000));
}

// The order is on its way when its coordinator dies: a model is loaded, or it is remembered, in the
// end; none is lost.
TEST_F(PauseServiceTest, NoModelIsLostWhenTheCoordinatorDiesInTheMiddle) {
  for (int after_ms = 0; after_ms <= 12; after_ms += 2) {
    Begin(3);
    LoadAndWait("m1");
    const int leader = Leader();
    v1::PauseClusterRequest request;
    request.set_order(v1::PAUSE_ORDER_STOP);
    const auto asked = Start(Follower(), kPauseCluster, request);
    sim().RunFor(after_ms);
    sim().Crash(leader);
    sim().RunFor(12'000);
    ASSERT_NE(Leader(), -1);
    const DesiredState& state = desired(Leader());
    const bool is_loaded = state.FindDeployment("m1") != nullptr;
    EXPECT_NE(is_loaded, state.stopped().contains("m1")) << "after " << after_ms << " ms";
    RunUntil([&] { return asked->end.has_value(); }, 25'000);
    EXPECT_TRUE(asked->end.has_value()) << "whoever asked is told something";
    if (asked->end.has_value() && asked->end->ok()) {
      EXPECT_TRUE(state.pause() != nullptr && state.pause()->stopped());
    }
  }
}

TEST_F(PauseServiceTest, WithoutAMajorityItSaysSo) {
  Begin(3, [](auto& options) { options.consistency = Consistency::kQuorum; });
  const int left = Follower();
  for (int other = 0; other < 3; ++other) {
    if (other != left) sim().Crash(other);
  }
  sim().RunFor(4000);
  EXPECT_EQ(CodeOf(Order(left, v1::PAUSE_ORDER_STOP)), reasons::kNoCoordinator);
  EXPECT_EQ(desired(left).pause(), nullptr);
}

}  // namespace
}  // namespace macrame::agentd
