#include "agentd/services/load_watches.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <set>

#include "proto/replicas.h"
#include "tests/sim/asked_agents.h"

namespace macrame::agentd {
namespace {

using sim::CodeOf;
using ::testing::HasSubstr;

class LoadWatchesTest : public sim::AskedAgents {
 protected:
  static v1::LoadModelRequest LoadOf(const std::string& model, uint32_t timeout_ms = 60'000) {
    v1::LoadModelRequest request;
    request.set_name_or_path(model);
    request.set_timeout_ms(timeout_ms);
    request.mutable_placement()->set_world_size(1);
    return request;
  }
};

TEST_F(LoadWatchesTest, WhoWaitsIsToldOfChangesAloneAndTheLastIsReady) {
  Begin(3);
  for (const int at : LeaderAndFollower()) {
    v1::LoadModelRequest request = LoadOf("m1");
    request.set_deployment_name(at == Leader() ? "one" : "other");
    request.mutable_placement()->set_world_size(2);
    const auto asked = Start(at, kLoadModel, request);
    ASSERT_TRUE(Wait(asked).ok()) << *asked->end;
    std::string before;
    uint64_t epoch = 0;
    for (const v1::LoadModelProgress& progress : asked->messages) {
      EXPECT_NE(progress.SerializeAsString(), before) << "nothing changed";
      before = progress.SerializeAsString();
      EXPECT_GE(progress.status().epoch(), epoch);
      epoch = progress.status().epoch();
      EXPECT_EQ(progress.resolved_name(), "m1");
      EXPECT_EQ(progress.status().deployment().name(), request.deployment_name());
    }
    EXPECT_EQ(asked->messages.back().status().state(), v1::DEPLOYMENT_STATE_READY);
    EXPECT_EQ(asked->messages.back().plan().assignments_size(), 2);
    for (size_t at_message = 0; at_message + 1 < asked->messages.size(); ++at_message) {
      EXPECT_NE(asked->messages[at_message].status().state(), v1::DEPLOYMENT_STATE_READY);
    }
  }
}

TEST_F(LoadWatchesTest, AllReplicasAreWaitedFor) {
  Begin(3);
  v1::LoadModelRequest request = LoadOf("m1");
  request.set_replicas(3);
  const auto asked = Start(Follower(), kLoadModel, request);
  ASSERT_TRUE(RunUntil([&] { return sim().IsReady("m1") || asked->end.has_value(); }, 20'000));
  ASSERT_TRUE(Wait(asked).ok()) << *asked->end;
  for (uint32_t index = 0; index < 3; ++index) {
    EXPECT_TRUE(sim().IsReady(ReplicaName("m1", index))) << index;
  }
}

// The cluster goes on trying; who waits need not.
TEST_F(LoadWatchesTest, AfterSomeFailedLaunchesTheReasonIsToldAndTheLoadGoesOn) {
  Begin(2);
  sim().SetRoom(0);
  const auto asked = Start(Follower(), kLoadModel, LoadOf("m1"));
  const auto ended = Wait(asked);
  ASSERT_FALSE(ended.ok());
  EXPECT_EQ(CodeOf(ended), reasons::kMemoryShort) << ended.status();
  EXPECT_GE(asked->messages.back().status().attempts(), kAttemptsUntilTold);
  sim().SetRoom(1);
  EXPECT_TRUE(RunUntil([&] { return sim().IsReady("m1"); }, 60'000));
}

TEST_F(LoadWatchesTest, AtTheLimitTheLastFailureIsToldAndTheLoadGoesOn) {
  Begin(2);
  sim().SetRoom(0);
  const auto ended = Ask(Follower(), kLoadModel, LoadOf("m1", 250));
  EXPECT_TRUE(absl::IsDeadlineExceeded(ended.status())) << ended.status();
  EXPECT_THAT(std::string(ended.status().message()), HasSubstr("m1 is not ready yet"));
  EXPECT_THAT(std::string(ended.status().message()), HasSubstr("the load goes on"));
  EXPECT_NE(desired(Leader()).FindDeployment("m1"), nullptr);
  sim().SetRoom(1);
  EXPECT_TRUE(RunUntil([&] { return sim().IsReady("m1"); }, 60'000));
}

TEST_F(LoadWatchesTest, SoManyWaitAndNoMoreAndAllAreAnswered) {
  Begin(2);
  std::vector<sim::AskedPtr<v1::LoadModelProgress>> all;
  for (size_t load = 0; load < kLoadWatchesMax + 8; ++load) {
    all.push_back(Start(Leader(), kLoadModel, LoadOf("m1")));
  }
  size_t ready = 0, refused = 0;
  for (const auto& asked : all) {
    const auto ended = Wait(asked);
    ready += ended.ok();
    refused += absl::IsResourceExhausted(ended.status());
    EXPECT_TRUE(asked->end.has_value()) << "it hangs";
  }
  EXPECT_EQ(ready + refused, all.size());
  EXPECT_GE(ready, kLoadWatchesMax);
  EXPECT_TRUE(parts(Leader()).gang_controller.Status("m1").has_value());
  EXPECT_TRUE(Ask(Leader(), kLoadModel, LoadOf("m1")).ok()) << "there is room again";
}

// A gang that was ready before a load changed what is wanted is not what is waited for.
TEST_F(LoadWatchesTest, TheGangFromBeforeIsNotTakenForTheNewOne) {
  Begin(3);
  ASSERT_TRUE(Ask(Leader(), kLoadModel, LoadOf("m1")).ok());
  const uint64_t before = sim().EpochOf("m1");
  v1::LoadModelRequest wider = LoadOf("m1");
  wider.mutable_placement()->set_world_size(2);
  const auto asked = Start(Follower(), kLoadModel, wider);
  const auto ended = Wait(asked);
  ASSERT_TRUE(ended.ok()) << ended.status();
  EXPECT_GT(ended->status().epoch(), before);
  EXPECT_EQ(ended->plan().assignments_size(), 2);
}

TEST_F(LoadWatchesTest, WhoWaitsIsToldWhenTheCoordinatorLeadsNoMore) {
  Begin(3);
  sim().SetRoom(0);
  const int leader = Leader();
  const auto here = Start(leader, kLoadModel, LoadOf("m1"));
  ASSERT_TRUE(RunUntil([&] { return !here->messages.empty(); }, 5000));
  sim().Isolate(leader, true);
  const auto ended = Wait(here, 20'000);
  EXPECT_TRUE(here->end.has_value()) << "the caller hangs";
  EXPECT_EQ(CodeOf(ended), reasons::kNoCoordinator) << ended.status();
  sim().Isolate(leader, false);
  sim().RunFor(10'000);
}

}  // namespace
}  // namespace macrame::agentd
