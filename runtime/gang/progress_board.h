#pragma once

// How far this rank has come, written by the threads that work and read by the one that tells the
// other ranks. Wait-free; any thread.

#include <atomic>
#include <chrono>
#include <cstdint>

#include "proto/monotonic_time.h"
#include "runtime/gang/stall_monitor.h"

namespace macrame::runtime::engine {

class ProgressBoard {
 public:
  // One forward step; steps don't overlap on one rank. Every rank counts the same steps.
  void BeginStep() {
    steps_.fetch_add(1, std::memory_order_relaxed);
    in_step_.store(true, std::memory_order_relaxed);
    Mark();
  }
  void EndStep() {
    in_step_.store(false, std::memory_order_relaxed);
    Mark();
  }
  // Something of a step is done: a layer, a collective.
  void Mark() { marks_.fetch_add(1, std::memory_order_relaxed); }
  // Until EndWait this rank is in a collective and needs the others.
  void BeginWait() {
    waits_.fetch_add(1, std::memory_order_relaxed);
    Mark();
  }
  void EndWait() {
    waits_.fetch_sub(1, std::memory_order_relaxed);
    Mark();
  }
  // Rank 0: how long the step that comes next should take; zero: too little was measured to know.
  void SetExpected(Duration expected) {
    expected_us_.store(expected.count(), std::memory_order_relaxed);
  }

  uint64_t steps() const { return steps_.load(std::memory_order_relaxed); }
  uint64_t marks() const { return marks_.load(std::memory_order_relaxed); }
  Duration expected() const { return Duration(expected_us_.load(std::memory_order_relaxed)); }
  RankActivity activity() const {
    if (waits_.load(std::memory_order_relaxed) > 0) return RankActivity::kWaiting;
    return in_step_.load(std::memory_order_relaxed) ? RankActivity::kComputing
                                                    : RankActivity::kIdle;
  }

 private:
  std::atomic<uint64_t> steps_ = 0;
  std::atomic<uint64_t> marks_ = 0;
  std::atomic<int> waits_ = 0;
  std::atomic<bool> in_step_ = false;
  std::atomic<int64_t> expected_us_ = 0;
};

}  // namespace macrame::runtime::engine
