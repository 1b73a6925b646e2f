#include "discovery/beacon_schedule.h"

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
