// Which rank is blamed, and which is not: a gang of synthetic ranks that beat ten times a second.

#include "runtime/gang/stall_monitor.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <memory>

namespace macrame::runtime::engine {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;
using ::testing::HasSubstr;

// Ranks in a tensor split: each step is layers, after each of which all wait for the last.
class SimulatedGang {
 public:
  static constexpr int kLayers = 8;

  explicit SimulatedGang(uint32_t world_size, StallLimits limits = {}, bool knows_waits = true)
      : ranks_(world_size), monitor_(0, world_size, knows_waits, limits, now_) {}

  void Expect(Duration expected) { monitor_.SetExpected(expected); }
  void BeginSteps(Duration layer) {
    layer_ = layer;
    running_ = true;
  }
  void GoIdle() { running_ = false; }
  void Stop(uint32_t rank) { ranks_[rank].is_stopped = true; }
  void Continue(uint32_t rank) { ranks_[rank].is_stopped = false; }
  // The engine stands still, the process goes on.
  void Hang(uint32_t rank, bool uses_processor) {
    ranks_[rank].hangs = true;
    ranks_[rank].spins = uses_processor;
  }

  // Lets time pass until a verdict or for `limit`; gives when the verdict came.
  std::optional<Duration> RunFor(Duration limit) {
    const MonotonicTime begun = now_;
    while (now_ - begun < limit) {
      if (Tick()) return now_ - begun;
    }
    return std::nullopt;
  }
  // The whole machine sleeps: nobody runs, and time passes.
  void Sleep(Duration duration) { now_ += duration; }
  const Stall& stall() const { return *stall_; }

 private:
  struct Rank {
    bool is_stopped = false, hangs = false, spins = false;
    uint64_t steps = 0, marks = 0;
    int layer = 0;        // of the step, as far as it is done
    Duration computed{};  // of the next one
    Duration processor{};
    std::unique_ptr<BeatMaker> maker;
  };

  bool IsAhead(const Rank& rank) const {
    for (const Rank& other : ranks_) {
      if (other.steps < rank.steps || (other.steps == rank.steps && other.layer < rank.layer)) {
        return true;
      }
    }
    return false;
  }
  RankActivity ActivityOf(const Rank& rank) const {
    if (!running_ || rank.steps == 0) return RankActivity::kIdle;
    return IsAhead(rank) ? RankActivity::kWaiting : RankActivity::kComputing;
  }
  void Work(Rank& rank, Duration time) {
    if (rank.steps == 0) {
      rank.steps = 1;
      ++rank.marks;
    }
    if (rank.spins || !IsAhead(rank)) rank.processor += time;
    if (rank.hangs || IsAhead(rank)) return;
    rank.computed += time;
    if (rank.computed < layer_) return;
    rank.computed = Duration(0);
    ++rank.marks;
    if (++rank.layer < kLayers) return;
    rank.layer = 0;
    ++rank.steps;
  }
  bool Tick() {
    now_ += kBeatInterval;
    for (Rank& rank : ranks_) {
      if (running_ && !rank.is_stopped && !(rank.hangs && !rank.spins)) {
        Work(rank, kBeatInterval);
      }
    }
    for (uint32_t number = 0; number < ranks_.size(); ++number) {
      Rank& rank = ranks_[number];
      if (rank.is_stopped) continue;
      if (rank.maker == nullptr) rank.maker = std::make_unique<BeatMaker>(now_);
      monitor_.OnBeat(number, rank.maker->Make(rank.steps, rank.marks, ActivityOf(rank),
                                               {rank.processor, 0}, now_));
    }
    stall_ = monitor_.Check(now_);
    return stall_.has_value();
  }

  MonotonicTime now_{seconds(1000)};
  std::vector<Rank> ranks_;
  StallMonitor monitor_;
  Duration layer_{};
  bool running_ = false;
  std::optional<Stall> stall_;
};

TEST(StallMonitor, AStoppedRankIsNamedWithinLessThanTwoSeconds) {
  for (uint32_t stopped = 1; stopped < 3; ++stopped) {
    SimulatedGang gang(3);
    gang.BeginSteps(milliseconds(100));
    gang.Expect(milliseconds(800));
    ASSERT_FALSE(gang.RunFor(seconds(5)).has_value());
    gang.Stop(stopped);
    const auto after = gang.RunFor(seconds(10));
    ASSERT_TRUE(after.has_value());
    EXPECT_LE(*after, milliseconds(1400));
    EXPECT_EQ(gang.stall().rank, stopped);
    EXPECT_THAT(gang.stall().what, HasSubstr("has not been heard of"));
  }
}

TEST(StallMonitor, AnEngineThatHangsIsNamedThoughItsProcessLives) {
  SimulatedGang gang(3);
  gang.BeginSteps(milliseconds(100));
  gang.Expect(milliseconds(100));
  ASSERT_FALSE(gang.RunFor(seconds(5)).has_value());
  gang.Hang(2, /*uses_processor=*/false);
  const auto after = gang.RunFor(seconds(10));
  ASSERT_TRUE(after.has_value());
  EXPECT_LE(*after, milliseconds(1600));
  EXPECT_EQ(gang.stall().rank, 2u);
  EXPECT_THAT(gang.stall().what, HasSubstr("rank 2 computes in step"));
  EXPECT_THAT(gang.stall().what, HasSubstr("rank 0 waits for other ranks in step"));
}

TEST(StallMonitor, OneThatComputesForEverIsNamedLater) {
  SimulatedGang gang(2);
  gang.BeginSteps(milliseconds(100));
  gang.Expect(milliseconds(100));
  ASSERT_FALSE(gang.RunFor(seconds(5)).has_value());
  gang.Hang(1, /*uses_processor=*/true);
  const auto after = gang.RunFor(seconds(60));
  ASSERT_TRUE(after.has_value());
  EXPECT_GE(*after, seconds(9));
  EXPECT_EQ(gang.stall().rank, 1u);
}

TEST(StallMonitor, StepsThatTakeTenTimesAsLongAsPredictedAndGoOnAreLeftAlone) {
  SimulatedGang gang(3);
  gang.Expect(milliseconds(800));       // a step of eight layers
  gang.BeginSteps(milliseconds(1000));  // a layer
  EXPECT_FALSE(gang.RunFor(seconds(300)).has_value());
}

// A chunk of 768 tokens on a busy machine: nothing was measured yet, a layer takes half a minute.
TEST(StallMonitor, BeforeAnythingWasMeasuredOnlyTheFixedLimitHolds) {
  SimulatedGang gang(2);
  gang.BeginSteps(seconds(30));
  EXPECT_FALSE(gang.RunFor(seconds(900)).has_value());
  gang.Hang(1, /*uses_processor=*/false);
  const auto after = gang.RunFor(seconds(120));
  ASSERT_TRUE(after.has_value());
  EXPECT_EQ(gang.stall().rank, 1u);
}

TEST(StallMonitor, WhenTheWholeMachineSleptNobodyIsBlamed) {
  SimulatedGang gang(3);
  gang.BeginSteps(milliseconds(100));
  gang.Expect(milliseconds(800));
  for (int night = 0; night < 5; ++night) {
    ASSERT_FALSE(gang.RunFor(seconds(3)).has_value());
    gang.Sleep(seconds(3600));
  }
  ASSERT_FALSE(gang.RunFor(seconds(3)).has_value());
  gang.Stop(1);
  ASSERT_TRUE(gang.RunFor(seconds(2)).has_value());
  EXPECT_EQ(gang.stall().rank, 1u);
}

TEST(StallMonitor, APauseOfASecondIsForgiven) {
  SimulatedGang gang(3);
  gang.BeginSteps(milliseconds(100));
  gang.Expect(milliseconds(800));
  for (int i = 0; i < 20; ++i) {
    gang.Stop(2);
    ASSERT_FALSE(gang.RunFor(milliseconds(1000)).has_value());
    gang.Continue(2);
    ASSERT_FALSE(gang.RunFor(milliseconds(500)).has_value());
  }
}

// Beats that were late already, as on a machine whose processors others use, may be later still.
TEST(StallMonitor, WhereBeatsComeLateSilenceIsJudgedLater) {
  SimulatedGang gang(3);
  gang.BeginSteps(milliseconds(100));
  gang.Expect(milliseconds(800));
  for (const int pause_ms : {600, 1000, 1600, 2500}) {
    gang.Stop(2);
    ASSERT_FALSE(gang.RunFor(milliseconds(pause_ms)).has_value()) << pause_ms;
    gang.Continue(2);
    ASSERT_FALSE(gang.RunFor(milliseconds(500)).has_value()) << pause_ms;
  }
  gang.Stop(2);
  const auto after = gang.RunFor(seconds(10));
  ASSERT_TRUE(after.has_value()) << "but not for ever";
  EXPECT_LE(*after, milliseconds(3200));
  EXPECT_EQ(gang.stall().rank, 2u);
  // A minute later it is as strict as before.
  gang.Continue(2);
  ASSERT_FALSE(gang.RunFor(seconds(60)).has_value());
  gang.Stop(1);
  ASSERT_TRUE(gang.RunFor(milliseconds(1400)).has_value());
  EXPECT_EQ(gang.stall().rank, 1u);
}

// This side itself is late, and what it has not heard may wait to be read.
TEST(StallMonitor, WhereTheWatcherIsLateSilenceIsJudgedLater) {
  SimulatedGang gang(2);
  gang.BeginSteps(milliseconds(100));
  gang.Expect(milliseconds(800));
  ASSERT_FALSE(gang.RunFor(seconds(3)).has_value());
  gang.Sleep(milliseconds(900));
  ASSERT_FALSE(gang.RunFor(milliseconds(500)).has_value());
  gang.Stop(1);
  const auto after = gang.RunFor(seconds(10));
  ASSERT_TRUE(after.has_value());
  EXPECT_GT(*after, milliseconds(2000));
  EXPECT_LE(*after, milliseconds(3200));
}

TEST(StallMonitor, AnIdleGangIsPatientAndAStepMakesItAsk) {
  SimulatedGang gang(2);
  ASSERT_FALSE(gang.RunFor(seconds(600)).has_value());
  gang.Stop(1);  // nothing was asked for a while
  ASSERT_FALSE(gang.RunFor(seconds(4)).has_value());
  gang.BeginSteps(milliseconds(100));
  const auto after = gang.RunFor(seconds(2));
  ASSERT_TRUE(after.has_value());
  EXPECT_LE(*after, milliseconds(200));
  EXPECT_EQ(gang.stall().rank, 1u);
}

// A short rank_step_timeout_ms is no limit on doing nothing.
TEST(StallMonitor, AGangThatHasNothingToDoDoesNotStandStill) {
  StallLimits limits;
  limits.unmeasured = seconds(1);
  SimulatedGang gang(2, limits);
  gang.BeginSteps(milliseconds(100));
  ASSERT_FALSE(gang.RunFor(seconds(3)).has_value());
  gang.GoIdle();
  EXPECT_FALSE(gang.RunFor(seconds(30)).has_value());
}

TEST(StallMonitor, RanksThatGoSilentTogetherAreNotToldApart) {
  SimulatedGang gang(3);
  gang.BeginSteps(milliseconds(100));
  gang.Expect(milliseconds(800));
  ASSERT_FALSE(gang.RunFor(seconds(5)).has_value());
  gang.Stop(1);
  gang.Stop(2);
  ASSERT_TRUE(gang.RunFor(seconds(2)).has_value());
  EXPECT_FALSE(gang.stall().rank.has_value());
  EXPECT_THAT(gang.stall().what, HasSubstr("rank 1, 2 have not been heard of"));
}

// MLX's own backends don't say when they wait: a rank that stands still may be the one that waits.
TEST(StallMonitor, WithoutKnowledgeOfWaitsOnlyAllTogetherStandStill) {
  SimulatedGang gang(2, {}, /*knows_waits=*/false);
  gang.BeginSteps(milliseconds(100));
  gang.Expect(milliseconds(800));
  ASSERT_FALSE(gang.RunFor(seconds(5)).has_value());
  gang.Hang(1, /*uses_processor=*/false);
  const auto after = gang.RunFor(seconds(60));
  ASSERT_TRUE(after.has_value());
  EXPECT_GE(*after, seconds(8));
  EXPECT_FALSE(gang.stall().rank.has_value());
  EXPECT_THAT(gang.stall().what, HasSubstr("no rank makes progress"));
}

TEST(StallMonitor, AFollowerMissesRankZeroAndJudgesNobodyElse) {
  MonotonicTime now{seconds(5)};
  StallMonitor monitor(1, 3, /*knows_waits=*/true, {}, now);
  monitor.WatchOnly(0);
  Beat own;
  own.steps = 4;
  own.activity = RankActivity::kWaiting;
  const auto run_for = [&](Duration limit, bool rank_zero_beats) {
    for (const MonotonicTime end = now + limit; now < end; now += kBeatInterval) {
      monitor.OnBeat(1, own);
      if (rank_zero_beats) monitor.OnBeat(0, Beat());
      const auto stall = monitor.Check(now);
      if (stall.has_value()) return stall;
    }
    return std::optional<Stall>();
  };
  own.standing = own.resting = seconds(100);  // as if this rank had stood still itself
  EXPECT_FALSE(run_for(seconds(30), true).has_value());
  const auto stall = run_for(milliseconds(1500), false);
  ASSERT_TRUE(stall.has_value());
  EXPECT_EQ(stall->rank, 0u);
}

// Short steps begin and end between two beats: rank 0 is last heard of while no step is under way.
TEST(StallMonitor, RankZeroThatStopsBetweenTwoStepsOfAnAnswerIsMissedAsSoon) {
  MonotonicTime now{seconds(5)};
  StallMonitor monitor(1, 2, /*knows_waits=*/true, {}, now);
  monitor.WatchOnly(0);
  Beat idle;
  for (int i = 0; i < 30; ++i, now += kBeatInterval) {
    idle.steps += 7;
    monitor.OnBeat(0, idle);
    monitor.OnBeat(1, idle);
    ASSERT_FALSE(monitor.Check(now).has_value());
  }
  const MonotonicTime stopped = now;
  std::optional<Stall> stall;
  for (; !stall.has_value() && now < stopped + seconds(10); now += kBeatInterval) {
    monitor.OnBeat(1, idle);
    stall = monitor.Check(now);
  }
  ASSERT_TRUE(stall.has_value());
  EXPECT_EQ(stall->rank, 0u);
  EXPECT_LE(now - stopped, milliseconds(1500));
}

// The first step comes as soon as the gang is ready: a rank may stop before it has ever beaten.
TEST(StallMonitor, RankZeroMissesWhoNeverBeat) {
  SimulatedGang gang(3);
  gang.Stop(2);
  gang.BeginSteps(milliseconds(100));
  const auto after = gang.RunFor(seconds(10));
  ASSERT_TRUE(after.has_value());
  EXPECT_LE(*after, milliseconds(1500));
  EXPECT_EQ(gang.stall().rank, 2u);
}

// The request had just begun: no beat of rank 0 tells of it, only this rank's own steps.
TEST(StallMonitor, RankZeroThatStopsAfterItsFirstStepsIsMissedAsSoon) {
  MonotonicTime now{seconds(5)};
  StallMonitor monitor(1, 2, /*knows_waits=*/true, {}, now);
  monitor.WatchOnly(0);
  Beat own;
  for (int i = 0; i < 30; ++i, now += kBeatInterval) {
    monitor.OnBeat(0, Beat());
    monitor.OnBeat(1, own);
    ASSERT_FALSE(monitor.Check(now).has_value());
  }
  own.steps = 3;
  const MonotonicTime stopped = now;
  std::optional<Stall> stall;
  for (; !stall.has_value() && now < stopped + seconds(10); now += kBeatInterval) {
    monitor.OnBeat(1, own);
    stall = monitor.Check(now);
  }
  ASSERT_TRUE(stall.has_value());
  EXPECT_LE(now - stopped, milliseconds(1500));
}

// A rank's own beat is up to a tenth of a second older than those it hears, and a short stage is
// mostly found between two steps.
TEST(StallMonitor, AStageThatGoesOnIsNotBlamedForLookingBehind) {
  for (const bool goes_on : {true, false}) {
    MonotonicTime now{};
    StallMonitor monitor(0, 2, true, {}, now);
    monitor.SetExpected(milliseconds(2));
    Beat own, other;
    std::optional<Stall> stall;
    for (int i = 0; i < 100 && !stall.has_value(); ++i) {
      now += kBeatInterval;
      other.steps += 3;
      other.marks += 9;
      if (goes_on || i < 5) {
        own.steps = other.steps - 3;
        own.marks += 9;
      }
      monitor.OnBeat(0, own);
      monitor.OnBeat(1, other);
      stall = monitor.Check(now);
    }
    EXPECT_EQ(stall.has_value(), !goes_on);
    if (stall.has_value()) {
      EXPECT_EQ(stall->rank, 0u) << stall->what;
    }
  }
}

TEST(StallMonitor, AFollowerDoesNotMissARankZeroThatNeverBeat) {
  MonotonicTime now{seconds(5)};
  StallMonitor monitor(1, 2, /*knows_waits=*/true, {}, now);
  monitor.WatchOnly(0);
  Beat own;
  own.activity = RankActivity::kWaiting;
  for (int i = 0; i < 200; ++i, now += kBeatInterval) {
    monitor.OnBeat(1, own);
    ASSERT_FALSE(monitor.Check(now).has_value());
  }
}

// A gang that was idle for half a minute has not stood still for half a minute.
TEST(StallMonitor, ARankThatDoesNotBeginAStepIsToldByHowLongOthersWaited) {
  MonotonicTime now{seconds(1000)};
  StallMonitor monitor(0, 2, true, {}, now);
  monitor.SetExpected(milliseconds(50));
  Duration idle{};
  const auto check = [&](const Beat& first, const Beat& second) {
    now += kBeatInterval;
    monitor.OnBeat(0, first);
    monitor.OnBeat(1, second);
    return monitor.Check(now);
  };
  for (; idle < seconds(30); idle += kBeatInterval) {
    const Beat beat{5, 10, RankActivity::kIdle, idle, idle};
    ASSERT_FALSE(check(beat, beat).has_value());
  }
  std::optional<Stall> stall;
  for (Duration waited{}; !stall.has_value() && waited < seconds(5); waited += kBeatInterval) {
    stall = check({6, 12, RankActivity::kWaiting, waited, waited},
                  {5, 10, RankActivity::kIdle, idle + waited, idle + waited});
  }
  ASSERT_TRUE(stall.has_value());
  EXPECT_EQ(stall->rank, 1u);
  EXPECT_THAT(stall->what, HasSubstr("rank 1 makes no progress: for 1200 ms nothing got done"));
  EXPECT_THAT(stall->what, HasSubstr("rank 0 waits for other ranks in step 6"));
}

TEST(BeatMaker, ReadingPagesBackOrUsingTheProcessorIsNoRest) {
  MonotonicTime now{seconds(5)};
  BeatMaker maker(now);
  const auto make = [&](Duration processor, uint64_t pages) {
    now += kBeatInterval;
    return maker.Make(1, 1, RankActivity::kComputing, {processor, pages}, now);
  };
  make(milliseconds(0), 0);
  const Beat computing = make(milliseconds(50), 0);
  EXPECT_EQ(computing.standing, kBeatInterval);
  EXPECT_EQ(computing.resting, Duration(0));
  const Beat reading = make(milliseconds(50), 7);
  EXPECT_EQ(reading.standing, 2 * kBeatInterval);
  EXPECT_EQ(reading.resting, Duration(0));
  EXPECT_EQ(make(milliseconds(51), 7).resting, kBeatInterval) << "a thread that woke up briefly";
  EXPECT_EQ(make(milliseconds(51), 500).standing, Duration(0))
      << "a layer on its way from the disk";
}

}  // namespace
}  // namespace macrame::runtime::engine
