// Gangs made from seeds: steps and pauses of any length, beats that come late, machines that sleep.
// While all ranks go on nobody is blamed; a rank that stops or hangs is named, and no other.

#include <gtest/gtest.h>

#include <algorithm>
#include <deque>
#include <memory>
#include <optional>
#include <random>
#include <string>
#include <vector>

#include "runtime/gang/stall_monitor.h"

namespace macrame::runtime::engine {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

class SeededGang {
 public:
  SeededGang(uint64_t seed, uint32_t world_size)
      : random_(seed), ranks_(world_size), monitor_(0, world_size, true, {}, now_) {
    monitor_.SetExpected(milliseconds(100));
    for (Rank& rank : ranks_) rank.maker = std::make_unique<BeatMaker>(now_);
  }

  uint64_t Random(uint64_t below) { return random_() % below; }
  bool is_in_step() const { return is_in_step_; }
  // Some more time than what a step takes, since a rank that stops right before one is needed
  // first.
  void RunUntilInStep() {
    while (!is_in_step_ || ticks_left_ < 2) ASSERT_FALSE(Tick().has_value());
  }
  void Stop(uint32_t rank) { ranks_[rank].is_stopped = true; }
  void HangComputing(uint32_t rank) {
    ranks_[rank].hangs = true;
    ranks_[rank].activity = RankActivity::kComputing;
  }
  // One machine, or one cable: what they had sent is lost as well.
  void StopAtOnce(const std::vector<uint32_t>& ranks) {
    for (const uint32_t rank : ranks) {
      Stop(rank);
      for (const Late& late : ranks_[rank].beats) monitor_.OnBeat(rank, late.beat);
      ranks_[rank].beats.clear();
    }
  }
  void Sleep(Duration duration) { now_ += duration; }

  // A verdict, and after how long it came.
  std::optional<Stall> RunFor(Duration limit, Duration* took = nullptr) {
    const MonotonicTime begun = now_;
    while (now_ - begun < limit) {
      const auto stall = Tick();
      if (took != nullptr) *took = now_ - begun;
      if (stall.has_value()) return stall;
    }
    return std::nullopt;
  }

  std::optional<Stall> Tick() {
    now_ += kBeatInterval + milliseconds(Random(30));
    if (ticks_left_-- == 0) {
      is_in_step_ = !is_in_step_;
      ticks_left_ = is_in_step_ ? 1 + Random(30) : Random(60);
      if (is_in_step_) ++step_;
    }
    bool all_go_on = true;
    for (const Rank& rank : ranks_) all_go_on = all_go_on && !rank.is_stopped && !rank.hangs;
    // Who waits for one that is gone does not come to the step's end.
    if (!all_go_on && is_in_step_) ticks_left_ = 5;
    for (uint32_t number = 0; number < ranks_.size(); ++number) TellBeats(number, all_go_on);
    return monitor_.Check(now_);
  }

 private:
  struct Late {
    MonotonicTime due;
    Beat beat;
  };
  struct Rank {
    bool is_stopped = false, hangs = false;
    uint64_t steps = 0, marks = 0, ticks_without = 0;
    Duration processor{};
    RankActivity activity = RankActivity::kIdle;
    std::unique_ptr<BeatMaker> maker;
    std::deque<Late> beats;  // on their way
  };

  void TellBeats(uint32_t number, bool all_go_on) {
    Rank& rank = ranks_[number];
    if (!rank.is_stopped) {
      if (!rank.hangs) Work(rank, all_go_on);
      const Beat beat =
          rank.maker->Make(rank.steps, rank.marks, rank.activity, {rank.processor, 0}, now_);
      // Its own beat rank 0 has at once; another's may be late, not out of order.
      MonotonicTime due = now_ + (number == 0 ? milliseconds(0) : milliseconds(Random(350)));
      if (!rank.beats.empty()) due = std::max(due, rank.beats.back().due);
      rank.beats.push_back({due, beat});
    }
    for (; !rank.beats.empty() && rank.beats.front().due <= now_; rank.beats.pop_front()) {
      monitor_.OnBeat(number, rank.beats.front().beat);
    }
  }
  void Work(Rank& rank, bool all_go_on) {
    if (is_in_step_ && rank.steps < step_) {
      rank.steps = step_;
      ++rank.marks;
    }
    if (!is_in_step_) {
      if (rank.activity != RankActivity::kIdle) ++rank.marks;
      rank.activity = RankActivity::kIdle;
      return;
    }
    if (!all_go_on) {
      rank.activity = RankActivity::kWaiting;
      return;
    }
    rank.activity = Random(2) == 0 ? RankActivity::kWaiting : RankActivity::kComputing;
    rank.processor += milliseconds(Random(100));
    // Large parts take a while; half a second without a mark is nothing unusual.
    const bool marks = ++rank.ticks_without > 4 || Random(3) == 0;
    if (!marks) return;
    rank.marks += 1 + Random(5);
    rank.ticks_without = 0;
  }

  std::mt19937_64 random_;
  MonotonicTime now_{seconds(1000)};
  std::vector<Rank> ranks_;
  StallMonitor monitor_;
  bool is_in_step_ = false;
  uint64_t ticks_left_ = 3, step_ = 0;
};

class StallSeeds : public testing::TestWithParam<uint64_t> {
 protected:
  static constexpr uint64_t kSeeds = 60;
  static uint32_t WorldOf(uint64_t seed) { return 2 + static_cast<uint32_t>(seed % 5); }
};

TEST_P(StallSeeds, NobodyIsBlamedWhileAllGoOn) {
  for (uint64_t seed = GetParam() * kSeeds; seed < (GetParam() + 1) * kSeeds; ++seed) {
    SeededGang gang(seed, WorldOf(seed));
    for (int minute = 0; minute < 4; ++minute) {
      const auto stall = gang.RunFor(seconds(60));
      ASSERT_FALSE(stall.has_value()) << "seed " << seed << ": " << stall->what;
      gang.Sleep(milliseconds(500 + gang.Random(3'600'000)));  // the whole machine
    }
  }
}

TEST_P(StallSeeds, AStoppedRankIsNamedSoonAndNoOther) {
  for (uint64_t seed = GetParam() * kSeeds; seed < (GetParam() + 1) * kSeeds; ++seed) {
    SeededGang gang(seed, WorldOf(seed));
    ASSERT_FALSE(gang.RunFor(seconds(5 + static_cast<int64_t>(gang.Random(20)))).has_value());
    const auto stopped = 1 + static_cast<uint32_t>(gang.Random(WorldOf(seed) - 1));
    const bool in_step = gang.is_in_step();
    gang.Stop(stopped);
    Duration took{};
    const auto stall = gang.RunFor(seconds(30), &took);
    ASSERT_TRUE(stall.has_value()) << "seed " << seed;
    ASSERT_EQ(stall->rank, stopped) << "seed " << seed << ": " << stall->what;
    EXPECT_NE(stall->what.find("rank " + std::to_string(stopped)), std::string::npos);
    // An idle gang is more patient, and what was on its way still came.
    EXPECT_LE(took, in_step ? milliseconds(2'500) : milliseconds(6'500)) << "seed " << seed;
  }
}

TEST_P(StallSeeds, ARankThatHangsInAStepIsNamedThoughItBeats) {
  for (uint64_t seed = GetParam() * kSeeds; seed < (GetParam() + 1) * kSeeds; ++seed) {
    SeededGang gang(seed, WorldOf(seed));
    ASSERT_FALSE(gang.RunFor(seconds(5)).has_value());
    gang.RunUntilInStep();
    // One that computes: a rank that waits hangs only with the others.
    const auto hanging = static_cast<uint32_t>(gang.Random(WorldOf(seed)));
    gang.HangComputing(hanging);
    const auto stall = gang.RunFor(seconds(30));
    ASSERT_TRUE(stall.has_value()) << "seed " << seed;
    ASSERT_EQ(stall->rank, hanging) << "seed " << seed << ": " << stall->what;
  }
}

TEST_P(StallSeeds, RanksThatStopTogetherAreNotToldApart) {
  for (uint64_t seed = GetParam() * kSeeds; seed < (GetParam() + 1) * kSeeds; ++seed) {
    SeededGang gang(seed, 4);
    ASSERT_FALSE(gang.RunFor(seconds(5)).has_value());
    gang.StopAtOnce({1, 3});
    const auto stall = gang.RunFor(seconds(30));
    ASSERT_TRUE(stall.has_value()) << "seed " << seed;
    EXPECT_FALSE(stall->rank.has_value()) << "seed " << seed << ": " << stall->what;
    EXPECT_NE(stall->what.find("rank 1, 3"), std::string::npos) << stall->what;
  }
}

INSTANTIATE_TEST_SUITE_P(Hundreds, StallSeeds, testing::Values(0, 1, 2));

}  // namespace
}  // namespace macrame::runtime::engine
