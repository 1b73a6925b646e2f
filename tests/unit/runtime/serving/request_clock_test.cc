#include "runtime/serving/request_clock.h"

#include <gtest/gtest.h>

namespace macrame::runtime::engine {
namespace {

using std::chrono::milliseconds;

MonotonicTime At(int ms) { return MonotonicTime(milliseconds(ms)); }

TEST(RequestClock, FourTimesFollowOneAnother) {
  RequestClock clock(At(100), At(103));
  clock.Start(At(110));
  clock.AddStep(milliseconds(4));
  clock.AddStep(milliseconds(2));
  clock.FirstToken(At(150));
  clock.AddStep(milliseconds(1));
  clock.Interrupt();
  clock.Start(At(170));
  clock.FirstToken(At(180));
  const v1::RequestTimings timings = clock.Timings(At(200));
  EXPECT_DOUBLE_EQ(timings.preparing_ms(), 3);
  EXPECT_DOUBLE_EQ(timings.queued_ms(), 7);
  EXPECT_DOUBLE_EQ(timings.prefill_ms(), 40);
  EXPECT_DOUBLE_EQ(timings.decode_ms(), 50);
  EXPECT_EQ(timings.prefill_steps(), 2u);
  EXPECT_EQ(timings.decode_steps(), 1u);
  EXPECT_DOUBLE_EQ(timings.prefill_collective_ms(), 6);
  EXPECT_DOUBLE_EQ(timings.decode_collective_ms(), 1);
  EXPECT_EQ(timings.interruptions(), 1u);
}

TEST(RequestClock, OneThatEndsEarlyHasNothingOfWhatDidNotCome) {
  RequestClock waiting(At(100), At(103));
  const v1::RequestTimings timings = waiting.Timings(At(200));
  EXPECT_DOUBLE_EQ(timings.queued_ms(), 97);
  EXPECT_DOUBLE_EQ(timings.prefill_ms(), 0);
  EXPECT_DOUBLE_EQ(timings.decode_ms(), 0);
  EXPECT_FALSE(timings.has_prefill_collective_ms());
}

TEST(RequestClock, WaitsThatNobodyKnowsAreNotTold) {
  RequestClock clock(At(0), At(0));
  clock.Start(At(0));
  clock.AddStep(std::nullopt);
  clock.FirstToken(At(10));
  clock.AddStep(Duration(0));
  const v1::RequestTimings timings = clock.Timings(At(20));
  EXPECT_EQ(timings.prefill_steps(), 1u);
  EXPECT_FALSE(timings.has_prefill_collective_ms());
  EXPECT_TRUE(timings.has_decode_collective_ms()) << "none is not unknown";
}

}  // namespace
}  // namespace macrame::runtime::engine
