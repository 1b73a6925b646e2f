#include "agentd/services/model_demand.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>
#include <optional>

#include "absl/strings/str_cat.h"
#include "tests/sim/asked_agents.h"

namespace macrame::agentd {
namespace {

using ::testing::HasSubstr;

// A request as the gateway hands it on, and how it ended.
struct Request {
  std::shared_ptr<GenerateCall> call;
  std::optional<absl::Status> end;
  std::string Code() const {
    return !end.has_value() ? "waits" : end->ok() ? "" : ReasonOf(*end).code();
  }
};

class ModelDemandTest : public sim::AskedAgents {
 protected:
  void BeginWith(int nodes, const std::function<void(Config&)>& configure) {
    Begin(nodes, [&](sim::SimOptions& options) { options.configure = configure; });
    sim().RunFor(3000);
  }
  static void LoadsOnRequest(Config& config) { config.gateway_load_on_request = true; }

  std::shared_ptr<Request> Generate(int at, const std::string& model) {
    auto request = std::make_shared<Request>();
    v1::GenerateRequest asked;
    asked.set_deployment(model);
    request->call = parts(at).demand.StartGenerate(
        asked, [](const v1::GenerateChunk&) {},
        [request](const absl::Status& status) {
          EXPECT_FALSE(request->end.has_value()) << "told twice";
          request->end = status;
        });
    return request;
  }
  bool Ends(const std::shared_ptr<Request>& request, int limit_ms) {
    return RunUntil([&] { return request->end.has_value(); }, limit_ms);
  }
  bool IsWanted(const std::string& model) {
    return desired(Leader()).FindDeployment(model) != nullptr;
  }
  void ChangeProfile(const std::string& model,
                     const std::function<void(v1::ModelProfile&)>& change) {
    v1::ChangeProfileRequest request;
    request.mutable_set()->set_model(model);
    change(*request.mutable_set());
    ASSERT_TRUE(Ask(Leader(), kChangeProfile, request).ok());
  }
};

TEST_F(ModelDemandTest, UnlessItIsSetARequestLoadsNothing) {
  BeginWith(2, [](Config&) {});
  const auto request = Generate(Follower(), "m1");
  ASSERT_TRUE(Ends(request, 5000));
  EXPECT_EQ(request->Code(), reasons::kModelNotLoaded);
  EXPECT_FALSE(IsWanted("m1"));
}

// Simulated ranks answer nothing; that the request reached one shows that it waited for the model.
TEST_F(ModelDemandTest, ARequestLoadsItsModelAndIsAnsweredThen) {
  BeginWith(2, LoadsOnRequest);
  for (const int at : LeaderAndFollower()) {
    const std::string model = at == Leader() ? "m0" : "m1";
    const auto request = Generate(at, model);
    const auto second = Generate(at, model);
    sim().RunFor(50);
    EXPECT_EQ(request->Code(), "waits");
    ASSERT_TRUE(Ends(request, 20'000)) << model;
    ASSERT_TRUE(Ends(second, 1000)) << model;
    EXPECT_TRUE(sim().IsReady(model));
    EXPECT_THAT(std::string(request->end->message()), HasSubstr("simulated"));
  }
}

TEST_F(ModelDemandTest, AModelThatNobodyHasIsNotWaitedFor) {
  BeginWith(2, LoadsOnRequest);
  const auto request = Generate(Follower(), "m9");
  ASSERT_TRUE(Ends(request, 1000));
  EXPECT_EQ(request->Code(), reasons::kModelNotLoaded);
}

// It can't be loaded: whoever waits is told why, and the next one at once, for a while.
TEST_F(ModelDemandTest, WhatCantBeLoadedIsNotTriedAgainAtOnce) {
  BeginWith(2, LoadsOnRequest);
  v1::PauseClusterRequest stop;
  stop.set_order(v1::PAUSE_ORDER_STOP);
  ASSERT_TRUE(Ask(Leader(), kPauseCluster, stop).ok());
  const int at = Leader();
  const auto first = Generate(at, "m1");
  ASSERT_TRUE(Ends(first, 10'000));
  EXPECT_EQ(first->Code(), reasons::kClusterPaused) << *first->end;
  stop.set_order(v1::PAUSE_ORDER_START);
  ASSERT_TRUE(Ask(Leader(), kPauseCluster, stop).ok());
  const auto later = Generate(at, "m1");
  ASSERT_TRUE(Ends(later, 35'000));
  sim().RunFor(static_cast<int>(
      std::chrono::duration_cast<std::chrono::milliseconds>(kFailedLoadPause).count()));
  const auto again = Generate(at, "m1");
  ASSERT_TRUE(Ends(again, 20'000));
  EXPECT_TRUE(sim().IsReady("m1"));
}

TEST_F(ModelDemandTest, WhoGoesAwayWaitsNoMore) {
  BeginWith(2, LoadsOnRequest);
  const auto request = Generate(Follower(), "m1");
  sim().RunFor(100);
  ASSERT_EQ(request->Code(), "waits");
  request->call->Cancel();
  ASSERT_TRUE(Ends(request, 100));
  EXPECT_EQ(request->end->code(), absl::StatusCode::kCancelled);
}

TEST_F(ModelDemandTest, WhoWaitsIsToldWhenTheAgentStops) {
  BeginWith(2, LoadsOnRequest);
  const auto request = Generate(Follower(), "m1");
  sim().RunFor(100);
  parts(Follower())
      .demand.EndAll(
          ReasonStatus(absl::StatusCode::kUnavailable, reasons::kNodeLeft, "this agent stops"));
  EXPECT_EQ(request->Code(), reasons::kNodeLeft);
}

// --- models that nobody asks for -----------------------------------------------------------------

class IdleModelsTest : public ModelDemandTest {
 protected:
  static void UnloadsIdle(Config& config) { config.model_idle_unload_s = 60; }
};

TEST_F(IdleModelsTest, AModelThatNobodyUsesGoesAfterItsTime) {
  BeginWith(2, UnloadsIdle);
  LoadAndWait("m1");
  sim().RunFor(50'000);
  EXPECT_TRUE(sim().IsReady("m1"));
  EXPECT_TRUE(RunUntil([&] { return !IsWanted("m1"); }, 30'000));
}

TEST_F(IdleModelsTest, OneThatIsUsedStays) {
  BeginWith(2, UnloadsIdle);
  LoadAndWait("m1");
  for (int minute = 0; minute < 3; ++minute) {
    for (int at = 0; at < 2; ++at) sim().KeepBusy(at, 5000);
    sim().RunFor(50'000);
  }
  EXPECT_TRUE(sim().IsReady("m1"));
}

TEST_F(IdleModelsTest, AProfileSaysForHowLong) {
  BeginWith(2, UnloadsIdle);
  ChangeProfile("m0", [](auto& profile) { profile.set_pinned(true); });
  ChangeProfile("m1", [](auto& profile) { profile.set_idle_unload_s(20); });
  LoadAndWait("m1");
  sim().SetRoom(2);
  LoadAndWait("m0");
  EXPECT_TRUE(RunUntil([&] { return !IsWanted("m1"); }, 40'000)) << "sooner than others";
  sim().RunFor(120'000);
  EXPECT_TRUE(sim().IsReady("m0")) << "pinned";
}

// Of a cluster that takes no requests, what nobody asks for says nothing.
TEST_F(IdleModelsTest, ADrainedClusterUnloadsNothing) {
  BeginWith(2, UnloadsIdle);
  LoadAndWait("m1");
  v1::PauseClusterRequest drain;
  drain.set_order(v1::PAUSE_ORDER_DRAIN);
  ASSERT_TRUE(Ask(Leader(), kPauseCluster, drain).ok());
  sim().RunFor(150'000);
  EXPECT_TRUE(sim().IsReady("m1"));
  drain.set_order(v1::PAUSE_ORDER_START);
  ASSERT_TRUE(Ask(Leader(), kPauseCluster, drain).ok());
  sim().RunFor(50'000);
  EXPECT_TRUE(sim().IsReady("m1")) << "its time begins anew";
}

}  // namespace
}  // namespace macrame::agentd
