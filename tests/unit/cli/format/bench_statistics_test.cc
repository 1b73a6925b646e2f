#include "cli/format/bench_statistics.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <set>

namespace macrame::cli {
namespace {

BenchSample Answered(double sent, double first, double ended, uint32_t tokens) {
  BenchSample sample;
  sample.sent_ms = sent;
  sample.first_token_ms = first;
  sample.ended_ms = ended;
  sample.prompt_tokens = 100;
  sample.completion_tokens = tokens;
  sample.first_tokens = 1;
  sample.last_token_ms = ended;
  return sample;
}

TEST(BenchStatistics, QuantilesAreValuesThatWereSeen) {
  EXPECT_EQ(QuantileOf({}, 0.5), 0);
  EXPECT_EQ(QuantileOf({7}, 0.95), 7);
  EXPECT_EQ(QuantileOf({4, 1, 3, 2}, 0.5), 2);
  EXPECT_EQ(QuantileOf({4, 1, 3, 2}, 0.95), 4);
  EXPECT_EQ(QuantileOf({4, 1, 3, 2}, 0), 1);
}

// Two users at once: prompts are computed from 0 to 200 ms, answers come from 100 to 1200 ms.
TEST(BenchStatistics, RatesAreOfAllUsersTogether) {
  BenchSample second = Answered(0, 200, 1200, 11);
  second.cached_tokens = 40;
  const BenchRow row = Summarize({2, 100, 11}, {Answered(0, 100, 1100, 11), second});
  EXPECT_EQ(row.requests, 2u);
  EXPECT_EQ(row.errors, 0u);
  EXPECT_EQ(row.cached_tokens, 40u);
  EXPECT_DOUBLE_EQ(row.prefill_rate, 160 / 0.2);
  EXPECT_DOUBLE_EQ(row.decode_rate, 20 / 1.1);
  EXPECT_DOUBLE_EQ(row.total_rate, 222 / 1.2);
  EXPECT_DOUBLE_EQ(row.ttft_p50_ms, 100);
  EXPECT_DOUBLE_EQ(row.ttft_max_ms, 200);
  EXPECT_DOUBLE_EQ(row.tpot_p50_ms, 100);
  EXPECT_DOUBLE_EQ(row.answer_tokens, 11);
  EXPECT_DOUBLE_EQ(row.seconds, 1.2);
}

// A drafted answer comes several tokens at a time: 36 tokens a second are 28 ms each all the same.
TEST(BenchStatistics, ATokensTimeIsTheAnswersNotThatBetweenArrivals) {
  BenchSample drafted = Answered(0, 100, 1100, 41);
  drafted.first_tokens = 5;  // that came at once
  const BenchRow row = Summarize({1, 100, 41}, {drafted});
  EXPECT_DOUBLE_EQ(row.tpot_p50_ms, 1000.0 / 36);
  EXPECT_DOUBLE_EQ(row.tpot_p95_ms, 1000.0 / 36);
  // Of an answer that came at once there is nothing to say, and no division by zero.
  drafted.first_tokens = 41;
  drafted.last_token_ms = drafted.first_token_ms;
  EXPECT_EQ(Summarize({1, 100, 41}, {drafted}).tpot_p50_ms, 0);
}

TEST(BenchStatistics, TimeInWhichNobodyWaitedDoesNotCount) {
  const BenchRow row =
      Summarize({1, 100, 3}, {Answered(0, 100, 300, 3), Answered(5000, 5100, 5300, 3)});
  EXPECT_DOUBLE_EQ(row.prefill_rate, 200 / 0.2);
  EXPECT_DOUBLE_EQ(row.decode_rate, 4 / 0.4);
}

TEST(BenchStatistics, ErrorsAreCountedAndTimeNothing) {
  BenchSample failed;
  failed.ended_ms = 3;
  failed.error = "QUEUE_FULL: 32 requests wait";
  const BenchRow row = Summarize({1, 100, 3}, {failed, Answered(0, 100, 300, 3), failed});
  EXPECT_EQ(row.requests, 3u);
  EXPECT_EQ(row.errors, 2u);
  EXPECT_EQ(row.first_error, "QUEUE_FULL: 32 requests wait");
  EXPECT_DOUBLE_EQ(row.ttft_p50_ms, 100);
  const BenchRow none = Summarize({1, 100, 3}, {failed});
  EXPECT_EQ(none.ttft_p50_ms, 0);
  EXPECT_EQ(none.decode_rate, 0);
}

TEST(BenchStatistics, PromptsDifferFromTheirFirstWordUnlessTheyAreToShare) {
  std::set<std::string> first_words;
  for (uint64_t number = 0; number < 200; ++number) {
    const std::string prompt = BenchPrompt(5, number, 40, 0);
    EXPECT_EQ(std::count(prompt.begin(), prompt.end(), ' '), 39);
    first_words.insert(prompt.substr(0, prompt.find(' ')));
  }
  EXPECT_GE(first_words.size(), 199u);
  const std::string one = BenchPrompt(5, 1, 40, 30), other = BenchPrompt(5, 2, 40, 30);
  size_t alike = 0;
  while (one[alike] == other[alike]) ++alike;
  EXPECT_EQ(std::count(one.begin(), one.begin() + static_cast<ptrdiff_t>(alike), ' '), 30);
  EXPECT_NE(BenchPrompt(5, 1, 40, 0), BenchPrompt(6, 1, 40, 0)) << "another run, other prompts";
  EXPECT_EQ(BenchPrompt(5, 1, 8, 8), BenchPrompt(5, 2, 8, 8));
}

}  // namespace
}  // namespace macrame::cli
