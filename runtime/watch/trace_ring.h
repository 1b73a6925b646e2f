#pragma once

// The spans of a trace while one is taken: the last kTraceSpansMax. Memory is there only then.
// Any thread.

#include <atomic>
#include <chrono>
#include <cstdint>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "macrame/v1/rank.pb.h"
#include "runtime/model/step/step_observer.h"

namespace macrame::runtime::engine {

inline constexpr size_t kTraceSpansMax = 32768;
inline constexpr std::chrono::seconds kTraceMax{60};
// Layers and single collectives are traced in one of so many steps.
inline constexpr uint64_t kTracedStepsApart = 8;

class TraceRing {
 public:
  using Time = std::chrono::steady_clock::time_point;
  struct Span {
    v1::TracePart part = v1::TRACE_PART_UNSPECIFIED;
    Time begin, end;
    uint64_t number = 0;
    uint32_t prefill_tokens = 0;
    uint32_t decode_tokens = 0;
  };

  bool is_on() const { return on_.load(std::memory_order_relaxed); }
  // False when it is on already.
  bool Start(Time now, uint64_t unix_us);
  // Does nothing while it is off.
  void Add(const Span& span);
  // What came since Start; turns it off.
  v1::RankTrace Stop();

 private:
  std::atomic<bool> on_ = false;
  absl::Mutex mutex_;
  std::vector<Span> spans_ ABSL_GUARDED_BY(mutex_);  // a ring once it is full
  uint64_t added_ ABSL_GUARDED_BY(mutex_) = 0;
  Time begun_ ABSL_GUARDED_BY(mutex_);
  uint64_t begun_unix_us_ ABSL_GUARDED_BY(mutex_) = 0;
};

}  // namespace macrame::runtime::engine
