#include "runtime/serving/sampling/logprobs.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <random>

#include "runtime/serving/sampling/logits_processor.h"
#include "runtime/serving/sampling/row_sampling.h"

namespace macrame::runtime::engine {
namespace {

constexpr float kInf = std::numeric_limits<float>::infinity();
constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

std::vector<float> RandomRow(size_t size, uint32_t seed) {
  std::mt19937 random(seed);
  std::normal_distribution<float> normal(-3.0F, 4.0F);
  std::vector<float> logits(size);
  for (float& logit : logits) logit = normal(random);
  if (seed % 3 == 0) {  // many that are equal
    for (float& logit : logits) logit = std::round(logit);
  }
  return logits;
}

TEST(LogprobsTest, AreThoseOfTheSoftmax) {
  for (uint32_t seed = 0; seed < 30; ++seed) {
    const size_t size = 1 + seed * seed * 13;
    const auto logits = RandomRow(size, seed);
    double sum = 0.0;
    for (const float logit : logits) sum += std::exp(double{logit});
    std::vector<int32_t> order(size);
    std::iota(order.begin(), order.end(), 0);
    std::stable_sort(order.begin(), order.end(), [&](int32_t a, int32_t b) {
      return logits[static_cast<size_t>(a)] > logits[static_cast<size_t>(b)];
    });
    const auto token = static_cast<int32_t>(seed * 7 % size);
    const ChosenLogprob got = LogprobsOf(logits, token, kTopLogprobsMax);
    EXPECT_NEAR(got.logprob, logits[static_cast<size_t>(token)] - std::log(sum), 1e-4);
    ASSERT_EQ(got.top.size(), std::min<size_t>(kTopLogprobsMax, size));
    for (size_t i = 0; i < got.top.size(); ++i) {
      EXPECT_EQ(got.top[i].token, order[i]) << i;
      const float logit = logits[static_cast<size_t>(order[i])];
      EXPECT_NEAR(got.top[i].logprob, logit - std::log(sum), 1e-4);
      if (order[i] == token) {
        EXPECT_EQ(got.top[i].logprob, got.logprob);
      }
    }
  }
}

TEST(LogprobsTest, OfAWholeVocabularySumUpToOne) {
  const auto logits = RandomRow(20, 4);
  const ChosenLogprob got = LogprobsOf(logits, 0, 20);
  double sum = 0.0;
  for (const TokenLogprob& one : got.top) sum += std::exp(double{one.logprob});
  EXPECT_NEAR(sum, 1.0, 1e-6);
}

TEST(LogprobsTest, WithoutAlternativesThereAreNone) {
  EXPECT_TRUE(LogprobsOf(RandomRow(500, 1), 3, 0).top.empty());
}

TEST(LogprobsTest, WhatHasNoProbabilityIsAtTheBottom) {
  const ChosenLogprob got = LogprobsOf(std::vector<float>{0, -kInf, kNan, 0}, 1, 3);
  EXPECT_EQ(got.logprob, kLogprobMin);
  ASSERT_EQ(got.top.size(), 3u);
  EXPECT_NEAR(got.top[0].logprob, std::log(0.5), 1e-6);
  EXPECT_EQ(got.top[2].token, 1);
  EXPECT_EQ(got.top[2].logprob, kLogprobMin);
}

// Biases, penalties, temperature and cuts choose another token; the numbers stay the model's.
TEST(LogprobsTest, AreTheModelsWhateverTheChoice) {
  const auto logits = RandomRow(1000, 8);
  const LogitsProcessor processor({.biases = {{17, 100.0F}}}, 0, {}, {});
  RowSampling how{{.temperature = 3.0, .top_k = 5, .seed = 2}, 0, {}, true, &processor, 4};
  const auto sampled = SampleRow(logits, how);
  ASSERT_TRUE(sampled.ok());
  EXPECT_EQ(sampled->token, 17);
  ASSERT_TRUE(sampled->logprob.has_value());
  const ChosenLogprob plain = LogprobsOf(logits, 17, 4);
  EXPECT_EQ(sampled->logprob->logprob, plain.logprob);
  ASSERT_EQ(sampled->logprob->top.size(), 4u);
  for (size_t i = 0; i < 4; ++i) {
    EXPECT_EQ(sampled->logprob->top[i].token, plain.top[i].token);
    EXPECT_EQ(sampled->logprob->top[i].logprob, plain.top[i].logprob);
  }
  how.top_logprobs.reset();
  EXPECT_FALSE(SampleRow(logits, how)->logprob.has_value());
}

}  // namespace
}  // namespace macrame::runtime::engine
