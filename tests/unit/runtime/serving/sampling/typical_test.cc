// Locally typical sampling against its definition, by probabilities in double.

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <random>
#include <set>

#include "runtime/serving/sampling/sampler.h"

namespace macrame::runtime::engine {
namespace {

// The set by its definition: sorted by |-ln p - H|, cut where the mass is reached.
std::set<int32_t> TypicalSet(const std::vector<float>& logits, double temperature, double mass) {
  std::vector<double> p;
  double sum = 0.0, entropy = 0.0;
  for (const float logit : logits) sum += p.emplace_back(std::exp(double{logit} / temperature));
  for (double& one : p) one /= sum;
  for (const double one : p) entropy -= one * std::log(one);
  std::vector<int32_t> order(p.size());
  for (size_t i = 0; i < p.size(); ++i) order[i] = static_cast<int32_t>(i);
  std::stable_sort(order.begin(), order.end(), [&](int32_t a, int32_t b) {
    const auto from = [&](int32_t t) {
      return std::fabs(-std::log(p[static_cast<size_t>(t)]) - entropy);
    };
    return from(a) < from(b);
  });
  std::set<int32_t> kept;
  double held = 0.0;
  for (const int32_t token : order) {
    kept.insert(token);
    held += p[static_cast<size_t>(token)];
    if (held >= mass) break;
  }
  return kept;
}

std::set<int32_t> Drawn(const std::vector<float>& logits, const SamplingTraits& traits) {
  std::set<int32_t> seen;
  for (uint64_t i = 0; i < 4000; ++i) seen.insert(*SampleToken(logits, traits, i));
  return seen;
}

TEST(TypicalTest, KeepsWhatIsAsSurprisingAsExpected) {
  // One token is far too expected: with little mass it is left out though it is the likeliest.
  const std::vector<float> logits{std::log(0.4F), std::log(0.15F), std::log(0.15F), std::log(0.15F),
                                  std::log(0.15F)};
  const auto drawn = Drawn(logits, {.temperature = 1.0, .typical_p = 0.25, .seed = 1});
  EXPECT_EQ(drawn, TypicalSet(logits, 1.0, 0.25));
  EXPECT_FALSE(drawn.contains(0));
}

TEST(TypicalTest, IsTheSetOfTheDefinition) {
  std::mt19937 random(6);
  for (int round = 0; round < 40; ++round) {
    std::normal_distribution<float> normal(0.0F, 0.5F + 0.1F * static_cast<float>(round));
    std::vector<float> logits(8 + random() % 12);
    for (float& logit : logits) logit = normal(random);
    const double temperature = round % 2 == 0 ? 1.0 : 0.7;
    for (const double mass : {0.05, 0.3, 0.6, 0.9}) {
      const auto expected = TypicalSet(logits, temperature, mass);
      const auto drawn = Drawn(logits, {.temperature = temperature, .typical_p = mass, .seed = 9});
      EXPECT_TRUE(std::includes(expected.begin(), expected.end(), drawn.begin(), drawn.end()))
          << "round " << round << ", mass " << mass;
      // What has a share of a hundredth is drawn in 4000 tries.
      for (const int32_t token : expected) {
        double held = 0.0;
        for (const int32_t other : expected) {
          held +=
              std::exp((logits[static_cast<size_t>(other)] - logits[static_cast<size_t>(token)]) /
                       temperature);
        }
        if (1.0 / held > 0.01) {
          EXPECT_TRUE(drawn.contains(token)) << round;
        }
      }
    }
  }
}

TEST(TypicalTest, CountsOnWhatTheOthersLeave) {
  const std::vector<float> logits{std::log(0.4F), std::log(0.3F), std::log(0.2F), std::log(0.1F)};
  const auto drawn = Drawn(logits, {.temperature = 1.0, .top_k = 2, .typical_p = 0.99, .seed = 4});
  EXPECT_EQ(drawn, (std::set<int32_t>{0, 1}));
  const auto one = Drawn(logits, {.temperature = 1.0, .top_k = 2, .typical_p = 0.4, .seed = 4});
  EXPECT_EQ(one.size(), 1u);
}

TEST(TypicalTest, GreedyAndTheDefaultAreAsEver) {
  const std::vector<float> logits{1, 3, 2};
  EXPECT_EQ(*SampleToken(logits, {.typical_p = 0.1}, 0), 1);
  EXPECT_TRUE(CheckSampling({.typical_p = 0.1}).ok());
  EXPECT_FALSE(CheckSampling({.typical_p = 0.0}).ok());
  EXPECT_FALSE(CheckSampling({.typical_p = 1.1}).ok());
  // NaN is no candidate, and a vocabulary of many thousand is no special case.
  std::vector<float> large(20000, -2.0F);
  large[5] = std::nanf("");
  for (uint64_t i = 0; i < 50; ++i) {
    const auto token = SampleToken(large, {.temperature = 1.0, .typical_p = 0.5, .seed = 1}, i);
    ASSERT_TRUE(token.ok());
    EXPECT_NE(*token, 5);
    EXPECT_LT(*token, 10001) << "half of what is alike, by id";
  }
}

}  // namespace
}  // namespace macrame::runtime::engine
