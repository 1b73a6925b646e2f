#pragma once

// How long this node's GPU has been busy although none of its ranks runs. A rank that is killed in
// the middle of a Metal command can leave the GPU at 100 % until the machine is restarted; the next
// rank then hangs, or macOS ignores its commands. Another program that computes there looks the
// same, but for when it began. Pure. Owner thread.

#include <cstdint>
#include <optional>

#include "proto/monotonic_time.h"

namespace macrame::agentd {

// As busy as it can be.
inline constexpr double kGpuBusyRatio = 0.95;
// A load may be this old when it is read: a Mac's is sampled every 10 s, by commands that take
// seconds. What began within this time of a rank's end may have begun before it.
inline constexpr Duration kGpuReadingAge = std::chrono::seconds(20);
// Without a reading for this long (the machine slept) what was seen before counts no more.
inline constexpr Duration kGpuReadingGap = std::chrono::seconds(30);
// Nothing is told of less. Longer than an old reading of a rank's own work lasts.
inline constexpr uint32_t kGpuAloneSecondsMin = 30;

class GpuWatch {
 public:
  // At each reading of the load and each change of the ranks. `busy_ratio`: that of v1::NodeLoad,
  // negative when it is not known. `ranks_run`: a process of one of this node's ranks is there.
  void Note(double busy_ratio, bool ranks_run, MonotonicTime now);

  // Seconds, up to the last Note, that the GPU has been as busy as it can be in every reading since
  // the last rank ended. 0: below kGpuAloneSecondsMin; a rank runs; none ever ran; the GPU was that
  // busy before the rank started; or one reading was lower or not known. Rounded down to 30, 60,
  // 120, 240 and so on, because each change is sent to all nodes.
  uint32_t AloneSeconds() const;

 private:
  MonotonicTime noted_at_{};
  std::optional<MonotonicTime> ran_at_;  // when a rank was there last
  bool is_busy_ = false;
  bool may_be_ours_ = false;  // it became busy while a rank ran, or just after
  std::optional<MonotonicTime> alone_since_;
};

}  // namespace macrame::agentd
