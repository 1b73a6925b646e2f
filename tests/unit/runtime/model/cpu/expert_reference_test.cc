// Choices of experts of random routers against a plain sort in double precision, and what must hold
// of every choice.

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <random>
#include <utility>
#include <vector>

#include "runtime/model/cpu/expert_choice.h"

namespace macrame::runtime::engine {
namespace {

using Scores = std::vector<float>;

struct Router {
  ExpertTraits traits;
  Scores scores, correction;
};

int Pick(std::mt19937& random, int lowest, int highest) {
  return std::uniform_int_distribution<int>(lowest, highest)(random);
}

// Scores of steps that are far apart or equal.
Router RandomRouter(std::mt19937& random, RouterScores kind) {
  Router router;
  ExpertTraits& traits = router.traits;
  traits.scores = kind;
  traits.groups = Pick(random, 0, 1) == 0 ? 1 : Pick(random, 2, 5);
  const int each = Pick(random, 2, 9);
  traits.count = traits.groups * each;
  traits.groups_active = Pick(random, 1, traits.groups);
  traits.group_best = Pick(random, 1, 2);
  traits.active = Pick(random, 1, each * traits.groups_active);
  traits.normalized = Pick(random, 0, 1) == 1;
  traits.weight_scale = Pick(random, 0, 1) == 0 ? 1.0 : 2.5;
  for (int i = 0; i < traits.count; ++i) {
    router.scores.push_back(static_cast<float>(Pick(random, -6, 14)) * 0.25F);
  }
  if (kind != RouterScores::kSoftmax && Pick(random, 0, 1) == 0) {
    for (int i = 0; i < traits.count; ++i) {
      router.correction.push_back(static_cast<float>(Pick(random, 0, 9)) * 0.125F);
    }
  }
  return router;
}

double OwnScore(double score, RouterScores kind) {
  return kind == RouterScores::kSigmoid ? 1.0 / (1.0 + std::exp(-score))
                                        : std::sqrt(std::log1p(std::exp(score)));
}

// By what experts are chosen, as the engine rounds it, so that equal ones are equal here too.
std::vector<float> RanksOf(const Router& router) {
  const ExpertTraits& traits = router.traits;
  const bool is_softmax = traits.scores == RouterScores::kSoftmax;
  std::vector<float> ranks;
  const float most = *std::max_element(router.scores.begin(), router.scores.end());
  for (size_t i = 0; i < router.scores.size(); ++i) {
    const float score = router.scores[i];
    if (is_softmax) {
      ranks.push_back(traits.groups == 1 ? score : std::exp(score - most));
    } else {
      const float bias = router.correction.empty() ? 0.0F : router.correction[i];
      ranks.push_back(static_cast<float>(OwnScore(score, traits.scores)) + bias);
    }
  }
  if (traits.groups == 1) return ranks;
  const size_t each = ranks.size() / static_cast<size_t>(traits.groups);
  std::vector<std::pair<float, size_t>> groups;  // less their sum, so that the best comes first
  for (size_t group = 0; group < static_cast<size_t>(traits.groups); ++group) {
    const auto begin = ranks.begin() + static_cast<ptrdiff_t>(group * each);
    std::vector<float> own(begin, begin + static_cast<ptrdiff_t>(each));
    std::sort(own.rbegin(), own.rend());
    float sum = 0;
    for (int i = 0; i < traits.group_best; ++i) sum += own[static_cast<size_t>(i)];
    groups.emplace_back(-sum, group);
  }
  std::sort(groups.begin(), groups.end());
  for (size_t i = static_cast<size_t>(traits.groups_active); i < groups.size(); ++i) {
    const auto begin = ranks.begin() + static_cast<ptrdiff_t>(groups[i].second * each);
    std::fill(begin, begin + static_cast<ptrdiff_t>(each), 0.0F);
  }
  return ranks;
}

std::vector<ExpertChoice> Reference(const Router& router) {
  const ExpertTraits& traits = router.traits;
  const std::vector<float> ranks = RanksOf(router);
  std::vector<int> order(ranks.size());
  std::iota(order.begin(), order.end(), 0);
  std::stable_sort(order.begin(), order.end(), [&](int a, int b) {
    return ranks[static_cast<size_t>(a)] > ranks[static_cast<size_t>(b)];
  });
  order.resize(static_cast<size_t>(traits.active));
  std::sort(order.begin(), order.end());
  const auto amount = [&](int expert) {
    const double score = router.scores[static_cast<size_t>(expert)];
    return traits.scores == RouterScores::kSoftmax ? std::exp(score)
                                                   : OwnScore(score, traits.scores);
  };
  double all = 0, chosen = 0;
  for (int expert = 0; expert < traits.count; ++expert) all += amount(expert);
  for (const int expert : order) chosen += amount(expert);
  const bool is_share = traits.normalized || traits.scores == RouterScores::kSoftmax;
  const double whole = !is_share ? 1.0 : traits.normalized ? chosen : all;
  std::vector<ExpertChoice> out;
  for (const int expert : order) {
    out.push_back({expert, static_cast<float>(amount(expert) / whole * traits.weight_scale)});
  }
  return out;
}

std::vector<ExpertChoice> Choose(const Router& router) {
  std::vector<ExpertChoice> out(static_cast<size_t>(router.traits.active));
  ChooseExperts(router.scores, router.correction, router.traits, out);
  return out;
}

class ExpertReferenceTest : public ::testing::TestWithParam<RouterScores> {};

TEST_P(ExpertReferenceTest, TheSortsChoiceAndWeights) {
  std::mt19937 random(static_cast<uint32_t>(GetParam()) + 1);
  for (int round = 0; round < 3000; ++round) {
    const Router router = RandomRouter(random, GetParam());
    const auto chosen = Choose(router), expected = Reference(router);
    SCOPED_TRACE("round " + std::to_string(round));
    for (size_t i = 0; i < chosen.size(); ++i) {
      ASSERT_EQ(chosen[i].expert, expected[i].expert) << i;
      ASSERT_NEAR(chosen[i].weight, expected[i].weight, 1e-6 * expected[i].weight) << i;
    }
  }
}

// Whatever numbers a broken model gives: experts that exist, each once, ascending.
TEST_P(ExpertReferenceTest, AnyNumbersGiveExpertsThatExist) {
  std::mt19937 random(static_cast<uint32_t>(GetParam()) + 9);
  const float hostile[] = {
      std::numeric_limits<float>::quiet_NaN(), std::numeric_limits<float>::infinity(),
      -std::numeric_limits<float>::infinity(), std::numeric_limits<float>::max(),
      std::numeric_limits<float>::lowest(),    0.0F};
  for (int round = 0; round < 2000; ++round) {
    Router router = RandomRouter(random, GetParam());
    for (Scores* numbers : {&router.scores, &router.correction}) {
      for (float& number : *numbers) {
        if (Pick(random, 0, 2) > 0) number = hostile[Pick(random, 0, 5)];
      }
    }
    int last = -1;
    for (const ExpertChoice& choice : Choose(router)) {
      ASSERT_GT(choice.expert, last);
      ASSERT_LT(choice.expert, router.traits.count);
      last = choice.expert;
    }
  }
}

// What is added to all scores alike, and in which order experts stand, changes no weight.
TEST_P(ExpertReferenceTest, OrderDoesNotWeigh) {
  std::mt19937 random(static_cast<uint32_t>(GetParam()) + 21);
  for (int round = 0; round < 500; ++round) {
    Router router = RandomRouter(random, GetParam());
    router.traits.groups = router.traits.groups_active = 1;
    std::iota(router.scores.begin(), router.scores.end(), -3.0F);  // none are equal
    for (float& score : router.scores) score *= 0.125F;
    router.correction.clear();
    Router turned = router;
    std::reverse(turned.scores.begin(), turned.scores.end());
    const auto chosen = Choose(router);
    auto other = Choose(turned);
    std::reverse(other.begin(), other.end());
    for (size_t i = 0; i < chosen.size(); ++i) {
      ASSERT_EQ(chosen[i].expert, router.traits.count - 1 - other[i].expert);
      ASSERT_FLOAT_EQ(chosen[i].weight, other[i].weight);
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Scores, ExpertReferenceTest,
                         ::testing::Values(RouterScores::kSoftmax, RouterScores::kSigmoid,
                                           RouterScores::kRootSoftplus));

}  // namespace
}  // namespace macrame::runtime::engine
