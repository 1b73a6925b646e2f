#include "discovery/beacons/beacon_schedule.h"

#include <gtest/gtest.h>

#include <vector>

namespace macrame::discovery {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

const MonotonicTime kStart(std::chrono::hours(3));

// Milliseconds at which beacons go out within `span`.
std::vector<int64_t> SentWithin(BeaconSchedule& schedule, MonotonicTime from, Duration span) {
  std::vector<int64_t> sent;
  for (MonotonicTime now = from; now <= from + span; now += milliseconds(1)) {
    if (schedule.TakeDue(now)) {
      sent.push_back(std::chrono::duration_cast<milliseconds>(now - kStart).count());
    }
  }
  return sent;
}

TEST(BeaconSchedule, BurstThenEachSecond) {
  BeaconSchedule schedule;
  schedule.StartBurst(kStart);
  EXPECT_TRUE(schedule.in_burst());
  EXPECT_EQ(SentWithin(schedule, kStart, milliseconds(3000)),
            (std::vector<int64_t>{0, 50, 150, 350, 750, 1750, 2750}));
  EXPECT_FALSE(schedule.in_burst());
}

TEST(BeaconSchedule, SettledIsRarerAndLosingAPeerIsNoticedAtOnce) {
  BeaconSchedule schedule;
  schedule.StartBurst(kStart);
  SentWithin(schedule, kStart, milliseconds(800));
  schedule.SetSettled(true, kStart + milliseconds(800));
  EXPECT_EQ(SentWithin(schedule, kStart + milliseconds(801), seconds(11)),
            (std::vector<int64_t>{5750, 10750}));
  schedule.SetSettled(false, kStart + milliseconds(13000));
  EXPECT_EQ(SentWithin(schedule, kStart + milliseconds(13000), milliseconds(1500)),
            (std::vector<int64_t>{13000, 14000}));
}

TEST(BeaconSchedule, SignsOfLifeGoBetweenWholeBeaconsWhileTheyAreWanted) {
  BeaconSchedule schedule;
  schedule.StartBurst(kStart);
  SentWithin(schedule, kStart, milliseconds(800));
  schedule.SetSettled(true, kStart + milliseconds(800));
  schedule.SetSignsOfLife(true, kStart + milliseconds(800));
  std::vector<int64_t> whole, signs;
  for (MonotonicTime now = kStart + milliseconds(800); now <= kStart + seconds(7);
       now += milliseconds(1)) {
    ASSERT_LE(schedule.NextDue(), now + milliseconds(500));
    const int64_t at = std::chrono::duration_cast<milliseconds>(now - kStart).count();
    if (schedule.TakeDue(now)) {
      whole.push_back(at);
    } else if (schedule.TakeSignOfLife(now)) {
      signs.push_back(at);
    }
  }
  EXPECT_EQ(whole, (std::vector<int64_t>{5750}));
  EXPECT_EQ(signs, (std::vector<int64_t>{800, 1300, 1800, 2300, 2800, 3300, 3800, 4300, 4800, 5300,
                                         5800, 6300, 6800}));
  schedule.SetSignsOfLife(false, kStart + seconds(7));
  EXPECT_FALSE(schedule.TakeSignOfLife(kStart + seconds(8)));
  EXPECT_EQ(schedule.NextDue(), kStart + milliseconds(10750));
}

TEST(BeaconSchedule, WhatIsDueWithinTheSlackGoesNowAndThePaceStays) {
  BeaconIntervals intervals;
  intervals.slack = milliseconds(40);
  BeaconSchedule schedule(intervals);
  schedule.SetSignsOfLife(true, kStart);
  EXPECT_TRUE(schedule.TakeSignOfLife(kStart));
  EXPECT_FALSE(schedule.TakeSignOfLife(kStart + milliseconds(459)));
  EXPECT_TRUE(schedule.TakeSignOfLife(kStart + milliseconds(461)));
  EXPECT_EQ(schedule.NextDue(), MonotonicTime{});  // a whole one was never sent
  EXPECT_FALSE(schedule.TakeSignOfLife(kStart + milliseconds(959)));
  EXPECT_TRUE(schedule.TakeSignOfLife(kStart + milliseconds(960)));
}

TEST(BeaconSchedule, APauseIsNotMadeUpFor) {
  BeaconSchedule schedule;
  schedule.StartBurst(kStart);
  EXPECT_TRUE(schedule.TakeDue(kStart));
  EXPECT_TRUE(schedule.TakeDue(kStart + seconds(60)));
  EXPECT_FALSE(schedule.TakeDue(kStart + seconds(60)));
  EXPECT_EQ(schedule.NextDue(), kStart + seconds(61));
}

}  // namespace
}  // namespace macrame::discovery
