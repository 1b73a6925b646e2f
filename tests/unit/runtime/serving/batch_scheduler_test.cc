// Each rule of the batch scheduler, but those of the queue. Random load is in
// tests/sim/batch_sim_test.cc.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <iostream>
#include <map>
#include <random>
#include <set>

#include "proto/reasons.h"
#include "tests/unit/runtime/serving/scheduled_gang.h"

namespace macrame::runtime::engine {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

uint32_t TokensOf(const ForwardStep& step, uint32_t slot) {
  for (const Segment& segment : step.segments) {
    if (segment.slot == slot) return static_cast<uint32_t>(segment.tokens.size());
  }
  return 0;
}

TEST(BatchScheduler, APromptRunsAndThenATokenAStep) {
  ScheduledGang shell(Traits());
  shell.Add(Spec(1, Prompt(20, 1), 3));
  ForwardStep step = shell.Step();
  ASSERT_EQ(step.segments.size(), 1u);
  const Segment wanted{0, 0, Prompt(20, 1), LogitRows::kLast, {0}};
  EXPECT_EQ(step.segments[0], wanted);
  step = shell.Step();
  EXPECT_EQ(step.segments[0], (Segment{0, 20, {1}, LogitRows::kLast}));
  shell.Step();
  EXPECT_EQ(shell.ended.at(1).reason, EndReason::kLength);
  EXPECT_EQ(shell.ended.at(1).usage.new_tokens, 3u);
  EXPECT_TRUE(shell.core.idle());
  EXPECT_FALSE(shell.Order()) << "its closure waits for a step";
  shell.Add(Spec(2, Prompt(5, 2)));
  EXPECT_THAT(shell.Step().closed_slots, ElementsAre(0));
}

TEST(BatchScheduler, EveryRunningAnswerHasATokenInEveryStep) {
  ScheduledGang shell(Traits());
  for (RequestId id = 1; id <= 4; ++id) shell.Add(Spec(id, Prompt(10, static_cast<int>(id)), 400));
  while (shell.first_token.size() < 4) shell.Step();
  shell.Add(Spec(5, Prompt(3000, 5)));
  for (int i = 0; i < 50; ++i) {
    const ForwardStep step = shell.Step();
    for (uint32_t slot = 0; slot < 4; ++slot) ASSERT_EQ(TokensOf(step, slot), 1u) << "step " << i;
  }
}

TEST(BatchScheduler, SeveralShortPromptsRunInOneStep) {
  ScheduledGang shell(Traits());
  shell.WarmUp();
  for (RequestId id = 1; id <= 4; ++id) shell.Add(Spec(id, Prompt(20, static_cast<int>(id))));
  const ForwardStep step = shell.Step();
  EXPECT_EQ(step.segments.size(), 4u);
  EXPECT_EQ(shell.first_token.size(), 8u) << "with the four of the warm-up";
}

TEST(BatchScheduler, AShortRequestBehindALongOneIsServedWithinTwoBudgets) {
  ScheduledGang shell(Traits());
  shell.WarmUp();
  shell.Add(Spec(1, Prompt(30000, 1)));
  for (int i = 0; i < 5; ++i) shell.Step();
  const Duration budget = Traits().step_budget;
  for (RequestId id = 2; id <= 30; ++id) {
    // In the middle of a step.
    ASSERT_TRUE(shell.Order());
    shell.Add(Spec(id, Prompt(80, static_cast<int>(id))));
    shell.Done();
    shell.Step();
    ASSERT_TRUE(shell.first_token.contains(id)) << "request " << id;
    EXPECT_LE(shell.first_token[id], 2 * budget) << "request " << id;
    shell.RunUntilEnded(id);
  }
  EXPECT_LE(shell.slowest, budget * 11 / 10);
}

TEST(BatchScheduler, ALongPromptGoesOnBeneathAnyNumberOfShortOnes) {
  ScheduledGang shell(Traits());
  shell.WarmUp();
  shell.Add(Spec(1, Prompt(5000, 1)));
  RequestId id = 1;
  int steps = 0;
  while (!shell.first_token.contains(1)) {
    while (shell.core.waiting() + shell.core.running() < 12) {
      ++id;
      shell.Add(Spec(id, Prompt(150, static_cast<int>(id)), 2));
    }
    shell.Step();
    // A quarter of about 150 prompt tokens a step.
    ASSERT_LT(++steps, 5000 / 25) << "starved";
  }
  EXPECT_GT(steps, 40) << "the short ones had their part";
  EXPECT_GT(id, 30u);
}

TEST(BatchScheduler, AStepAlwaysTakesASmallestChunkAlong) {
  BatchTraits traits = Traits();
  traits.step_budget = std::chrono::milliseconds(1);  // less than any step takes
  ScheduledGang shell(traits);
  shell.Add(Spec(1, Prompt(10, 1), 1000));
  shell.Add(Spec(2, Prompt(400, 2)));
  shell.Add(Spec(3, Prompt(600, 3)));
  int steps = 0;
  while (shell.first_token.size() < 3) {
    shell.Step();
    ASSERT_LT(++steps, 2 * 1010 / 16);
  }
}

TEST(BatchScheduler, AFullQueueSaysSo) {
  BatchTraits traits = Traits();
  traits.sequences_max = 1;
  traits.queued_requests_max = 2;
  ScheduledGang shell(traits);
  shell.Add(Spec(1, Prompt(10, 1), 1000));
  shell.Step();
  shell.Add(Spec(2, Prompt(10, 2)));
  shell.Add(Spec(3, Prompt(10, 3)));
  const absl::Status full = shell.core.Add(Spec(4, Prompt(10, 4)), shell.now).status();
  EXPECT_EQ(ReasonOf(full).code(), "QUEUE_FULL");
  // A client with nothing in the queue takes the place of one with much.
  RequestSpec other = Spec(5, Prompt(10, 5));
  other.key = "other";
  shell.Add(other);
  EXPECT_EQ(shell.ended.at(3).reason, EndReason::kDisplaced);
  other.id = 6;
  EXPECT_FALSE(shell.core.Add(other, shell.now).ok());
}

TEST(BatchScheduler, PromptsThatCannotBeServedAreRefused) {
  ScheduledGang shell(Traits());
  EXPECT_EQ(ReasonOf(shell.core.Add(Spec(1, {}), shell.now).status()).code(), "BAD_REQUEST");
  RequestSpec spec = Spec(2, Prompt(100, 1));
  spec.context_length = 100;
  EXPECT_EQ(ReasonOf(shell.core.Add(spec, shell.now).status()).code(), "PROMPT_TOO_LONG");
  spec.context_length = 40000;
  EXPECT_EQ(ReasonOf(shell.core.Add(spec, shell.now).status()).code(), "BAD_REQUEST");
  spec.context_length = 101;
  shell.Add(spec);
  shell.RunUntilEnded(2);
  EXPECT_EQ(shell.ended.at(2).usage.new_tokens, 1u);
}

TEST(BatchSchedulerDeathTest, AContextThatDoesNotFitIsABug) {
  BatchTraits traits = Traits();
  traits.blocks_total = 10;
  traits.context_length = 321;
  EXPECT_DEATH(BatchScheduler core(traits), "don't hold one context");
}

TEST(BatchScheduler, KeysShareByTokensNotByRequests) {
  BatchTraits traits = Traits();
  traits.sequences_max = 1;
  traits.queued_requests_max = 20;
  ScheduledGang shell(traits);
  // One client asks for answers four times as long.
  for (RequestId id = 1; id <= 8; ++id) {
    RequestSpec spec = Spec(id, Prompt(4, static_cast<int>(id)), id <= 4 ? 76 : 16);
    spec.key = id <= 4 ? "long" : "short";
    shell.Add(spec);
  }
  for (const RequestId id : {1, 5, 6, 7, 8}) shell.RunUntilEnded(id);
  shell.Step();
  EXPECT_THAT(shell.start_order, ElementsAre(1, 5, 6, 7, 8, 2));
}

TEST(BatchScheduler, PriorityComesFirstAndAgeCatchesUp) {
  BatchTraits traits = Traits();
  traits.sequences_max = 1;
  traits.aging_interval = std::chrono::seconds(2);
  ScheduledGang shell(traits);
  shell.Add(Spec(1, Prompt(10, 1), 5));
  shell.Step();
  shell.Add(Spec(2, Prompt(10, 2), 5));
  RequestId id = 2;
  while (!shell.started.contains(2)) {  // a stream of urgent ones, always two waiting
    while (shell.core.waiting() < 3) {
      ++id;
      RequestSpec urgent = Spec(id, Prompt(10, static_cast<int>(id)), 5);
      urgent.key = "urgent";
      urgent.priority = 1;
      shell.Add(urgent);
    }
    shell.Step();
    ASSERT_LT(shell.now, MonotonicTime(traits.aging_interval * 2)) << "starved";
  }
  EXPECT_GT(shell.started.at(2).queued, traits.aging_interval);
  EXPECT_EQ(shell.start_order[1], 3u);
}

TEST(BatchScheduler, StartsWhenThePromptAndOneBlockFit) {
  BatchTraits traits = Traits();
  traits.blocks_total = 10;
  traits.context_length = 320;
  ScheduledGang shell(traits);
  shell.Add(Spec(1, Prompt(160, 1), 100));  // 5 blocks and one
  while (shell.first_token.empty()) shell.Step();
  shell.Add(Spec(2, Prompt(128, 2), 2));  // 4 and one: not there
  shell.Add(Spec(3, Prompt(96, 3), 2));   // 3 and one: there, and may pass
  shell.Step();
  EXPECT_TRUE(shell.started.contains(3));
  EXPECT_FALSE(shell.started.contains(2));
  shell.RunUntilEnded(3);
  shell.RunUntilEnded(2);
}

TEST(BatchScheduler, NotMoreThanAFewPassOneThatDoesNotFit) {
  BatchTraits traits = Traits();
  traits.blocks_total = 10;
  traits.context_length = 320;
  ScheduledGang shell(traits);
  shell.Add(Spec(1, Prompt(160, 1), 150));
  while (shell.first_token.empty()) shell.Step();
  shell.Add(Spec(2, Prompt(200, 2), 2));
  RequestId id = 2;
  size_t passed = 0;
  while (!shell.started.contains(2)) {
    passed = shell.started.size() - 1;
    while (shell.core.waiting() < 4) {
      ++id;
      shell.Add(Spec(id, Prompt(5, static_cast<int>(id)), 2));
    }
    ASSERT_FALSE(shell.Step().segments.empty());
  }
  EXPECT_EQ(passed, kBypassesMax);
  EXPECT_TRUE(shell.preempted.empty());
}

TEST(BatchScheduler, TheYoungestOfLowestPriorityIsPreemptedAndGoesOnWhereItWas) {
  BatchTraits traits = Traits();
  traits.blocks_total = 8;
  traits.context_length = 256;
  ScheduledGang shell(traits);
  shell.Add(Spec(1, Prompt(60, 1), 130));
  RequestSpec urgent = Spec(2, Prompt(60, 2), 130);
  urgent.priority = 1;
  shell.now += Duration(1000);
  shell.Add(urgent);
  while (shell.preempted.empty()) ASSERT_FALSE(shell.Step().segments.empty());
  EXPECT_THAT(shell.preempted, ElementsAre(1));
  EXPECT_FALSE(shell.ended.contains(2));
  shell.RunUntilEnded(2);
  shell.RunUntilEnded(1);
  const RequestUsage& usage = shell.ended.at(1).usage;
  EXPECT_EQ(usage.new_tokens, 130u);
  EXPECT_GE(usage.preemptions, 1u);
  EXPECT_GT(usage.recomputed_tokens, 0u);
  EXPECT_EQ(usage.cached_tokens, 0u) << "what it had computed itself is no hit";
  EXPECT_EQ(shell.ended.at(2).usage.preemptions, 0u);
  EXPECT_EQ(shell.core.preempted().preemptions, usage.preemptions);
  EXPECT_EQ(shell.core.preempted().recomputed_tokens, usage.recomputed_tokens);
}

// Else the token that is on the way would be chosen a second time.
TEST(BatchScheduler, WhoIsPreemptedWithAStepInFlightStartsAgainAfterItsResult) {
  BatchTraits traits = Traits();
  traits.blocks_total = 8;
  traits.context_length = 256;
  traits.steps_in_flight_max = 3;
  ScheduledGang shell(traits);
  shell.Add(Spec(1, Prompt(64, 1), 0));
  shell.Add(Spec(2, Prompt(60, 2), 0));
  for (int i = 0; i < 1000; ++i) {
    while (shell.preempted.empty() && shell.flying.size() < 3 && shell.Order()) {
    }
    if (!shell.preempted.empty()) break;
    shell.Done();
  }
  ASSERT_THAT(shell.preempted, ElementsAre(2));
  const auto is_of_2 = [](const OrderedStep& step) {
    return std::any_of(step.rows.begin(), step.rows.end(),
                       [](const RowOwner& owner) { return owner.id == 2; });
  };
  ASSERT_TRUE(std::any_of(shell.flying.begin(), shell.flying.end(), is_of_2));
  shell.Take(shell.core.Cancel(1, shell.now));  // all blocks are there now
  while (!is_of_2(shell.flying.front())) shell.Done();
  ASSERT_LT(shell.flying.size(), 3u);
  EXPECT_FALSE(shell.Order()) << "its result is not there yet";
  const uint32_t position = shell.flying.front().rows[0].position;
  shell.Done();
  ASSERT_TRUE(shell.Order());
  const Segment& again = shell.flying.back().step.segments[0];
  EXPECT_EQ(again.begin + again.tokens.size(), position + 1);
  while (!shell.flying.empty()) shell.Done();
  shell.RunUntilEnded(2);
  EXPECT_EQ(shell.ended.at(2).usage.new_tokens, 256u - 60u);
}

TEST(BatchScheduler, CancelTakesEffectAtTheNextStep) {
  ScheduledGang shell(Traits());
  shell.Add(Spec(1, Prompt(2000, 1)));
  shell.Add(Spec(2, Prompt(20, 2), 100));
  shell.Step();
  ASSERT_TRUE(shell.Order());  // both are in flight
  shell.Take(shell.core.Cancel(1, shell.now));
  EXPECT_EQ(shell.ended.at(1).reason, EndReason::kCancelled);
  shell.Done();
  const ForwardStep step = shell.Step();
  EXPECT_EQ(step.closed_slots.size(), 1u);
  EXPECT_EQ(step.segments.size(), 1u);
  EXPECT_TRUE(shell.core.Cancel(1, shell.now).ended.empty());
  EXPECT_TRUE(shell.core.Cancel(77, shell.now).ended.empty());
  // One that waits, too.
  shell.Add(Spec(3, Prompt(20, 3)));
  shell.Take(shell.core.Cancel(3, shell.now));
  EXPECT_EQ(shell.ended.at(3).usage.new_tokens, 0u);
}

TEST(BatchScheduler, TheSecondTurnOfAChatComputesItsNewTokensOnly) {
  ScheduledGang shell(Traits());
  shell.Add(Spec(1, Prompt(2000, 1), 10));
  shell.RunUntilEnded(1);
  EXPECT_EQ(shell.started.at(1).miss.kind, PrefixMiss::Kind::kEmpty);
  std::vector<int32_t> second = Prompt(2000, 1);
  second.insert(second.end(), 10, 1);  // the answer
  second.resize(2040, 5);
  RequestSpec spec = Spec(2, second);
  shell.Add(spec);
  const ForwardStep step = shell.Step();
  EXPECT_EQ(shell.started.at(2).cached_tokens, 1984u);  // 62 blocks
  EXPECT_EQ(step.segments[0].begin, 1984u);
  EXPECT_EQ(step.segments[0].new_blocks.size(), 64u) << "with those of the prefix";
  shell.RunUntilEnded(2);
  EXPECT_EQ(shell.ended.at(2).usage.cached_tokens, 1984u);
  // A date changed near the beginning.
  second[812] = -1;
  shell.Add(Spec(3, second));
  shell.Step();
  EXPECT_EQ(DescribeMiss(shell.started.at(3).miss), "differs at token 812");
  // Another tenant.
  spec.id = 4;
  spec.salt = "another";
  shell.Add(spec);
  while (!shell.started.contains(4)) shell.Step();
  EXPECT_EQ(shell.started.at(4).cached_tokens, 0u);
}

// For engines whose sequences stand in caches of their own.
TEST(BatchScheduler, WithoutSharingEverySequenceBeginsAtItsFirstToken) {
  BatchTraits traits = Traits();
  traits.shares_prefixes = false;
  traits.context_length = 512;
  traits.blocks_total = 16;  // two of these requests do not fit beside each other for long
  ScheduledGang shell(traits);
  std::map<uint32_t, uint32_t> held;  // by slot
  for (RequestId id = 1; id <= 4; ++id) shell.Add(Spec(id, Prompt(160, 1), 160));
  for (int i = 0; i < 20000 && shell.ended.size() < 4; ++i) {
    const ForwardStep step = shell.Step();
    for (const uint32_t slot : step.closed_slots) held.erase(slot);
    for (const Segment& segment : step.segments) {
      ASSERT_EQ(segment.begin, held[segment.slot]) << "slot " << segment.slot;
      held[segment.slot] += static_cast<uint32_t>(segment.tokens.size());
    }
  }
  ASSERT_EQ(shell.ended.size(), 4u);
  EXPECT_GT(shell.core.preempted().preemptions, 0u);
  for (const auto& [id, ended] : shell.ended) {
    EXPECT_EQ(ended.usage.cached_tokens, 0u);
    EXPECT_EQ(ended.usage.new_tokens, 160u);
  }
}

TEST(BatchScheduler, RequestsThatBeginAlikeAndComeAtOnceComputeItOnce) {
  ScheduledGang shell(Traits());
  for (RequestId id = 1; id <= 4; ++id) {
    std::vector<int32_t> prompt = Prompt(640, 1);
    prompt.resize(700, static_cast<int32_t>(id));
    shell.Add(Spec(id, prompt));
  }
  uint64_t prefilled = 0;
  while (shell.first_token.size() < 4) {
    for (const Segment& segment : shell.Step().segments) {
      if (segment.tokens.size() > 1) prefilled += segment.tokens.size();
    }
  }
  EXPECT_EQ(prefilled, 640u + 4 * 60u);
}

TEST(BatchScheduler, StepsInFlightShareTheAnswersAndFollowAPromptUp) {
  BatchTraits traits = Traits();
  traits.steps_in_flight_max = 2;
  ScheduledGang shell(traits);
  for (RequestId id = 1; id <= 4; ++id) shell.Add(Spec(id, Prompt(10, static_cast<int>(id)), 200));
  while (shell.first_token.size() < 4) shell.Step();
  ASSERT_TRUE(shell.Order());
  ASSERT_TRUE(shell.Order());
  EXPECT_FALSE(shell.Order()) << "two are in flight";
  std::set<uint32_t> slots;
  for (const OrderedStep& step : shell.flying) {
    EXPECT_EQ(step.step.segments.size(), 2u);
    for (const Segment& segment : step.step.segments) slots.insert(segment.slot);
  }
  EXPECT_EQ(slots.size(), 4u);
  shell.Done();
  shell.Done();
  shell.Add(Spec(5, Prompt(2000, 5)));
  ASSERT_TRUE(shell.Order());
  ASSERT_TRUE(shell.Order());
  const Segment& first = shell.flying[0].step.segments.back();
  const Segment& second = shell.flying[1].step.segments.back();
  EXPECT_EQ(second.slot, first.slot);
  EXPECT_EQ(second.begin, first.begin + first.tokens.size());
  EXPECT_EQ(first.logit_rows, LogitRows::kNone);
}

TEST(BatchScheduler, APromptThatHasAllToItselfGoesInLargerChunks) {
  BatchTraits traits = Traits();
  traits.chunk_tokens_max = 128;
  traits.chunk_tokens_alone = 1024;
  ScheduledGang shell(traits);
  shell.WarmUp();
  const auto largest = [](const ForwardStep& step) {
    size_t tokens = 0;
    for (const Segment& segment : step.segments) tokens = std::max(tokens, segment.tokens.size());
    return tokens;
  };
  shell.Add(Spec(1, Prompt(20000, 1), 4));
  std::vector<size_t> chunks;
  while (chunks.size() < 6) chunks.push_back(largest(shell.Step()));
  EXPECT_EQ(chunks.back(), 1024u) << "half a second, by what tokens take here";
  // From when another one is there, both wait no longer than ever.
  shell.Add(Spec(2, Prompt(300, 2), 4));
  while (!shell.ended.contains(2)) EXPECT_LE(largest(shell.Step()), 128u);
  EXPECT_EQ(largest(shell.Step()), 1024u);
  // Beside an answer too.
  shell.RunUntilEnded(1);
  shell.Add(Spec(3, Prompt(20, 3), 200));
  while (!shell.first_token.contains(3)) shell.Step();
  shell.Add(Spec(4, Prompt(3000, 4), 4));
  while (!shell.first_token.contains(4)) EXPECT_LE(largest(shell.Step()), 128u);
}

// The shell's answers repeat one token.
TEST(BatchScheduler, AcceptedDraftsCountAsTokens) {
  BatchTraits traits = Traits();
  traits.draft_tokens_max = 4;
  ScheduledGang shell(traits);
  shell.WarmUp();
  shell.Add(Spec(1, Prompt(20, 1), 60));
  uint32_t next = 0;
  int steps = 0;
  bool had_all = false;
  while (!shell.ended.contains(1)) {
    const ForwardStep step = shell.Step();
    ASSERT_EQ(step.segments.size(), 1u);
    const Segment& segment = step.segments[0];
    EXPECT_EQ(segment.begin, next) << "every draft was right";
    next = segment.begin + static_cast<uint32_t>(segment.tokens.size());
    had_all = had_all || segment.tokens.size() == 5;
    EXPECT_EQ(segment.logit_rows == LogitRows::kAll, steps > 0 && segment.tokens.size() > 1);
    ++steps;
  }
  const RequestUsage& usage = shell.ended.at(1).usage;
  EXPECT_TRUE(had_all);
  EXPECT_EQ(next, 79u) << "nothing is run behind the last token";
  EXPECT_EQ(usage.new_tokens, 60u);
  EXPECT_EQ(usage.accepted_tokens, usage.draft_tokens);
  EXPECT_EQ(usage.accepted_tokens + static_cast<uint32_t>(steps), 60u);
}

TEST(BatchScheduler, WhatRanBehindARejectedDraftIsRunAgain) {
  BatchTraits traits = Traits();
  traits.draft_tokens_max = 4;
  ScheduledGang shell(traits);
  shell.WarmUp();
  shell.Add(Spec(1, Prompt(59, 1), 60));
  ASSERT_TRUE(shell.Order());
  while (shell.flying[0].rows.size() < 5) {
    shell.Done();
    ASSERT_TRUE(shell.Order());
  }
  const OrderedStep step = shell.flying[0];
  const Segment& segment = step.step.segments[0];
  ASSERT_TRUE(step.rows[1].draft.has_value());
  EXPECT_EQ(step.rows[1].position, step.rows[0].position + 1);
  // The first draft was right, the second was not: of five tokens two are known now, and a third.
  std::vector<RowResult> results(5, {7, false});
  results[0].token = *step.rows[0].draft;
  const auto cached = shell.core.pool().cached_blocks();
  shell.Take(shell.core.OnStepDone(step.number, results, Took(step.step), shell.now));
  shell.core.CheckInvariants();
  shell.flying.clear();
  ASSERT_TRUE(shell.Order());
  const Segment& again = shell.flying[0].step.segments[0];
  EXPECT_EQ(again.begin, segment.begin + 2);
  EXPECT_EQ(again.tokens[0], 7);
  EXPECT_LE(shell.core.pool().cached_blocks(), cached + 1);
  shell.Done();
  shell.RunUntilEnded(1);
  EXPECT_EQ(shell.ended.at(1).usage.new_tokens, 60u);
  EXPECT_LT(shell.ended.at(1).usage.accepted_tokens, shell.ended.at(1).usage.draft_tokens);
}

TEST(BatchScheduler, NothingIsDraftedBesideAPromptOrWhereItDoesNotPay) {
  BatchTraits traits = Traits();
  traits.draft_tokens_max = 4;
  ScheduledGang shell(traits);
  shell.WarmUp();
  const auto drafted = [&] {
    const ForwardStep step = shell.Step();
    return std::any_of(step.segments.begin(), step.segments.end(), [](const Segment& segment) {
      return segment.logit_rows == LogitRows::kAll;
    });
  };
  shell.Add(Spec(1, Prompt(20, 1), 1000));
  for (int i = 0; i < 40; ++i) shell.Step();
  EXPECT_TRUE(drafted());
  shell.Add(Spec(2, Prompt(3000, 2), 2));
  while (!shell.ended.contains(2)) {
    const bool is_prompt = !shell.first_token.contains(2);
    const bool has_draft = drafted();
    EXPECT_FALSE(has_draft && is_prompt);
  }
  // Of sixteen tokens any may come next: the last three have often stood together, and say nothing.
  shell.Take(shell.core.Cancel(1, shell.now));
  std::mt19937 random(5);
  RequestSpec spec = Spec(3, Prompt(3000, 3), 400);
  for (int32_t& token : spec.prompt) token = static_cast<int32_t>(random() % 16);
  shell.Add(spec);
  while (!shell.ended.contains(3)) {
    ASSERT_TRUE(shell.Order());
    const OrderedStep step = shell.flying[0];
    shell.flying.clear();
    std::vector<RowResult> results;
    for (size_t i = 0; i < step.rows.size(); ++i) {
      results.push_back({static_cast<int32_t>(random() % 16), false});
    }
    shell.Take(shell.core.OnStepDone(step.number, results, Took(step.step), shell.now));
  }
  EXPECT_GT(shell.ended.at(3).usage.draft_tokens, 0u);
  EXPECT_LT(shell.ended.at(3).usage.draft_tokens, 60u) << "of 400 tokens";
}

TEST(BatchScheduler, NothingIsLearntOfAStepWhoseTimeIsNotKnown) {
  ScheduledGang shell(Traits());
  shell.WarmUp();
  shell.Add(Spec(1, Prompt(20, 1), 1000));
  shell.Step();
  const StepWork work{4, 64, 1000};
  const Duration before = shell.core.cost().Predict(work);
  for (int i = 0; i < 20; ++i) {
    ASSERT_TRUE(shell.Order());
    const OrderedStep step = shell.flying[0];
    shell.flying.clear();
    const std::vector<RowResult> results(step.rows.size(), {1, false});
    shell.Take(shell.core.OnStepDone(step.number, results, std::nullopt, shell.now));
  }
  EXPECT_EQ(shell.core.cost().Predict(work), before);
}

// A figure rather than a rule: how long Next takes with many sequences.
TEST(BatchScheduler, OrdersAStepOfManySequencesInNoTime) {
  BatchTraits traits = Traits();
  traits.sequences_max = 64;
  traits.queued_requests_max = 64;
  traits.blocks_total = 8192;
  traits.step_budget = std::chrono::seconds(1);
  ScheduledGang shell(traits);
  for (RequestId id = 1; id <= 64; ++id) {
    shell.Add(Spec(id, Prompt(1000, static_cast<int>(id)), 2000));
  }
  while (shell.first_token.size() < 64) shell.Step();
  std::vector<double> us;
  for (int i = 0; i < 1500; ++i) {
    const auto begin = std::chrono::steady_clock::now();
    NextStep next = shell.core.Next(shell.now);
    us.push_back(std::chrono::duration<double, std::micro>(std::chrono::steady_clock::now() - begin)
                     .count());
    ASSERT_EQ(next.ordered->rows.size(), 64u);
    shell.core.OnStepDone(next.ordered->number, std::vector<RowResult>(64, {7, false}),
                          Duration(20000), shell.now);
  }
  std::sort(us.begin(), us.end());
  std::cout << "Next() with 64 answers: median " << us[us.size() / 2] << " us, 99th of 100 "
            << us[us.size() * 99 / 100] << " us\n";
  EXPECT_LT(us[us.size() / 2], 5000.0);
}

RequestSpec Hidden(RequestId id, std::vector<int32_t> prompt, LogitRows rows) {
  RequestSpec spec = Spec(id, std::move(prompt));
  spec.rows = rows;
  return spec;
}

TEST(BatchScheduler, APromptForHiddenStatesEndsWithItsLastToken) {
  for (const LogitRows rows : {LogitRows::kHiddenLast, LogitRows::kHiddenAll}) {
    BatchTraits traits = Traits();
    traits.chunk_tokens_max = traits.chunk_tokens_min = 64;
    ScheduledGang shell(traits);
    shell.Add(Hidden(1, Prompt(100, 1), rows));
    ASSERT_TRUE(shell.Order());
    const OrderedStep first = shell.flying.back();
    shell.Done();
    ASSERT_TRUE(shell.Order());
    const OrderedStep second = shell.flying.back();
    shell.Done();
    EXPECT_TRUE(first.rows.empty() && second.rows.empty()) << "nothing is sampled";
    EXPECT_EQ(second.step.segments[0].logit_rows, rows);
    ASSERT_EQ(second.hidden.size(), 1u);
    EXPECT_TRUE(second.hidden[0].is_last);
    if (rows == LogitRows::kHiddenAll) {
      ASSERT_EQ(first.hidden.size(), 1u);
      EXPECT_EQ(first.hidden[0].count, 64u);
      EXPECT_FALSE(first.hidden[0].is_last);
      EXPECT_EQ(second.hidden[0].begin, 64u);
      EXPECT_EQ(second.hidden[0].count, 36u);
    } else {
      EXPECT_TRUE(first.hidden.empty());
      EXPECT_EQ(first.step.segments[0].logit_rows, LogitRows::kNone);
      EXPECT_EQ(second.hidden[0].begin, 99u);
      EXPECT_EQ(second.hidden[0].count, 1u);
    }
    ASSERT_TRUE(shell.ended.contains(1));
    EXPECT_EQ(shell.ended.at(1).reason, EndReason::kFinished);
    EXPECT_EQ(shell.ended.at(1).usage.new_tokens, 0u);
    EXPECT_TRUE(shell.core.idle());
  }
}

TEST(BatchScheduler, HiddenStatesOfAllPositionsTakeNothingFromTheCache) {
  ScheduledGang shell(Traits());
  shell.Add(Spec(1, Prompt(100, 1), 2));
  shell.RunUntilEnded(1);
  shell.Add(Hidden(2, Prompt(100, 1), LogitRows::kHiddenLast));
  shell.RunUntilEnded(2);
  EXPECT_EQ(shell.ended.at(2).usage.cached_tokens, 96u);
  shell.Add(Hidden(3, Prompt(100, 1), LogitRows::kHiddenAll));
  shell.RunUntilEnded(3);
  EXPECT_EQ(shell.ended.at(3).usage.cached_tokens, 0u);
  // What it computed is there for others.
  shell.Add(Hidden(4, Prompt(100, 4), LogitRows::kHiddenAll));
  shell.RunUntilEnded(4);
  shell.Add(Spec(5, Prompt(100, 4), 2));
  shell.RunUntilEnded(5);
  EXPECT_EQ(shell.ended.at(5).usage.cached_tokens, 96u);
}

TEST(BatchScheduler, APromptForHiddenStatesMayFillTheContext) {
  BatchTraits traits = Traits();
  traits.context_length = 128;
  traits.blocks_total = 4;
  ScheduledGang shell(traits);
  shell.Add(Hidden(1, Prompt(128, 1), LogitRows::kHiddenAll));
  shell.RunUntilEnded(1);
  const auto refused = shell.core.Add(Hidden(2, Prompt(129, 1), LogitRows::kHiddenLast), shell.now);
  EXPECT_EQ(ReasonOf(refused.status()).code(), "PROMPT_TOO_LONG");
}

// Answers that need their memory preempt it; then all its positions come again.
TEST(BatchScheduler, PreemptedHiddenStatesBeginAnew) {
  BatchTraits traits = Traits();
  traits.context_length = 256;
  traits.blocks_total = 9;
  traits.sequences_max = 3;
  traits.chunk_tokens_min = traits.chunk_tokens_max = 16;
  ScheduledGang shell(traits);
  shell.Add(Spec(1, Prompt(30, 1), 100));
  shell.Add(Spec(2, Prompt(30, 2), 100));
  for (int i = 0; i < 6; ++i) shell.Step();
  shell.Add(Hidden(3, Prompt(150, 3), LogitRows::kHiddenAll));
  uint32_t expected = 0;
  uint32_t begun = 0;
  while (!shell.ended.contains(3)) {
    ASSERT_TRUE(shell.Order());
    for (const HiddenOwner& owner : shell.flying.back().hidden) {
      if (owner.begin == 0) {
        expected = 0;
        ++begun;
      }
      EXPECT_EQ(owner.begin, expected);
      expected += owner.count;
    }
    shell.Done();
  }
  EXPECT_EQ(expected, 150u);
  EXPECT_EQ(begun, 1u + shell.ended.at(3).usage.preemptions);
}

BatchTraits ColdTraitsOfOneRank() {
  BatchTraits traits = Traits();
  traits.cold.ranks = 1;
  return traits;
}

size_t StoresOrdered(ScheduledGang& shell) {
  size_t stores = 0;
  while (shell.core.has_cold_orders()) stores += shell.core.Next(shell.now).cold.stores.size();
  return stores;
}

TEST(BatchScheduler, WhatAMemoryOnlyRequestComputesIsNotOfferedToTheDisk) {
  ScheduledGang shell(ColdTraitsOfOneRank());
  RequestSpec spec = Spec(1, Prompt(100, 1));
  spec.salt = "law";
  spec.memory_only = true;
  shell.Add(spec);
  shell.RunUntilEnded(1);
  EXPECT_EQ(StoresOrdered(shell), 0u);
  EXPECT_EQ(shell.core.cold().blocks(), 0u);
  // Nor when it is cancelled.
  spec.id = 2;
  shell.Add(spec);
  shell.Step();
  shell.Take(shell.core.Cancel(2, shell.now));
  EXPECT_EQ(StoresOrdered(shell), 0u);
  // It serves the next from memory all the same.
  spec.id = 3;
  shell.Add(spec);
  shell.RunUntilEnded(3);
  EXPECT_EQ(shell.started.at(3).cached_tokens, 96u);
  RequestSpec other = Spec(4, Prompt(100, 1));
  other.salt = "art";
  shell.Add(other);
  shell.RunUntilEnded(4);
  EXPECT_EQ(StoresOrdered(shell), 3u) << "another tenant's are";
}

// What is read counts as used, and would stay.
TEST(BatchScheduler, AMemoryOnlyRequestReadsNothingFromTheDisk) {
  const std::vector<int32_t> prompt = Prompt(100, 1);
  ColdEvent listed;
  listed.kind = ColdEvent::Kind::kListed;
  BlockName name = RootName("law");
  for (size_t block = 0; block < 3; ++block) {
    BlockTokens tokens;
    std::copy_n(prompt.begin() + static_cast<std::ptrdiff_t>(block * kBlockTokens), kBlockTokens,
                tokens.begin());
    name = ChildName(name, tokens);
    listed.names.push_back(name);
  }
  const auto loads = [&](bool memory_only) {
    ScheduledGang shell(ColdTraitsOfOneRank());
    shell.core.OnCold(listed, shell.now);
    RequestSpec spec = Spec(1, prompt);
    spec.salt = "law";
    spec.memory_only = memory_only;
    shell.Add(spec);
    shell.Order();
    return shell.core.cold().counts().loads;
  };
  EXPECT_EQ(loads(true), 0u);
  EXPECT_EQ(loads(false), 1u);
}

}  // namespace
}  // namespace macrame::runtime::engine
