#include "agentd/cores/idle_models.h"

#include <gtest/gtest.h>

namespace macrame::agentd {
namespace {

using std::chrono::minutes;

MonotonicTime At(int minute) { return MonotonicTime() + minutes(minute); }

v1::DeploymentStatus Ready(const std::string& name, uint64_t tokens = 0) {
  v1::DeploymentStatus status;
  status.mutable_deployment()->set_name(name);
  status.set_state(v1::DEPLOYMENT_STATE_READY);
  status.set_epoch(1);
  status.add_ranks()->set_tokens_generated_total(tokens);
  return status;
}

using Names = std::vector<std::string>;

TEST(IdleModels, WhatNobodyAsksForIsIdleAfterTheLimit) {
  IdleModels idle(minutes(30));
  EXPECT_EQ(idle.Look({Ready("chat")}, At(0)), Names());
  EXPECT_EQ(idle.Look({Ready("chat")}, At(29)), Names());
  EXPECT_EQ(idle.Look({Ready("chat")}, At(30)), Names{"chat"});
  EXPECT_EQ(idle.Look({Ready("chat")}, At(31)), Names{"chat"}) << "until it is gone";
}

TEST(IdleModels, RequestsTokensEmbeddingsAndLaunchesAreUse) {
  IdleModels idle(minutes(10));
  v1::DeploymentStatus chat = Ready("chat");
  const auto expect_used_at = [&](int minute, const char* how) {
    EXPECT_EQ(idle.Look({chat}, At(minute)), Names()) << how;
  };
  expect_used_at(0, "first seen");
  chat.mutable_ranks(0)->set_tokens_generated_total(1);
  expect_used_at(10, "a token");
  chat.mutable_ranks(0)->set_requests_queued(1);
  expect_used_at(20, "a request that waits");
  expect_used_at(40, "and goes on to wait");
  chat.mutable_ranks(0)->set_requests_queued(0);
  expect_used_at(49, "not long enough ago");
  auto* queue = chat.mutable_ranks(0)->mutable_timings()->mutable_queue_us();
  queue->add_buckets(3);
  queue->add_counts(1);
  expect_used_at(50, "an embedding begun and ended between two looks");
  chat.set_epoch(2);
  expect_used_at(60, "launched anew");
  chat.set_state(v1::DEPLOYMENT_STATE_LAUNCHING);
  expect_used_at(75, "not ready");
  chat.set_state(v1::DEPLOYMENT_STATE_READY);
  expect_used_at(84, "ready for a short time");
  EXPECT_EQ(idle.Look({chat}, At(85)), Names{"chat"});
}

TEST(IdleModels, TheLeastRecentlyUsedComesFirstWhateverTheLimit) {
  for (const Duration limit : {Duration(0), Duration(minutes(30))}) {
    IdleModels idle(limit);
    v1::DeploymentStatus kept = Ready("kept", 1);
    kept.mutable_deployment()->set_priority(1);
    idle.Look({Ready("chat", 1), Ready("code", 1), Ready("draw", 1), kept}, At(0));
    idle.Look({Ready("chat", 2), Ready("code", 1), Ready("draw", 1), kept}, At(3));
    idle.Look({Ready("chat", 2), Ready("code", 1), Ready("draw", 2), kept}, At(4));
    EXPECT_EQ(idle.LeastRecentlyUsed(At(8), minutes(5)), (Names{"code", "chat"}));
    EXPECT_EQ(idle.LeastRecentlyUsed(At(9), minutes(5)), (Names{"code", "chat", "draw"}));
    idle.Forget();
    EXPECT_EQ(idle.LeastRecentlyUsed(At(99), minutes(5)), Names());
  }
}

TEST(IdleModels, AProfileSaysHowLongAModelStays) {
  IdleModels::Profiles profiles;
  profiles["brief"].set_idle_unload_s(300);
  profiles["patient"].set_idle_unload_s(0);
  profiles["pinned"].set_pinned(true);
  profiles["pinned"].set_idle_unload_s(60);
  const std::vector<v1::DeploymentStatus> all = {Ready("brief"), Ready("other"), Ready("patient"),
                                                 Ready("pinned")};
  IdleModels idle(minutes(30));
  EXPECT_EQ(idle.Look(all, At(0), profiles), Names());
  EXPECT_EQ(idle.Look(all, At(4), profiles), Names());
  EXPECT_EQ(idle.Look(all, At(5), profiles), Names{"brief"});
  EXPECT_EQ(idle.Look(all, At(600), profiles), (Names{"brief", "other"}));
  // What is asked for takes the place of all but the one that is pinned.
  EXPECT_EQ(idle.LeastRecentlyUsed(At(600), minutes(1)), (Names{"brief", "other", "patient"}));
  IdleModels never(Duration(0));
  never.Look(all, At(0), profiles);
  EXPECT_EQ(never.Look(all, At(600), profiles), Names{"brief"}) << "without a limit of the node's";
}

TEST(IdleModels, OneIsIdleAndTheOtherIsNot) {
  IdleModels idle(minutes(10));
  idle.Look({Ready("chat", 1), Ready("code", 1)}, At(0));
  EXPECT_EQ(idle.Look({Ready("chat", 1), Ready("code", 2)}, At(10)), Names{"chat"});
}

TEST(IdleModels, ReplicasAreIdleTogether) {
  IdleModels idle(minutes(10));
  idle.Look({Ready("chat", 1), Ready("chat#2", 1)}, At(0));
  EXPECT_EQ(idle.Look({Ready("chat", 1), Ready("chat#2", 9)}, At(10)), Names())
      << "one of them answered";
  EXPECT_EQ(idle.Look({Ready("chat", 1), Ready("chat#2", 9)}, At(20)), Names{"chat"})
      << "told once, by the name that unloads both";
}

TEST(IdleModels, ACoordinatorGoesByWhatItSawItself) {
  IdleModels idle(minutes(10));
  idle.Look({Ready("chat")}, At(0));
  idle.Forget();
  EXPECT_EQ(idle.Look({Ready("chat")}, At(60)), Names());
  EXPECT_EQ(idle.Look({}, At(65)), Names());
  EXPECT_EQ(idle.Look({Ready("chat")}, At(80)), Names()) << "unloaded and loaded again";
}

TEST(IdleModels, WithoutALimitNothingIsIdle) {
  IdleModels idle(Duration(0));
  idle.Look({Ready("chat")}, At(0));
  EXPECT_EQ(idle.Look({Ready("chat")}, At(1'000'000)), Names());
}

}  // namespace
}  // namespace macrame::agentd
