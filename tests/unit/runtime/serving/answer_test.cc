// What an answer's chunks carry beside its text: each token's logprob, in order, and none of what a
// stop string took.

#include "runtime/serving/answer.h"

#include <gtest/gtest.h>

#include <cmath>

namespace macrame::runtime::engine {
namespace {

constexpr int32_t kEnd = 29;

// Tokens 0-25 are letters, 26 has no text.
TextStream Letters() {
  const auto letter = [](int32_t token) {
    return token == 26 ? std::string() : std::string(1, static_cast<char>('a' + token));
  };
  return {letter, [] { return std::string(); }, letter};
}

struct Told {
  std::string text;
  std::string tokens;  // the text of those that had a logprob
  std::vector<v1::TokenLogprob> logprobs;
  std::vector<int32_t> ids;
  int early = 0;  // logprobs that came before any of their text
};

Told Tell(const std::vector<int32_t>& tokens, std::vector<std::string> stops,
          std::optional<uint32_t> top, uint32_t max_tokens = 0) {
  GenerationJob job;
  job.prompt = {1};
  job.limits = {
      .prompt_tokens = 1, .max_tokens = max_tokens, .context_length = 1000, .end_tokens = {kEnd}};
  job.stops = std::move(stops);
  job.top_logprobs = top;
  Told told;
  Answer answer(
      job, Letters(),
      [&](const v1::GenerateChunk& chunk) {
        told.text += chunk.text();
        for (const v1::TokenLogprob& one : chunk.logprobs()) {
          told.tokens += one.text();
          told.logprobs.push_back(one);
          if (told.tokens.size() > told.text.size()) ++told.early;
        }
        told.ids.insert(told.ids.end(), chunk.token_ids().begin(), chunk.token_ids().end());
      },
      std::chrono::steady_clock::now());
  for (const int32_t token : tokens) {
    std::vector<float> logits(30, 0.0F);
    logits[static_cast<size_t>(token)] = 5.0F;
    const auto next = answer.Next(logits);
    EXPECT_TRUE(next.ok());
    if (!next->has_value()) break;
  }
  return told;
}

TEST(AnswerLogprobsTest, EachTokenHasOneAndTheEndTokenNone) {
  const Told told = Tell({7, 4, 11, 26, 11, 14, kEnd}, {}, 3);
  EXPECT_EQ(told.text, "hello");
  EXPECT_EQ(told.tokens, "hello");
  ASSERT_EQ(told.logprobs.size(), 6u);
  ASSERT_EQ(told.ids.size(), 6u);
  const double expected = 5.0 - std::log(std::exp(5.0) + 29.0);
  for (size_t i = 0; i < 6; ++i) {
    EXPECT_EQ(told.logprobs[i].token_id(), told.ids[i]);
    EXPECT_NEAR(told.logprobs[i].logprob(), expected, 1e-5);
    ASSERT_EQ(told.logprobs[i].top_size(), 3);
    EXPECT_EQ(told.logprobs[i].top(0).token_id(), told.ids[i]);
    EXPECT_EQ(told.logprobs[i].top(0).logprob(), told.logprobs[i].logprob());
  }
  EXPECT_EQ(told.logprobs[0].top(1).text(), "a");
  EXPECT_EQ(told.early, 0);
}

// Letters: "ab" opens with reasoning in "b", which "c" closes.
TEST(AnswerLogprobsTest, OfReasoningNoneIsTold) {
  auto dialect = std::make_shared<markup::Dialect>();
  dialect->think_open = "b";
  dialect->think_close = "c";
  GenerationJob job;
  job.prompt = {1};
  job.limits = {.prompt_tokens = 1, .context_length = 1000, .end_tokens = {kEnd}};
  job.top_logprobs = 0;
  job.shape.markup.dialect = dialect;
  std::string text, reasoning, told;
  Answer answer(
      job, Letters(),
      [&](const v1::GenerateChunk& chunk) {
        text += chunk.text();
        reasoning += chunk.reasoning();
        for (const v1::TokenLogprob& one : chunk.logprobs()) told += one.text();
      },
      std::chrono::steady_clock::now());
  for (const int32_t token : {1, 3, 4, 2, 5, 6, int32_t{kEnd}}) {
    std::vector<float> logits(30, 0.0F);
    logits[static_cast<size_t>(token)] = 5.0F;
    ASSERT_TRUE(answer.Next(logits).ok());
  }
  EXPECT_EQ(reasoning, "de");
  EXPECT_EQ(text, "fg");
  EXPECT_EQ(told, "fg");
}

TEST(AnswerLogprobsTest, WithoutBeingAskedForThereAreNone) {
  EXPECT_TRUE(Tell({7, 4, kEnd}, {}, std::nullopt).logprobs.empty());
  const Told alone = Tell({7, 4, kEnd}, {}, 0);
  ASSERT_EQ(alone.logprobs.size(), 2u);
  EXPECT_EQ(alone.logprobs[0].top_size(), 0);
}

TEST(AnswerLogprobsTest, AStopStringsTokensAreNotTold) {
  const Told told = Tell({0, 1, 2, 3, 4}, {"cde"}, 1);
  EXPECT_EQ(told.text, "ab");
  EXPECT_EQ(told.tokens, "ab");
  const Told not_quite = Tell({0, 2, 3, 5, 2, 3, 4}, {"cde"}, 1);
  EXPECT_EQ(not_quite.text, "acdf");
  EXPECT_EQ(not_quite.tokens, "acdf");
  EXPECT_EQ(not_quite.early, 0);
}

TEST(AnswerLogprobsTest, WhatLooksLikeAStopStringIsToldWhenTheAnswerEnds) {
  const Told ended = Tell({0, 2, 3, kEnd}, {"cde"}, 1);
  EXPECT_EQ(ended.tokens, "acd");
  const Told cut = Tell({0, 2, 3, 4}, {"cdeee"}, 1, 3);
  EXPECT_EQ(cut.text, "acd");
  EXPECT_EQ(cut.tokens, "acd");
}

TEST(AnswerLogprobsTest, TokensWithoutTextDoNotPileUp) {
  std::vector<int32_t> tokens(600, 26);
  const Told told = Tell(tokens, {"x"}, 0);
  EXPECT_GE(told.logprobs.size(), 600 - kHeldLogprobsMax);
}

}  // namespace
}  // namespace macrame::runtime::engine
