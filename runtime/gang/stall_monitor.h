#pragma once

// Which rank of a gang has stopped, from what the ranks say of themselves ten times a second. Pure:
// beats and `now` in, a verdict out.
//
// Three ways to stand still, found in three ways:
//  - A process that is stopped, or cut off, sends no beats: its silence names it.
//  - An engine that hangs still sends them, from another thread, but its marks stand still while it
//    is not in a collective: it is the one that the others wait for. How long it may depends on
//    whether it uses the processor (a large step on a busy machine does; so does reading weights
//    back from disk) and on what steps of this size took before.
//  - All wait for each other: nobody is named, and the text says where each of them stands.
// No total time is held against a step: however slow it is, a step that goes on goes on.
//
// A machine that sleeps, or is too busy to run the watching thread, has no right to blame others:
// time counts only while this side looks at it regularly, and after a long gap counting begins
// anew.

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "proto/monotonic_time.h"

namespace macrame::runtime::engine {

enum class RankActivity : uint8_t {
  kIdle = 0,       // no step is under way here
  kComputing = 1,  // in a step, outside of collectives
  kWaiting = 2,    // in a collective: needs the others
};

// What a rank says of itself. Times by its own clock, in which its own pauses don't count.
struct Beat {
  uint64_t steps = 0;  // forward steps begun
  uint64_t marks = 0;  // rises with everything that gets done
  RankActivity activity = RankActivity::kIdle;
  Duration standing{};      // since `marks` last rose
  Duration resting{};       // since it last used the processor, read pages, or `marks` rose
  uint64_t gang_marks = 0;  // rank 0's: rises with everything that any rank gets done
  bool operator==(const Beat&) const = default;
};

inline constexpr Duration kBeatInterval = std::chrono::milliseconds(100);

struct StallLimits {
  // Without a beat, while a step is under way; a second and its end are left of two.
  Duration silence = std::chrono::milliseconds(1200);
  // But never less than so many times the longest that a beat, or this side's own look, was late by
  // a moment ago (half of it is forgotten in 7 s), up to `late_silence`: where processors are
  // short, silence is lateness.
  double late_max = 3;
  Duration late_silence = std::chrono::seconds(3);
  // The same while there is nothing to do: nobody waits, and a relaunch costs more than a pause.
  Duration idle_silence = std::chrono::seconds(5);
  // So long after the last step a gang still counts as running: more may be on its way.
  Duration running_after = std::chrono::seconds(2);
  // Without a mark while neither processor nor disk are used.
  Duration resting = std::chrono::milliseconds(1200);
  // Without a mark otherwise; all ranks waiting for each other.
  Duration standing = std::chrono::seconds(10);
  // A step may stand in one place for so many times what all of it should take.
  double slower_max = 10;
  // Without a mark while too few steps were measured, and never more than this. Zero: no limit.
  Duration unmeasured = std::chrono::seconds(60);
};

// Time that counts against others: none while this side did not look.
class AwakeClock {
 public:
  explicit AwakeClock(MonotonicTime now) : last_(now) {}
  // Called about every kBeatInterval; true after a gap that is no usual lateness (kGap).
  bool Advance(MonotonicTime now);
  Duration now() const { return awake_; }

  static constexpr Duration kCountedMax = 2 * kBeatInterval;
  static constexpr Duration kGap = 5 * kBeatInterval;

 private:
  MonotonicTime last_;
  Duration awake_{};
};

struct Stall {
  std::optional<uint32_t> rank;  // unset: no rank can be told from the others
  std::string what;              // a sentence without its full stop
};

// Makes this rank's own beats. Pure.
class BeatMaker {
 public:
  // What the process has used so far.
  struct Used {
    Duration processor{};
    uint64_t pages_read = 0;  // major page faults: weights on their way from the disk
  };

  explicit BeatMaker(MonotonicTime now) : clock_(now) {}
  // Every kBeatInterval.
  Beat Make(uint64_t steps, uint64_t marks, RankActivity activity, const Used& used,
            MonotonicTime now);

 private:
  AwakeClock clock_;
  uint64_t marks_ = 0;
  Used used_;
  Duration moved_at_{};
  Duration worked_at_{};
};

class StallMonitor {
 public:
  // Watches ranks [0, world_size) for rank `self`, which is never blamed for silence. Rank 0
  // expects beats of all from now on; the others expect rank 0's once one has come.
  // `knows_waits`: beats tell computing from waiting; without that (a backend that does not say)
  // standing still is only held against all together.
  StallMonitor(uint32_t self, uint32_t world_size, bool knows_waits, StallLimits limits,
               MonotonicTime now);

  // Only what was watched from now on is judged: a follower watches rank 0 alone.
  void WatchOnly(uint32_t rank);
  void OnBeat(uint32_t rank, const Beat& beat);
  // How long the running step should take; zero: not known.
  void SetExpected(Duration expected) { expected_ = expected; }
  // Every kBeatInterval. The verdict, once there is one.
  std::optional<Stall> Check(MonotonicTime now);

  // Rises with every rank's marks.
  uint64_t gang_marks() const;

 private:
  struct Watched {
    Beat beat;
    Duration heard{};  // by the awake clock
    Duration late{};   // StallLimits::late_max
    // When it was first seen idle while others were in a step that it has not begun, and its marks
    // then: beats are of different moments, so one that goes on may always look a little behind.
    std::optional<Duration> behind_since;
    uint64_t behind_marks = 0;
    bool was_heard = false;
    bool is_watched = true;
  };

  bool IsRunning() const;
  Duration SinceHeard(const Watched& rank) const { return clock_.now() - rank.heard; }
  // Whether its silence is judged.
  bool IsListenedFor(uint32_t number) const;
  Duration LimitFor(Duration floor) const;
  Duration SilenceLimit(const Watched& rank) const;
  void NoteBehind();
  // By how much a rank that the others wait for has outlasted its limit; negative: it has not.
  Duration Overdue(const Watched& rank) const;
  std::optional<Stall> FindSilent() const;
  std::optional<Stall> FindStanding() const;
  std::optional<Stall> FindDeadlock() const;
  std::string Places() const;

  const uint32_t self_;
  const bool knows_waits_;
  const StallLimits limits_;
  std::vector<Watched> ranks_;
  AwakeClock clock_;
  MonotonicTime checked_at_;
  Duration own_late_{};
  Duration expected_{};
  // When any rank was last known to be in a step, by the awake clock.
  std::optional<Duration> stepped_at_;
};

}  // namespace macrame::runtime::engine
