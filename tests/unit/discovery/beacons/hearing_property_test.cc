// Who hears whom, over random conversations, against all that was ever said.

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <optional>
#include <random>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "discovery/beacons/beacon_schedule.h"
#include "discovery/beacons/hearing_table.h"

namespace macrame::discovery {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

const NodeId kSelf("000000000000000000000000000000aa");

struct Said {
  MonotonicTime at;
  bool lists_us = false;
};

// What came in by one interface since it is there.
struct Wire {
  MonotonicTime since;
  std::map<NodeId, std::vector<Said>> said;
};

bool IsLate(MonotonicTime at, MonotonicTime now) { return now - at > kHeardFor; }

// When the present conversation with a peer began: no silence of kHeardFor since.
MonotonicTime BegunAt(const std::vector<Said>& said) {
  MonotonicTime begun = said.back().at;
  for (auto one = said.rbegin(); one != said.rend() && !IsLate(one->at, begun); ++one) {
    begun = one->at;
  }
  return begun;
}

Hearing Expected(const Wire& wire, MonotonicTime now) {
  bool heard = false, long_enough = false;
  for (const auto& [peer, said] : wire.said) {
    if (IsLate(said.back().at, now)) continue;
    heard = true;
    const MonotonicTime begun = BegunAt(said);
    for (const Said& one : said) {
      if (one.lists_us && one.at >= begun && !IsLate(one.at, now)) return Hearing::kBothWays;
    }
    long_enough = long_enough || now - begun >= kHearingJudgedAfter;
  }
  if (long_enough) return Hearing::kHeardNotAnswered;
  if (heard || now - wire.since < kHearingJudgedAfter) return Hearing::kTooEarly;
  return Hearing::kHeardNobody;
}

TEST(HearingProperty, TheStateIsWhatWasSaidLately) {
  for (uint32_t seed = 0; seed < 60; ++seed) {
    SCOPED_TRACE(seed);
    std::mt19937 random(seed);
    HearingTable table(kSelf);
    std::map<std::string, Wire> wires;
    MonotonicTime now(seconds(5));
    for (int step = 0; step < 600; ++step) {
      now += milliseconds(random() % (random() % 20 == 0 ? 20'000 : 2'000));
      const std::string wire = absl::StrCat("en", random() % 3);
      const NodeId peer(std::string(32, static_cast<char>('0' + random() % 4)));
      const bool lists_us = random() % 4 == 0;
      switch (random() % 12) {
        case 0:
          table.AddInterface(wire, now);
          wires.try_emplace(wire, Wire{now, {}});
          break;
        case 1:
          table.RemoveInterface(wire);
          wires.erase(wire);
          break;
        default:
          table.Heard(wire, peer, lists_us, now);
          if (wires.contains(wire)) wires[wire].said[peer].push_back({now, lists_us});
      }
      size_t troubled = 0;
      for (const auto& [name, one] : wires) {
        const Hearing expected = Expected(one, now);
        ASSERT_EQ(table.StateOf(name, now), expected) << name << " step " << step;
        troubled += expected == Hearing::kHeardNobody || expected == Hearing::kHeardNotAnswered;
      }
      ASSERT_EQ(table.Problems(now).size(), troubled);
    }
  }
}

TEST(HearingProperty, WhoWasHeardLatelyComesLastHeardFirst) {
  std::mt19937 random(3);
  HearingTable table(kSelf);
  std::map<NodeId, MonotonicTime> last;
  MonotonicTime now(seconds(5));
  for (const char* wire : {"en0", "en1"}) table.AddInterface(wire, now);
  for (int step = 0; step < 500; ++step) {
    now += milliseconds(random() % 3000);
    const NodeId peer(std::string(32, static_cast<char>('0' + random() % 10)));
    table.Heard(random() % 2 == 0 ? "en0" : "en1", peer, false, now);
    last[peer] = now;
    const std::vector<NodeId> heard = table.HeardLately(now);
    for (const auto& [node, at] : last) {
      EXPECT_EQ(std::count(heard.begin(), heard.end(), node), IsLate(at, now) ? 0 : 1);
    }
    for (size_t i = 1; i < heard.size(); ++i) EXPECT_GE(last[heard[i - 1]], last[heard[i]]);
  }
}

// However a schedule is woken and turned, a listener never waits longer than its interval says.
TEST(ScheduleProperty, NoSilenceIsLongerThanTheIntervalAndNoFloodShorter) {
  for (uint32_t seed = 0; seed < 40; ++seed) {
    SCOPED_TRACE(seed);
    std::mt19937 random(seed);
    const Duration slack = milliseconds(seed % 2 == 0 ? 0 : 100);
    BeaconIntervals intervals;
    intervals.slack = slack;
    BeaconSchedule schedule(intervals);
    MonotonicTime now(seconds(100)), last = now;
    schedule.StartBurst(now);
    bool settled = false;
    int in_burst = 0;
    for (int step = 0; step < 3000; ++step) {
      if (random() % 200 == 0) {
        settled = !settled;
        schedule.SetSettled(settled, now);
      }
      const Duration longest = settled ? intervals.settled : intervals.searching;
      // It is never asked later than it wished for.
      const MonotonicTime due = schedule.NextDue();
      ASSERT_LE(due, std::max(now, last + longest));
      now = std::max(now, due - milliseconds(random() % 3 == 0 ? random() % 150 : 0));
      const bool was_burst = schedule.in_burst();
      if (!schedule.TakeDue(now)) {
        ASSERT_LT(now, due) << "what is due is sent";
        now += milliseconds(1);
        continue;
      }
      ASSERT_GE(now + slack, due);
      in_burst += was_burst;
      if (!was_burst && step > 10) {
        ASSERT_GE(now - last + slack, std::min(intervals.searching, longest) - milliseconds(1));
      }
      last = now;
    }
    EXPECT_EQ(in_burst, 5) << "a burst is five beacons, each once";
  }
}

TEST(ScheduleProperty, SignsOfLifeKeepTheirPaceBesideAnything) {
  std::mt19937 random(6);
  BeaconIntervals intervals;
  BeaconSchedule schedule(intervals);
  const MonotonicTime begun(seconds(50));
  schedule.StartBurst(begun);
  schedule.SetSignsOfLife(true, begun);
  int signs = 0;
  MonotonicTime now = begun;
  while (now < begun + seconds(60)) {
    schedule.TakeDue(now);
    signs += schedule.TakeSignOfLife(now);
    if (random() % 50 == 0) schedule.SetSignsOfLife(true, now);  // wanted already
    now += milliseconds(1 + random() % 20);
  }
  // Each is late by less than one step, and what is late moves the next one.
  EXPECT_LE(signs, 121);
  EXPECT_GE(signs, 110);
  schedule.SetSignsOfLife(false, now);
  EXPECT_FALSE(schedule.TakeSignOfLife(now + seconds(10)));
}

}  // namespace
}  // namespace macrame::discovery
