#include "runtime/model/cpu/expert_choice.h"

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

float Sigmoid(float x) { return 1.0F / (1.0F + std::exp(-x)); }

// Six experts by sigmoid, two of which a token takes.
ExpertTraits SigmoidTraits() {
  ExpertTraits traits;
  traits.count = 6;
  traits.active = 2;
  traits.scores = RouterScores::kSigmoid;
  return traits;
}

std::vector<ExpertChoice> Choose(const std::vector<float>& scores,
                                 const std::vector<float>& correction, const ExpertTraits& traits) {
  std::vector<ExpertChoice> out(static_cast<size_t>(traits.active));
  ChooseExperts(scores, correction, traits, out);
  return out;
}

TEST(ExpertChoice, BySigmoidEachForItselfOrAsItsShare) {
  ExpertTraits traits = SigmoidTraits();
  traits.weight_scale = 2.5;
  const std::vector<float> scores = {0.5F, 3.0F, -1.0F, 2.0F, 1.0F, 0.0F};
  const auto chosen = Choose(scores, {}, traits);
  EXPECT_EQ(chosen[0].expert, 1);
  EXPECT_EQ(chosen[1].expert, 3);
  EXPECT_NEAR(chosen[0].weight, 2.5F * Sigmoid(3.0F), 1e-6);
  EXPECT_NEAR(chosen[1].weight, 2.5F * Sigmoid(2.0F), 1e-6);
  traits.normalized = true;
  const float sum = Sigmoid(3.0F) + Sigmoid(2.0F);
  EXPECT_NEAR(Choose(scores, {}, traits)[0].weight, 2.5F * Sigmoid(3.0F) / sum, 1e-6);
}

TEST(ExpertChoice, ACorrectionChoosesButDoesNotWeigh) {
  ExpertTraits traits = SigmoidTraits();
  const auto chosen =
      Choose({0.5F, 3.0F, -1.0F, 2.0F, 1.0F, 0.0F}, {0.0F, 0.0F, 1.0F, 0.0F, 0.0F, 0.0F}, traits);
  EXPECT_EQ(chosen[0].expert, 1);
  EXPECT_EQ(chosen[1].expert, 2) << "the lowest score, but for its correction";
  EXPECT_NEAR(chosen[1].weight, Sigmoid(-1.0F), 1e-6);
}

TEST(ExpertChoice, OnlyTheBestGroupsAreChosenFrom) {
  ExpertTraits traits = SigmoidTraits();
  traits.groups = 3;
  traits.groups_active = 1;
  traits.group_best = 2;
  const std::vector<float> scores = {5.0F, -5.0F, 0.5F, 0.5F, 1.0F, 3.0F};
  auto chosen = Choose(scores, {}, traits);
  EXPECT_EQ(chosen[0].expert, 4) << "0.73 + 0.95 is more than 0.99 + 0.01";
  EXPECT_EQ(chosen[1].expert, 5);
  traits.group_best = 1;
  chosen = Choose(scores, {}, traits);
  EXPECT_EQ(chosen[0].expert, 0) << "the best one is in the first group";
  EXPECT_EQ(chosen[1].expert, 1);
}

TEST(ExpertChoice, GroupsOfSoftmaxWeighsAsWithout) {
  ExpertTraits traits = SigmoidTraits();
  traits.scores = RouterScores::kSoftmax;
  traits.groups = 2;
  const std::vector<float> scores = {-50.0F, -51.0F, -52.0F, -60.0F, -49.0F, -61.0F};
  const auto chosen = Choose(scores, {}, traits);
  EXPECT_EQ(chosen[0].expert, 3);
  EXPECT_EQ(chosen[1].expert, 4);
  double sum = 0;
  for (const float score : scores) sum += std::exp(score + 49.0);
  EXPECT_NEAR(chosen[1].weight, 1.0 / sum, 1e-6);
}

TEST(ExpertChoice, BySigmoidWhatIsNoNumberIsNotPreferred) {
  const float nan = std::numeric_limits<float>::quiet_NaN();
  ExpertTraits traits = SigmoidTraits();
  traits.normalized = true;
  const auto chosen = Choose({nan, -5.0F, nan, nan, -5.0F, nan}, {}, traits);
  EXPECT_EQ(chosen[0].expert, 1);
  EXPECT_EQ(chosen[1].expert, 4);
}

}  // namespace
}  // namespace macrame::runtime::engine
