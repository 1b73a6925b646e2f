#include "agentd/cores/gpu_watch.h"

#include <gtest/gtest.h>

#include <limits>

namespace macrame::agentd {
namespace {

using std::chrono::hours;
using std::chrono::minutes;
using std::chrono::seconds;

class GpuWatchTest : public ::testing::Test {
 protected:
  // Two seconds apart, as LinkTable reads.
  void Pass(Duration span, double busy, bool ranks_run) {
    for (const MonotonicTime end = now_ + span; now_ < end; now_ += seconds(2)) {
      watch_.Note(busy, ranks_run, now_);
    }
    watch_.Note(busy, ranks_run, now_);
  }
  // A rank that computed was killed, and the GPU goes on.
  void BeWedged(Duration span) {
    Pass(minutes(1), 0.1, false);
    Pass(minutes(1), 0.2, true);
    Pass(minutes(1), 1.0, true);
    Pass(span, 1.0, false);
  }

  GpuWatch watch_;
  MonotonicTime now_{hours(1)};
};

TEST_F(GpuWatchTest, AGpuThatStaysBusyAfterItsRankIsToldFromThirtySecondsOn) {
  BeWedged(seconds(28));
  EXPECT_EQ(watch_.AloneSeconds(), 0u);
  Pass(seconds(2), 0.95, false);
  EXPECT_EQ(watch_.AloneSeconds(), 30u);
}

// Each change is sent to all nodes.
TEST_F(GpuWatchTest, ADayOfItChangesADozenTimes) {
  BeWedged(seconds(30));
  int changes = 0;
  for (uint32_t told = watch_.AloneSeconds(); now_ < MonotonicTime(hours(26));) {
    Pass(seconds(2), 1.0, false);
    if (watch_.AloneSeconds() == told) continue;
    EXPECT_EQ(watch_.AloneSeconds(), 2 * told);
    told = watch_.AloneSeconds();
    ++changes;
  }
  EXPECT_EQ(changes, 11);
}

TEST_F(GpuWatchTest, ARankThatRunsMayKeepItBusy) {
  BeWedged(minutes(2));
  EXPECT_EQ(watch_.AloneSeconds(), 120u);
  watch_.Note(1.0, true, now_);
  EXPECT_EQ(watch_.AloneSeconds(), 0u);
  // It was launched on a GPU that was wedged by the one before it.
  Pass(minutes(1), 1.0, true);
  Pass(seconds(30), 1.0, false);
  EXPECT_EQ(watch_.AloneSeconds(), 30u) << "since the last rank ended";
}

TEST_F(GpuWatchTest, WhereNoRankEverRanItIsAnotherProgram) {
  Pass(hours(1), 1.0, false);
  EXPECT_EQ(watch_.AloneSeconds(), 0u);
}

TEST_F(GpuWatchTest, WhatWasBusyBeforeTheRankIsAnotherProgram) {
  Pass(minutes(5), 1.0, false);
  Pass(minutes(5), 1.0, true);
  Pass(hours(1), 1.0, false);
  EXPECT_EQ(watch_.AloneSeconds(), 0u);
}

TEST_F(GpuWatchTest, WhatBeganLongAfterTheRankIsAnotherProgram) {
  Pass(minutes(1), 1.0, true);
  Pass(minutes(1), 0.0, false);
  Pass(hours(1), 1.0, false);
  EXPECT_EQ(watch_.AloneSeconds(), 0u);
}

TEST_F(GpuWatchTest, OneReadingThatIsLowerOrNotKnownEndsIt) {
  for (const double busy : {0.94, 0.0, -1.0, std::numeric_limits<double>::quiet_NaN()}) {
    BeWedged(minutes(1));
    EXPECT_EQ(watch_.AloneSeconds(), 60u);
    watch_.Note(busy, false, now_);
    EXPECT_EQ(watch_.AloneSeconds(), 0u) << busy;
    now_ += minutes(1);
  }
}

// The load that is at hand when a rank dies is still that of ten seconds ago.
TEST_F(GpuWatchTest, ARankThatDiesBeforeItsWorkIsReadIsNotMissed) {
  Pass(minutes(1), 0.0, false);
  Pass(seconds(4), 0.0, true);
  Pass(seconds(8), 0.0, false);
  Pass(seconds(32), 1.0, false);
  EXPECT_EQ(watch_.AloneSeconds(), 30u);
}

TEST_F(GpuWatchTest, TheWorkOfARankThatEndedInOrderIsNotToldAfterIt) {
  Pass(minutes(10), 1.0, true);
  Pass(seconds(18), 1.0, false);  // an old reading
  EXPECT_EQ(watch_.AloneSeconds(), 0u);
  Pass(minutes(10), 0.02, false);
  EXPECT_EQ(watch_.AloneSeconds(), 0u);
}

TEST_F(GpuWatchTest, NothingIsConcludedFromTheTimeThatTheMachineSlept) {
  BeWedged(minutes(1));
  now_ += hours(8);
  Pass(minutes(10), 1.0, false);
  EXPECT_EQ(watch_.AloneSeconds(), 0u);
}

}  // namespace
}  // namespace macrame::agentd
