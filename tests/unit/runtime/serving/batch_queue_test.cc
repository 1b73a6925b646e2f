// The batch scheduler's rules of requests that wait: for how long, and what they are told.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/unit/runtime/serving/scheduled_gang.h"

namespace macrame::runtime::engine {
namespace {

using ::testing::IsEmpty;

TEST(BatchQueue, WhoseTurnDoesNotComeInTimeLeavesTheQueue) {
  BatchTraits traits = Traits();
  traits.sequences_max = 1;
  ScheduledGang shell(traits);
  shell.Add(Spec(1, Prompt(10, 1), 1000));
  shell.Step();
  const MonotonicTime limit = shell.now + std::chrono::seconds(2);
  for (const RequestId id : {2, 3}) {
    RequestSpec waits = Spec(id, Prompt(10, static_cast<int32_t>(id)));
    waits.start_by = limit;
    shell.Add(std::move(waits));
  }
  shell.Add(Spec(4, Prompt(10, 4)));  // has no limit
  while (shell.now < limit) {
    EXPECT_THAT(shell.core.Expire(shell.now).ended, IsEmpty());
    ASSERT_FALSE(shell.Step().segments.empty());
  }
  shell.Take(shell.core.Expire(shell.now));
  shell.core.CheckInvariants();
  for (const RequestId id : {2, 3}) {
    EXPECT_EQ(shell.ended.at(id).reason, EndReason::kExpired);
    EXPECT_GE(shell.ended.at(id).usage.queued, std::chrono::seconds(2));
    EXPECT_EQ(shell.ended.at(id).usage.new_tokens, 0u);
  }
  EXPECT_EQ(shell.core.waiting(), 1u);
  shell.RunUntilEnded(4);
}

// The limit is for the first step: what was preempted later goes on, however late it is.
TEST(BatchQueue, WhoHasStartedDoesNotExpire) {
  BatchTraits traits = Traits();
  traits.blocks_total = 12;
  traits.context_length = 256;
  traits.sequences_max = 2;
  ScheduledGang shell(traits);
  for (const RequestId id : {1, 2}) {
    RequestSpec spec = Spec(id, Prompt(60, static_cast<int32_t>(id)), 190);
    spec.start_by = shell.now + std::chrono::milliseconds(500);
    shell.Add(std::move(spec));
  }
  while (shell.preempted.empty()) ASSERT_FALSE(shell.Step().segments.empty());
  shell.now += std::chrono::seconds(10);
  EXPECT_THAT(shell.core.Expire(shell.now).ended, IsEmpty());
  EXPECT_TRUE(shell.core.StandingOf(shell.preempted[0])->is_queued);
  for (const RequestId id : {1, 2}) shell.RunUntilEnded(id);
  for (const RequestId id : {1, 2}) EXPECT_EQ(shell.ended.at(id).usage.new_tokens, 190u);
}

TEST(BatchQueue, TellsHowFarAPromptIs) {
  BatchTraits traits = Traits();
  traits.sequences_max = 1;
  ScheduledGang shell(traits);
  shell.Add(Spec(1, Prompt(2000, 1)));
  shell.Add(Spec(2, Prompt(10, 2)));
  EXPECT_EQ(shell.core.StandingOf(1), (PromptStanding{true, 2000, 0, 0}));
  uint32_t before = 0;
  for (int steps = 0; shell.core.StandingOf(1).has_value(); ++steps) {
    ASSERT_LT(steps, 1000);
    ASSERT_FALSE(shell.Step().segments.empty());
    const auto standing = shell.core.StandingOf(1);
    if (!standing.has_value()) break;
    EXPECT_FALSE(standing->is_queued);
    EXPECT_GT(standing->computed_tokens, before);
    EXPECT_LE(standing->computed_tokens, 2000u);
    before = standing->computed_tokens;
    EXPECT_TRUE(shell.core.StandingOf(2)->is_queued);
  }
  EXPECT_GT(before, 1000u);
  shell.RunUntilEnded(1);
  EXPECT_EQ(shell.core.StandingOf(1), std::nullopt);
  // What is in the cache is told as computed.
  shell.RunUntilEnded(2);
  shell.Add(Spec(3, Prompt(2000, 1)));
  shell.Step();
  const auto cached = shell.core.StandingOf(3);
  if (cached.has_value()) {
    EXPECT_GE(cached->computed_tokens, cached->cached_tokens);
  }
  EXPECT_GT(shell.started.at(3).cached_tokens, 1900u);
}

}  // namespace
}  // namespace macrame::runtime::engine
