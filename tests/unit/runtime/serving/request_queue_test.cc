// Who comes next, and what a step will take.

#include "runtime/serving/request_queue.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "runtime/serving/step_cost.h"

namespace macrame::runtime::engine {
namespace {

using ::testing::ElementsAre;

constexpr Duration kAging = std::chrono::seconds(10);

MonotonicTime At(double seconds) {
  return MonotonicTime(Duration(static_cast<int64_t>(seconds * 1e6)));
}

class RequestQueueTest : public ::testing::Test {
 protected:
  void Come(RequestId id, const std::string& key, int32_t priority = 0, double at = 0.0,
            bool was_preempted = false) {
    queue_.Arrived(key);
    queue_.Push({id, key, priority, At(at), id, was_preempted});
  }
  RequestQueue queue_{kAging};
};

TEST_F(RequestQueueTest, WithinAKeyInOrderOfArrival) {
  Come(1, "a");
  Come(2, "a");
  EXPECT_THAT(queue_.Candidates(At(0)), ElementsAre(1, 2));
  queue_.Remove(1);
  EXPECT_THAT(queue_.Candidates(At(0)), ElementsAre(2));
}

TEST_F(RequestQueueTest, HigherPriorityFirst) {
  Come(1, "a", 0);
  Come(2, "b", 1);
  EXPECT_THAT(queue_.Candidates(At(1)), ElementsAre(2, 1));
}

TEST_F(RequestQueueTest, WhoWaitsRisesToTheHighestThatWaits) {
  Come(1, "a", -1, 0);
  Come(2, "b", 1, 25);
  EXPECT_THAT(queue_.Candidates(At(15)), ElementsAre(2, 1));
  // Level, after two intervals: then it is the keys' turn, and here the arrival decides.
  EXPECT_THAT(queue_.Candidates(At(25)), ElementsAre(1, 2));
}

TEST_F(RequestQueueTest, TheKeyThatWasServedLeastComesFirst) {
  Come(1, "a");
  Come(2, "b");
  queue_.Served("a", 1000);
  EXPECT_THAT(queue_.Candidates(At(0)), ElementsAre(2, 1));
  queue_.Served("b", 1001);
  EXPECT_THAT(queue_.Candidates(At(0)), ElementsAre(1, 2));
}

// Else one key's flood would rise above everybody who came a little later.
TEST_F(RequestQueueTest, AgeDoesNotPassOtherKeysOfTheSamePriority) {
  Come(1, "flood", 0, 0);
  Come(2, "flood", 0, 0);
  Come(3, "other", 0, 9);
  queue_.Served("flood", 100);
  EXPECT_THAT(queue_.Candidates(At(1000)), ElementsAre(3, 1, 2));
}

TEST_F(RequestQueueTest, AKeyThatPausedHasSavedNothingUp) {
  Come(1, "old");
  queue_.Served("old", 1000000);
  Come(2, "new");  // starts level with the least served that is active
  Come(3, "old");
  EXPECT_THAT(queue_.Candidates(At(0)), ElementsAre(1, 2, 3));
  queue_.Served("new", 10);
  EXPECT_THAT(queue_.Candidates(At(0)), ElementsAre(1, 3, 2));
}

TEST_F(RequestQueueTest, ThePreemptedComeFirstWithinTheirLevel) {
  Come(1, "a");
  Come(2, "b", 0, 0, true);
  Come(3, "b", 0, 0, true);
  Come(4, "c", 1);
  queue_.Served("b", 1000);
  EXPECT_THAT(queue_.Candidates(At(0)), ElementsAre(4, 2, 3, 1));
}

TEST_F(RequestQueueTest, AFullQueueSendsTheLastOfTheLongestLineAway) {
  for (RequestId id = 1; id <= 5; ++id) Come(id, "many");
  Come(6, "some");
  EXPECT_EQ(queue_.Displaced("new", 0), 5u);
  EXPECT_EQ(queue_.Displaced("some", 0), 5u);
  EXPECT_EQ(queue_.Displaced("many", 0), std::nullopt);
  EXPECT_EQ(queue_.Displaced("new", -1), std::nullopt) << "not one of higher priority";
}

// A machine with costs of its own: 4 ms a step, 1 ms an answer, 0.5 ms a prompt token, and
// 20 ns for each position looked at.
Duration Machine(const StepWork& work) {
  return Duration(static_cast<int64_t>(4000 + 1000.0 * work.decode_tokens +
                                       500.0 * work.prefill_tokens + 0.02 * work.attended));
}

TEST(StepCost, KeepsChunksWithinTheBudgetAfterAFewSteps) {
  StepCost cost(32);
  const Duration budget = std::chrono::milliseconds(50);
  uint32_t position = 0;
  int over = 0;
  uint32_t tokens = 0;
  for (int step = 0; step < 200; ++step) {
    StepWork work;
    work.decode_tokens = static_cast<uint32_t>(step % 5);
    work.attended = work.decode_tokens * 500;
    tokens = cost.TokensWithin(work, position, budget, 512);
    work.prefill_tokens = tokens;
    work.attended += StepWork::Attended(position, tokens);
    position += tokens;
    const Duration took = Machine(work);
    EXPECT_LT(took, budget * 8 / 5) << "step " << step;
    if (step >= 20 && took > budget * 11 / 10) ++over;
    cost.Learn(work, took);
  }
  EXPECT_LE(over, 4);
  EXPECT_GT(tokens, 40u) << "the budget is used";
}

TEST(StepCost, BeginsSmallAndAtMostDoubles) {
  StepCost cost(32);
  EXPECT_EQ(cost.TokensWithin({}, 0, std::chrono::seconds(1), 512), 32u);
  cost.Learn({0, 32, 500}, Duration(1));
  EXPECT_EQ(cost.TokensWithin({}, 0, std::chrono::seconds(1), 512), 64u);
}

TEST(StepCost, AnHourOfDecodingDoesNotUnlearnPrompts) {
  StepCost cost(512);
  for (int i = 0; i < 50; ++i) {
    const StepWork work{0, 64u * (1 + i % 3), 64};
    cost.Learn(work, Machine(work));
  }
  const uint32_t before = cost.TokensWithin({}, 0, std::chrono::milliseconds(60), 512);
  for (int i = 0; i < 10000; ++i) {
    const StepWork work{4, 0, 4000};
    cost.Learn(work, Machine(work));
  }
  const uint32_t after = cost.TokensWithin({}, 0, std::chrono::milliseconds(60), 512);
  EXPECT_NEAR(after, before, before / 5);
}

TEST(StepCost, OneSlowStepIsNoLesson) {
  StepCost cost(512);
  const StepWork work{2, 60, 6000};
  for (int i = 0; i < 50; ++i) cost.Learn(work, Machine(work));
  const Duration usual = cost.Predict(work);
  cost.Learn(work, std::chrono::seconds(20));
  EXPECT_LE(cost.Predict(work), usual * 3);
  for (int i = 0; i < 4; ++i) cost.Learn(work, Machine(work));
  EXPECT_LT(cost.Predict(work), usual * 5 / 4);
}

}  // namespace
}  // namespace macrame::runtime::engine
