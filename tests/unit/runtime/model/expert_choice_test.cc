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

}  // namespace
}  // namespace macrame::runtime::engine
