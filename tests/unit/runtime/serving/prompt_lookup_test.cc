#include "runtime/serving/prompt_lookup.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <random>

namespace macrame::runtime::engine {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;
using Tokens = std::vector<int32_t>;

PromptLookup Following(const Tokens& tokens) {
  PromptLookup lookup;
  lookup.Follow(tokens, static_cast<uint32_t>(tokens.size()));
  return lookup;
}

TEST(PromptLookup, DraftsWhatFollowedTheSameTokensLast) {
  const Tokens tokens{1, 2, 3, 4, 5, 9, 1, 2, 3, 6, 7, 8, 1, 2, 3};
  EXPECT_THAT(Following(tokens).Draft(tokens, 4), ElementsAre(6, 7, 8, 1));
  EXPECT_THAT(Following(tokens).Draft(tokens, 1), ElementsAre(6));
  const Tokens fresh{1, 2, 3, 4, 5, 2, 3};
  EXPECT_THAT(Following(fresh).Draft(fresh, 4), IsEmpty()) << "two tokens say too little";
}

TEST(PromptLookup, WhatRepeatsItselfGoesOnRepeating) {
  const Tokens one{5, 7, 7, 7, 7};
  EXPECT_THAT(Following(one).Draft(one, 5), ElementsAre(7, 7, 7, 7, 7));
  const Tokens three{9, 1, 2, 3, 1, 2, 3};
  EXPECT_THAT(Following(three).Draft(three, 5), ElementsAre(1, 2, 3, 1, 2));
}

TEST(PromptLookup, StaysWithItsSourceWhileThatIsRight) {
  // 1 2 3 stood twice; what follows shows which one is quoted.
  Tokens tokens{1, 2, 3, 4, 5, 6, 7, 0, 4, 5, 6, 8, 1, 2, 3};
  PromptLookup lookup = Following(tokens);
  for (const int32_t token : {4, 5, 6}) {
    tokens.push_back(token);
    lookup.Follow(tokens, 0);
  }
  EXPECT_THAT(lookup.Draft(tokens, 1), ElementsAre(7));
}

TEST(PromptLookup, KnowsHowOftenItIsRight) {
  std::mt19937 random(1);
  Tokens right, wrong;
  for (int i = 0; i < 600; ++i) {
    right.push_back(i % 50);
    wrong.push_back(static_cast<int32_t>(random() % 3));
  }
  PromptLookup of_right, of_wrong;
  of_right.Follow(right, 10);
  of_wrong.Follow(wrong, 10);
  EXPECT_GT(of_right.RateAt(0), 0.9);
  EXPECT_LT(of_wrong.RateAt(0), 0.6);
  EXPECT_LT(of_wrong.RateAt(2), 0.7);
}

TEST(PromptLookup, TakesALongPromptInBoundedParts) {
  Tokens tokens(3 * kFollowedAtOnceMax);
  for (size_t i = 0; i < tokens.size(); ++i) tokens[i] = static_cast<int32_t>(i % 1000);
  PromptLookup lookup;
  for (int call = 0; call < 3; ++call) {
    EXPECT_THAT(lookup.Draft(tokens, 2), IsEmpty()) << "after " << call << " calls";
    lookup.Follow(tokens, 0);
  }
  EXPECT_THAT(lookup.Draft(tokens, 2), ElementsAre(288, 289));
}

}  // namespace
}  // namespace macrame::runtime::engine
