// Penalties, biases and the least number of tokens: what they do to a row, and that a draft is
// judged by the row that its tokens would have led to.

#include "runtime/serving/sampling/logits_processor.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <random>

#include "proto/reasons.h"
#include "runtime/serving/sampling/generation.h"
#include "runtime/serving/sampling/row_sampling.h"

namespace macrame::runtime::engine {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using Tokens = std::vector<int32_t>;

constexpr float kInf = std::numeric_limits<float>::infinity();

std::vector<float> RowOf(const LogitsProcessor& processor, const std::vector<float>& logits,
                         const Tokens& ahead = {}) {
  std::vector<float> scratch;
  const auto row = processor.Process(logits, ahead, scratch);
  return {row.begin(), row.end()};
}

TEST(LogitsProcessorTest, NothingAskedForChangesNothing) {
  LogitsProcessor processor({}, 0, {3}, Tokens{1, 2});
  EXPECT_FALSE(processor.changes_next());
  processor.Take(1);
  EXPECT_FALSE(processor.changes_next());
  const std::vector<float> logits{1, -1, 0, 5};
  std::vector<float> scratch;
  EXPECT_EQ(processor.Process(logits, {}, scratch).data(), logits.data()) << "without a copy";
}

TEST(LogitsProcessorTest, ARepetitionPenaltyLowersWhatPromptOrAnswerHold) {
  LogitsProcessor processor({.repetition_penalty = 2.0}, 0, {}, Tokens{0, 1, 1});
  EXPECT_TRUE(processor.changes_next());
  EXPECT_THAT(RowOf(processor, {4, -4, 3, -3}), ElementsAre(2, -8, 3, -3));
  processor.Take(2);
  processor.Take(2);
  EXPECT_THAT(RowOf(processor, {4, -4, 3, -3}), ElementsAre(2, -8, 1.5, -3)) << "once each";
}

TEST(LogitsProcessorTest, FrequencyAndPresenceCountTheAnswerAlone) {
  LogitsProcessor processor({.presence_penalty = 0.5, .frequency_penalty = 0.25}, 0, {},
                            Tokens{0, 1, 1});
  EXPECT_THAT(RowOf(processor, {1, 1, 1}), ElementsAre(1, 1, 1));
  processor.Take(1);
  processor.Take(2);
  processor.Take(1);
  EXPECT_THAT(RowOf(processor, {1, 1, 1}), ElementsAre(1, 0, 0.25));
}

TEST(LogitsProcessorTest, NegativePenaltiesFavourWhatWasSaid) {
  LogitsProcessor processor({.presence_penalty = -1.0, .frequency_penalty = -0.5}, 0, {}, {});
  processor.Take(0);
  EXPECT_THAT(RowOf(processor, {1, 1}), ElementsAre(2.5, 1));
}

TEST(LogitsProcessorTest, BiasesAreAddedBeforePenalties) {
  LogitsProcessor processor({.repetition_penalty = 2.0, .biases = {{0, 3.0F}, {2, -100.0F}}}, 0, {},
                            Tokens{0});
  EXPECT_THAT(RowOf(processor, {1, 1, 1}), ElementsAre(2, 1, -99));
  EXPECT_EQ(RowOf(processor, {-kInf, 0, 0})[0], -kInf) << "what a mask forbids stays forbidden";
}

TEST(LogitsProcessorTest, NoEndBeforeTheLeastNumberOfTokens) {
  LogitsProcessor processor({}, 2, {1, 3, 900}, {});
  EXPECT_THAT(RowOf(processor, {1, 1, 1, 1}), ElementsAre(1, -kInf, 1, -kInf));
  EXPECT_THAT(RowOf(processor, {1, 1, 1, 1}, {0}), ElementsAre(1, -kInf, 1, -kInf));
  EXPECT_THAT(RowOf(processor, {1, 1, 1, 1}, {0, 0}), ElementsAre(1, 1, 1, 1));
  processor.Take(0);
  EXPECT_TRUE(processor.changes_next());
  processor.Take(0);
  EXPECT_FALSE(processor.changes_next());
}

LogitRules SomeRules(uint32_t kind) {
  LogitRules rules;
  if (kind & 1) rules.repetition_penalty = 1.3;
  if (kind & 2) rules.presence_penalty = 0.7;
  if (kind & 4) rules.frequency_penalty = 0.4;
  if (kind & 8) rules.biases = {{3, 2.5F}, {5, -1.25F}, {8, 100.0F}};
  return rules;
}

// Tokens ahead do to a row, to the last bit, what they do once they are taken; and a list of tokens
// that is taken again elsewhere leads to the same row.
TEST(LogitsProcessorTest, TheRowFollowsFromTheTokensAlone) {
  std::mt19937 random(5);
  std::normal_distribution<float> normal(0.0F, 3.0F);
  for (uint32_t kind = 0; kind < 16; ++kind) {
    for (const uint32_t least : {0, 4}) {
      Tokens prompt(6), answer(9);
      for (int32_t& token : prompt) token = static_cast<int32_t>(random() % 12);
      for (int32_t& token : answer) token = static_cast<int32_t>(random() % 12);
      std::vector<float> logits(12);
      for (float& logit : logits) logit = normal(random);
      const auto begin = [&] { return LogitsProcessor(SomeRules(kind), least, {2}, prompt); };
      LogitsProcessor stepwise = begin();
      for (size_t taken = 0; taken <= answer.size(); ++taken) {
        LogitsProcessor again = begin();
        for (size_t i = 0; i < taken; ++i) again.Take(answer[i]);
        const auto expected = RowOf(stepwise, logits);
        EXPECT_EQ(RowOf(again, logits), expected);
        for (size_t ahead = 1; ahead <= taken; ++ahead) {
          LogitsProcessor behind = begin();
          for (size_t i = 0; i < taken - ahead; ++i) behind.Take(answer[i]);
          const auto from = answer.begin() + static_cast<int64_t>(taken - ahead);
          EXPECT_EQ(RowOf(behind, logits, Tokens(from, from + static_cast<int64_t>(ahead))),
                    expected)
              << "kind " << kind << ", " << taken << " tokens, " << ahead << " of them ahead";
        }
        if (taken < answer.size()) stepwise.Take(answer[taken]);
      }
    }
  }
}

TEST(LogitsProcessorTest, ChecksItsBoundsAndNamesTheField) {
  const auto fault = [](const LogitRules& rules) {
    const absl::Status status = CheckLogitRules(rules, 10);
    EXPECT_EQ(ReasonOf(status).code(), "BAD_REQUEST");
    return std::string(status.message());
  };
  EXPECT_TRUE(CheckLogitRules({}, 10).ok());
  EXPECT_TRUE(CheckLogitRules({.presence_penalty = -2, .biases = {{9, 100.0F}}}, 10).ok());
  EXPECT_THAT(fault({.repetition_penalty = 0}), HasSubstr("repetition_penalty is 0"));
  EXPECT_THAT(fault({.repetition_penalty = std::nan("")}), HasSubstr("repetition_penalty"));
  EXPECT_THAT(fault({.presence_penalty = 2.1}), HasSubstr("presence_penalty"));
  EXPECT_THAT(fault({.frequency_penalty = -2.1}), HasSubstr("frequency_penalty"));
  EXPECT_THAT(fault({.biases = {{10, 1.0F}}}), HasSubstr("logit_bias names token 10"));
  EXPECT_THAT(fault({.biases = {{-1, 1.0F}}}), HasSubstr("logit_bias names token -1"));
  EXPECT_THAT(fault({.biases = {{1, 101.0F}}}), HasSubstr("logit_bias"));
  LogitRules many;
  for (int32_t i = 0; i <= 1024; ++i) many.biases.emplace_back(i, 1.0F);
  EXPECT_THAT(std::string(CheckLogitRules(many, 5000).message()), HasSubstr("1025 entries"));
}

// A chain of rows as a step with drafts has it: each right draft counts for the rows behind it.
TEST(LogitsProcessorTest, DraftsAreJudgedByTheRowsThatTheyLeadTo) {
  constexpr size_t kWidth = 40;
  std::mt19937 random(11);
  std::normal_distribution<float> normal(0.0F, 2.0F);
  for (uint32_t kind = 0; kind < 16; ++kind) {
    Tokens prompt(20);
    for (int32_t& token : prompt) token = static_cast<int32_t>(random() % kWidth);
    std::vector<float> logits(5 * kWidth);
    for (float& logit : logits) logit = normal(random);
    const SamplingTraits traits{.temperature = kind % 3 == 0 ? 0.0 : 0.9, .seed = kind};
    // One after the other, as without drafts.
    LogitsProcessor processor(SomeRules(kind), 3, {7}, prompt);
    LogitsProcessor taking(SomeRules(kind), 3, {7}, prompt);
    Tokens expected;
    for (size_t row = 0; row < 5; ++row) {
      RowSampling how{traits, 20 + row, {}, true, &taking};
      const std::span<const float> own(logits.data() + row * kWidth, kWidth);
      expected.push_back(SampleRow(own, how)->token);
      taking.Take(expected.back());
    }
    // In one step, the third draft wrong.
    std::vector<RowSampling> rows;
    for (size_t row = 0; row < 5; ++row) {
      rows.push_back({traits, 20 + row, {}, true, &processor});
      if (row < 4) rows.back().draft = row == 2 ? (expected[row] + 1) % 40 : expected[row];
    }
    const auto got = SampleRows(logits, rows, nullptr);
    for (size_t row = 0; row < 3; ++row) EXPECT_EQ(got[row]->token, expected[row]) << kind;
    EXPECT_FALSE(got[3].ok());
    rows[2].draft = expected[2];
    const auto all = SampleRows(logits, rows, nullptr);
    for (size_t row = 0; row < 5; ++row) EXPECT_EQ(all[row]->token, expected[row]) << kind;
  }
}

TextStream Letters() {
  return {[](int32_t token) { return std::string(1, static_cast<char>('a' + token)); },
          [] { return std::string(); }};
}

std::vector<float> Favour(int32_t first, int32_t second) {
  std::vector<float> logits(30, 0.0F);
  logits[static_cast<size_t>(first)] = 2.0F;
  logits[static_cast<size_t>(second)] = 1.0F;
  return logits;
}

TEST(GenerationRulesTest, AnAnswerDoesNotEndBeforeItsLeastNumberOfTokens) {
  Generation generation(
      {.prompt_tokens = 1, .context_length = 100, .end_tokens = {29}, .min_tokens = 2}, {}, {},
      Letters());
  EXPECT_EQ(generation.Next(Favour(29, 0))->token, 0);
  EXPECT_EQ(generation.Next(Favour(29, 1))->token, 1);
  EXPECT_EQ(generation.Next(Favour(29, 2))->finish, v1::FINISH_REASON_STOP);
}

TEST(GenerationRulesTest, StopStringsAreLookedForBehindTheLeastNumberOfTokens) {
  Generation generation({.prompt_tokens = 1, .context_length = 100, .min_tokens = 3}, {}, {"ab"},
                        Letters());
  std::string text;
  for (const int32_t token : {0, 1, 0}) text += generation.Take(token).text;
  EXPECT_EQ(text, "aba") << "nothing is held back either";
  EXPECT_EQ(generation.Take(1).text, "b") << "that one began before";
  EXPECT_EQ(generation.Take(0).text, "");
  EXPECT_EQ(generation.Take(1).finish, v1::FINISH_REASON_STOP);
}

TEST(GenerationRulesTest, MaxTokensEndsItEvenBefore) {
  Generation generation(
      {.prompt_tokens = 1, .max_tokens = 2, .context_length = 100, .min_tokens = 2}, {}, {"b"},
      Letters());
  EXPECT_EQ(generation.Take(0).text, "a");
  const auto last = generation.Take(1);
  EXPECT_EQ(last.text, "b");
  EXPECT_EQ(last.finish, v1::FINISH_REASON_LENGTH);
}

TEST(GenerationRulesTest, WhatWasSaidIsPenalised) {
  const Tokens prompt{4};
  Generation generation({.prompt_tokens = 1, .context_length = 100}, {}, {}, Letters(), {},
                        {.frequency_penalty = 2.0}, prompt);
  EXPECT_EQ(generation.Next(Favour(4, 5))->token, 4);
  EXPECT_EQ(generation.Next(Favour(4, 5))->token, 5);
  EXPECT_EQ(generation.Next(Favour(4, 5))->token, 0) << "both were said";
  Generation repeating({.prompt_tokens = 1, .context_length = 100}, {}, {}, Letters(), {},
                       {.repetition_penalty = 4.0}, prompt);
  EXPECT_EQ(repeating.Next(Favour(4, 5))->token, 5) << "the prompt counts here";
}

TEST(GenerationRulesTest, OutcomesSayWhereTheirTextBegins) {
  Generation generation({.prompt_tokens = 1, .context_length = 100}, {}, {"cde"}, Letters());
  EXPECT_EQ(generation.Take(0).text_begin, 0u);
  EXPECT_EQ(generation.Take(2).text_begin, 1u);
  EXPECT_EQ(generation.given_bytes(), 1u) << "the stop string's beginning waits";
  EXPECT_EQ(generation.Take(3).text_begin, 2u);
  const auto last = generation.Take(4);
  EXPECT_TRUE(last.at_stop_string);
  EXPECT_EQ(generation.given_bytes(), 1u);
}

}  // namespace
}  // namespace macrame::runtime::engine
