#include <gtest/gtest.h>

#include "runtime/serving/markup/steering.h"

namespace macrame::runtime::markup {
namespace {

constexpr int32_t kThink = 7, kAnything = 40;
constexpr Steering::Place kBefore{false, true}, kReasoning{true, false}, kBehind{false, false};

TEST(SteeringTest, WithoutAPlanTheModelChooses) {
  Steering steering({});
  EXPECT_EQ(steering.Choose(kAnything, false, kBefore), kAnything);
  EXPECT_EQ(steering.Choose(kAnything, true, kReasoning), kAnything);
  EXPECT_FALSE(steering.EndsAfter(3));
  EXPECT_EQ(steering.reasoning_tokens(), 1U);
}

TEST(SteeringTest, ASpentBudgetClosesReasoning) {
  SteeringPlan plan;
  plan.reasoning_tokens_max = 2;
  plan.close = {1, 2};
  plan.close_for_good = {3};
  Steering steering(plan);
  EXPECT_EQ(steering.Choose(kAnything, false, kReasoning), kAnything);
  EXPECT_EQ(steering.Choose(kAnything, false, kReasoning), kAnything);
  EXPECT_EQ(steering.Choose(kAnything, false, kReasoning), 1);
  EXPECT_EQ(steering.Choose(kAnything, false, kReasoning), 2);
  EXPECT_EQ(steering.Choose(kAnything, false, kBefore), kAnything);
  // It begins again: at once it is ended for good.
  EXPECT_EQ(steering.Choose(kAnything, false, kReasoning), 3);
  EXPECT_EQ(steering.reasoning_tokens(), 5U);
}

TEST(SteeringTest, AModelMayEndItselfWhenTheBudgetIsSpent) {
  SteeringPlan plan;
  plan.reasoning_tokens_max = 0;
  plan.close = {1};
  Steering steering(plan);
  EXPECT_EQ(steering.Choose(kAnything, true, kReasoning), kAnything);
}

TEST(SteeringTest, AnAnswerThatMustCallBeginsSo) {
  SteeringPlan plan;
  plan.call = {1, 2};
  plan.call_after_reasoning = {3};
  plan.think_open = kThink;
  plan.ends_with_first_call = true;
  Steering at_once(plan);
  EXPECT_EQ(at_once.Choose(kAnything, true, kBefore), 1);  // even if it would end
  EXPECT_EQ(at_once.Choose(kAnything, false, kBefore), 2);
  EXPECT_EQ(at_once.Choose(kAnything, false, kBehind), kAnything);
  EXPECT_FALSE(at_once.EndsAfter(0));
  EXPECT_TRUE(at_once.EndsAfter(1));

  Steering later(plan);
  EXPECT_EQ(later.Choose(kThink, false, kBefore), kThink);
  EXPECT_EQ(later.Choose(kAnything, false, kReasoning), kAnything);
  EXPECT_EQ(later.Choose(kAnything, false, kBefore), 3);
  EXPECT_EQ(later.Choose(kAnything, false, kBehind), kAnything);
}

TEST(SteeringTest, ABeginningComesWhateverIsChosen) {
  SteeringPlan plan;
  plan.begin = {5, 6};
  plan.call = {1};
  plan.call_after_reasoning = {3};
  Steering steering(plan);
  EXPECT_EQ(steering.Choose(kAnything, false, kBefore), 5);
  EXPECT_EQ(steering.Choose(kAnything, false, kBefore), 6);
  EXPECT_EQ(steering.Choose(kAnything, false, kReasoning), kAnything);
  EXPECT_EQ(steering.Choose(kAnything, false, kBefore), 3);
}

}  // namespace
}  // namespace macrame::runtime::markup
