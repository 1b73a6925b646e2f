#include "runtime/model/expert_choice.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <vector>

namespace macrame::runtime::engine {
namespace {

std::vector<ExpertChoice> Choose(const std::vector<float>& scores, int active, bool normalized) {
  ExpertTraits traits;
  traits.count = static_cast<int>(scores.size());
  traits.active = active;
  traits.normalized = normalized;
  std::vector<ExpertChoice> out(static_cast<size_t>(active));
  ChooseExperts(scores, {}, traits, out);
  return out;
}

TEST(ExpertChoice, TheHighestScoresInTheOrderOfTheExperts) {
  const auto chosen = Choose({0.5F, 3.0F, -1.0F, 2.0F, 1.0F}, 3, true);
  EXPECT_EQ(chosen[0].expert, 1);
  EXPECT_EQ(chosen[1].expert, 3);
  EXPECT_EQ(chosen[2].expert, 4);
  const double sum = std::exp(3.0) + std::exp(2.0) + std::exp(1.0);
  EXPECT_NEAR(chosen[0].weight, std::exp(3.0) / sum, 1e-6);
  EXPECT_NEAR(chosen[2].weight, std::exp(1.0) / sum, 1e-6);
}

TEST(ExpertChoice, WeightsCountAllExpertsUnlessNormalized) {
  const auto chosen = Choose({1.0F, 1.0F, 1.0F, 1.0F}, 1, false);
  EXPECT_EQ(chosen[0].expert, 0) << "of equal ones the first";
  EXPECT_FLOAT_EQ(chosen[0].weight, 0.25F);
  EXPECT_FLOAT_EQ(Choose({1.0F, 1.0F, 1.0F, 1.0F}, 1, true)[0].weight, 1.0F);
}

TEST(ExpertChoice, AllOfThem) {
  const auto chosen = Choose({2.0F, 1.0F}, 2, true);
  EXPECT_EQ(chosen[0].expert, 0);
  EXPECT_EQ(chosen[1].expert, 1);
  EXPECT_FLOAT_EQ(chosen[0].weight + chosen[1].weight, 1.0F);
}

TEST(ExpertChoice, WhatIsNoNumberIsNotPreferred) {
  const float nan = std::numeric_limits<float>::quiet_NaN();
  const auto chosen = Choose({nan, -5.0F, nan}, 1, true);
  EXPECT_EQ(chosen[0].expert, 1);
  EXPECT_FLOAT_EQ(chosen[0].weight, 1.0F);
  for (const ExpertChoice& choice : Choose({nan, nan, nan}, 2, true)) {
    EXPECT_FLOAT_EQ(choice.weight, 0.5F);
  }
}

ExpertTraits SigmoidTraits(int count, int active) {
  ExpertTraits traits;
  traits.count = count;
  traits.active = active;
  traits.scores = RouterScores::kSigmoid;
  return traits;
}

std::vector<ExpertChoice> Choose(const std::vector<float>& scores, const std::vector<float>& bias,
                                 const ExpertTraits& traits) {
  std::vector<ExpertChoice> out(static_cast<size_t>(traits.active));
  ChooseExperts(scores, bias, traits, out);
  return out;
}

TEST(ExpertChoice, ABiasDecidesWhoIsChosenAndNotWhatItWeighs) {
  ExpertTraits traits = SigmoidTraits(3, 2);
  const auto plain = Choose({2.0F, 1.0F, 0.0F}, {}, traits);
  EXPECT_EQ(plain[0].expert, 0);
  EXPECT_EQ(plain[1].expert, 1);
  const auto biased = Choose({2.0F, 1.0F, 0.0F}, {0.0F, 0.0F, 0.5F}, traits);
  EXPECT_EQ(biased[0].expert, 0);
  EXPECT_EQ(biased[1].expert, 2);
  EXPECT_NEAR(biased[1].weight, 0.5, 1e-6);
  traits.normalized = true;
  traits.weight_scale = 1.5;
  const double first = 1.0 / (1.0 + std::exp(-2.0));
  const auto shares = Choose({2.0F, 1.0F, 0.0F}, {0.0F, 0.0F, 0.5F}, traits);
  EXPECT_NEAR(shares[0].weight, 1.5 * first / (first + 0.5), 1e-6);
  EXPECT_NEAR(shares[0].weight + shares[1].weight, 1.5, 1e-6);
}

TEST(ExpertChoice, OnlyTheBestGroupsAreChosenFrom) {
  ExpertTraits traits = SigmoidTraits(6, 2);
  traits.groups = 3;
  traits.groups_active = 1;
  // The best expert is in the first group, the best two together are the third.
  const auto chosen = Choose({3.0F, -9.0F, 0.0F, 0.0F, 2.0F, 1.0F}, {}, traits);
  EXPECT_EQ(chosen[0].expert, 4);
  EXPECT_EQ(chosen[1].expert, 5);
  traits.groups_active = 2;
  const auto wider = Choose({3.0F, -9.0F, 0.0F, 0.0F, 2.0F, 1.0F}, {}, traits);
  EXPECT_EQ(wider[0].expert, 4);
  EXPECT_EQ(wider[1].expert, 5);
  const auto three = [&] {
    traits.groups_active = 3;
    return Choose({3.0F, -9.0F, 0.0F, 0.0F, 2.0F, 1.0F}, {}, traits);
  }();
  EXPECT_EQ(three[0].expert, 0);
  EXPECT_EQ(three[1].expert, 4);
}

}  // namespace
}  // namespace macrame::runtime::engine
