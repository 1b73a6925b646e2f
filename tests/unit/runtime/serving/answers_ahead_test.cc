// Two steps in flight with the same answers: what the scheduler orders while tokens are not known
// yet. Random load is in tests/sim/batch_sim_test.cc.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "tests/unit/runtime/serving/scheduled_gang.h"

namespace macrame::runtime::engine {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

BatchTraits AheadTraits() {
  BatchTraits traits = Traits();
  traits.steps_in_flight_max = 2;
  traits.chooses_tokens = true;
  return traits;
}

RequestSpec ChosenSpec(RequestId id, size_t prompt, uint32_t max_new_tokens) {
  RequestSpec spec = Spec(id, Prompt(prompt, static_cast<int32_t>(id)), max_new_tokens);
  spec.choice = RowChoice();
  spec.choice->seed = id;
  spec.choice->position = static_cast<uint32_t>(prompt);
  return spec;
}

const ForwardStep& Last(const ScheduledGang& shell) { return shell.flying.back().step; }

TEST(AnswersAhead, AnAnswerGoesOnBeforeItsTokenIsKnown) {
  ScheduledGang shell(AheadTraits());
  shell.Add(ChosenSpec(1, 20, 10));
  ASSERT_TRUE(shell.Order());
  Segment wanted{0, 0, Prompt(20, 1), LogitRows::kChosen, {0}};
  wanted.choice.seed = 1;
  wanted.choice.position = 20;
  EXPECT_EQ(Last(shell).segments[0], wanted);
  ASSERT_TRUE(shell.Order());
  wanted = {0, 20, {TokenOfChosenRow(0)}, LogitRows::kChosen};
  wanted.choice.seed = 1;
  wanted.choice.position = 21;
  EXPECT_EQ(Last(shell).segments[0], wanted);
  EXPECT_FALSE(shell.Order()) << "two are in flight";
  shell.Done();
  ASSERT_TRUE(shell.Order());
  wanted.begin = 21;
  wanted.choice.position = 22;
  EXPECT_EQ(Last(shell).segments[0], wanted);
  EXPECT_TRUE(shell.flying.back().rows[0].is_chosen);
}

// Rows are counted among those that the step before chose, in its order.
TEST(AnswersAhead, EachAnswerNamesItsOwnRow) {
  ScheduledGang shell(AheadTraits());
  for (RequestId id = 1; id <= 3; ++id) shell.Add(ChosenSpec(id, 8 + id, 50));
  while (shell.first_token.size() < 3) {
    while (shell.Order()) {
    }
    shell.Done();
  }
  ASSERT_TRUE(shell.Order());
  ASSERT_EQ(Last(shell).segments.size(), 3u);
  for (int row = 0; row < 3; ++row) {
    EXPECT_THAT(Last(shell).segments[static_cast<size_t>(row)].tokens,
                ElementsAre(TokenOfChosenRow(row)));
  }
  // One ends: the others' rows in the step that ran with it stay what they were.
  shell.stopping = {1};
  shell.Done();
  ASSERT_TRUE(shell.Order());
  EXPECT_THAT(Last(shell).closed_slots, ElementsAre(0));
  ASSERT_EQ(Last(shell).segments.size(), 2u);
  EXPECT_THAT(Last(shell).segments[0].tokens, ElementsAre(TokenOfChosenRow(1)));
  EXPECT_THAT(Last(shell).segments[1].tokens, ElementsAre(TokenOfChosenRow(2)));
}

TEST(AnswersAhead, ALateStopDropsOneToken) {
  ScheduledGang shell(AheadTraits());
  shell.Add(ChosenSpec(1, 20, 50));
  for (int i = 0; i < 5; ++i) {
    while (shell.Order()) {
    }
    shell.Done();
  }
  ASSERT_TRUE(shell.Order());
  shell.stopping = {1};
  shell.Done();
  ASSERT_TRUE(shell.ended.contains(1));
  EXPECT_EQ(shell.ended.at(1).reason, EndReason::kFinished);
  EXPECT_EQ(shell.ended.at(1).usage.new_tokens, 6u);
  ASSERT_EQ(shell.flying.size(), 1u) << "what ran too far";
  shell.Done();
  EXPECT_EQ(shell.ended.at(1).usage.new_tokens, 6u);
  EXPECT_TRUE(shell.core.idle());
  EXPECT_EQ(shell.core.pool().available(), shell.core.pool().blocks_total());
}

TEST(AnswersAhead, WhatEndsForItsLengthRunsNoTokenTooFar) {
  for (const uint32_t length : {1u, 2u, 3u, 7u}) {
    ScheduledGang shell(AheadTraits());
    shell.Add(ChosenSpec(1, 20, length));
    uint32_t run = 0;
    while (!shell.core.idle()) {
      while (shell.Order()) run += static_cast<uint32_t>(Last(shell).segments[0].tokens.size());
      shell.Done();
    }
    EXPECT_THAT(shell.flying, IsEmpty());
    EXPECT_EQ(run, 20 + length - 1);
    EXPECT_EQ(shell.ended.at(1).reason, EndReason::kLength);
    EXPECT_EQ(shell.ended.at(1).usage.new_tokens, length);
  }
}

// One that needs the host among many sits out a step; where it is not among many, all wait for it.
TEST(AnswersAhead, WhoNeedsTheHostIsInAStepWhenItsTokensAreKnown) {
  for (const RequestId others : {2u, 5u}) {
    ScheduledGang shell(AheadTraits());
    shell.Add(Spec(1, Prompt(10, 1), 200));
    for (RequestId id = 2; id < 2 + others; ++id) shell.Add(ChosenSpec(id, 10, 200));
    while (shell.first_token.size() < 1 + others) {
      while (shell.Order()) {
      }
      shell.Done();
    }
    size_t steps = 0, with_host = 0, overlapped = 0;
    for (int i = 0; i < 20; ++i) {
      while (shell.Order()) {
        ++steps;
        overlapped += shell.flying.size() == 2 ? 1 : 0;
        for (const RowOwner& row : shell.flying.back().rows) {
          with_host += row.is_chosen ? 0 : 1;
          EXPECT_EQ(row.is_chosen, row.id != 1);
        }
        for (const Segment& segment : Last(shell).segments) {
          EXPECT_TRUE(segment.logit_rows == LogitRows::kChosen || segment.tokens[0] == 1);
        }
      }
      shell.Done();
    }
    if (others == 2) {
      EXPECT_EQ(with_host, steps);
      EXPECT_EQ(overlapped, 0u);
    } else {
      EXPECT_GE(with_host, steps / 2 - 1);
      EXPECT_LT(with_host, steps);
      EXPECT_GE(overlapped, steps - 2);
    }
  }
}

TEST(AnswersAhead, CancelledWhileTwoStepsAreInFlight) {
  ScheduledGang shell(AheadTraits());
  shell.Add(ChosenSpec(1, 31, 50));  // the unknown token fills its block
  shell.Add(ChosenSpec(2, 12, 50));
  while (shell.first_token.size() < 2) {
    while (shell.Order()) {
    }
    shell.Done();
  }
  while (shell.Order()) {
  }
  ASSERT_EQ(shell.flying.size(), 2u);
  shell.Take(shell.core.Cancel(1, shell.now));
  shell.core.CheckInvariants();
  EXPECT_EQ(shell.ended.at(1).reason, EndReason::kCancelled);
  const uint32_t heard = shell.ended.at(1).usage.new_tokens;
  shell.Done();
  shell.Done();
  EXPECT_EQ(shell.ended.at(1).usage.new_tokens, heard);
  shell.RunUntilEnded(2);
  EXPECT_EQ(shell.ended.at(2).usage.new_tokens, 50u);
}

TEST(AnswersAhead, ABlockIsOfferedWhenAllItsTokensAreKnown) {
  ScheduledGang shell(AheadTraits());
  shell.Add(ChosenSpec(1, 30, 60));
  ASSERT_TRUE(shell.Order());  // positions 0 to 29; chooses the one at 30
  ASSERT_TRUE(shell.Order());  // 30, unknown
  shell.Done();
  ASSERT_TRUE(shell.Order());  // 31, unknown: the block is full, and no one knows of what
  EXPECT_EQ(shell.core.pool().cached_blocks(), 0u);
  shell.Done();
  EXPECT_EQ(shell.core.pool().cached_blocks(), 0u);
  ASSERT_TRUE(shell.Order());
  EXPECT_EQ(shell.core.pool().cached_blocks(), 1u);
}

// Four blocks for two answers that want three each.
TEST(AnswersAhead, PreemptedWhileAStepIsInFlightGoesOnWithItsToken) {
  BatchTraits traits = AheadTraits();
  traits.blocks_total = 4;
  traits.context_length = 128;
  ScheduledGang shell(traits);
  for (RequestId id = 1; id <= 2; ++id) shell.Add(ChosenSpec(id, 20, 60));
  while (!shell.core.idle()) {
    while (shell.Order()) {
    }
    shell.Done();
  }
  EXPECT_THAT(shell.preempted, ::testing::Contains(2u));
  for (RequestId id = 1; id <= 2; ++id) {
    EXPECT_EQ(shell.ended.at(id).reason, EndReason::kLength);
    EXPECT_EQ(shell.ended.at(id).usage.new_tokens, 60u);
  }
}

// Each block's end is run with a known token, so its state is kept.
TEST(AnswersAhead, StatesAreKeptBehindKnownTokensOnly) {
  BatchTraits traits = AheadTraits();
  traits.state_snapshots = 4;
  ScheduledGang shell(traits);
  shell.Add(ChosenSpec(1, 20, 100));
  size_t kept = 0, ahead = 0;
  while (!shell.core.idle()) {
    while (shell.Order()) {
      const Segment& segment = Last(shell).segments[0];
      const bool is_ahead = IsChosenRow(segment.tokens.back());
      ahead += is_ahead ? 1 : 0;
      const size_t end = segment.begin + segment.tokens.size();
      EXPECT_FALSE(is_ahead && end % kBlockTokens == 0) << end;
      EXPECT_FALSE(is_ahead && segment.state_to != kNoSnapshot) << end;
      kept += segment.state_to != kNoSnapshot ? 1 : 0;
    }
    shell.Done();
  }
  EXPECT_EQ(kept, 3u) << "of the blocks that the answer filled";
  EXPECT_GE(ahead, 90u);
}

TEST(AnswersAhead, WithoutItAChoiceIsNotLookedAt) {
  ScheduledGang shell(Traits());
  shell.Add(ChosenSpec(1, 20, 3));
  ASSERT_TRUE(shell.Order());
  EXPECT_EQ(Last(shell).segments[0].logit_rows, LogitRows::kLast);
  EXPECT_FALSE(shell.flying.back().rows[0].is_chosen);
}

// The shell's answers repeat one token: from the fourth on it is known what comes.
TEST(AnswersAhead, WhatCanBeGuessedIsDraftedAndNotGivenAhead) {
  BatchTraits traits = AheadTraits();
  traits.draft_tokens_max = 4;
  ScheduledGang shell(traits);
  shell.WarmUp();
  shell.Add(ChosenSpec(1, 20, 60));
  size_t ahead = 0, drafted = 0;
  while (!shell.core.idle()) {
    while (shell.Order()) {
      const Segment& segment = Last(shell).segments[0];
      ahead += IsChosenRow(segment.tokens[0]) ? 1 : 0;
      if (segment.logit_rows != LogitRows::kAll) continue;
      ++drafted;
      EXPECT_EQ(shell.flying.size(), 1u) << "a draft comes behind tokens that are known";
    }
    shell.Done();
  }
  EXPECT_GE(ahead, 1u) << "before anything repeats itself";
  EXPECT_GE(drafted, 8u);
  const RequestUsage& usage = shell.ended.at(1).usage;
  EXPECT_EQ(usage.new_tokens, 60u);
  EXPECT_GE(usage.accepted_tokens, 30u);
}

TEST(AnswersAhead, StepsWithDraftsHaveNoMoreRowsThanKeepTheirBits) {
  for (const uint32_t rows_max : {2u, 3u, 5u, 8u}) {
    BatchTraits traits = AheadTraits();
    traits.draft_tokens_max = 7;
    traits.draft_rows_max = rows_max;
    ScheduledGang shell(traits);
    shell.WarmUp();
    for (RequestId id = 1; id <= 3; ++id) shell.Add(ChosenSpec(id, 20, 30 * id));
    size_t most = 0;
    while (!shell.core.idle()) {
      while (shell.Order()) {
        const bool has_drafts = std::any_of(
            Last(shell).segments.begin(), Last(shell).segments.end(),
            [](const Segment& segment) { return segment.logit_rows == LogitRows::kAll; });
        if (has_drafts) most = std::max(most, shell.flying.back().rows.size());
      }
      shell.Done();
    }
    EXPECT_EQ(most, rows_max);
  }
}

}  // namespace
}  // namespace macrame::runtime::engine
