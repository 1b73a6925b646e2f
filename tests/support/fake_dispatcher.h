#pragma once

// A dispatcher for tests: nothing runs and no time passes until the test says so. The thread that
// made it is the owner thread; Post may come from others.

#include <deque>
#include <map>
#include <mutex>
#include <thread>
#include <utility>

#include "transport/dispatcher.h"

namespace macrame::transport {

class FakeDispatcher : public Dispatcher {
 public:
  explicit FakeDispatcher(MonotonicTime start = MonotonicTime(std::chrono::hours(1)),
                          uint64_t unix_ms = 1'790'000'000'000);

  // Runs what is posted, and what that posts, until nothing is left. Timers do not fire.
  // Returns the number of tasks run.
  int RunPosted();
  // Lets time pass, firing timers at their very instants in order, and running posted tasks
  // between.
  void AdvanceBy(Duration duration);
  // Timers that have not fired yet.
  int pending_timers() const;

  MonotonicTime Now() const override;
  uint64_t UnixMs() const override;
  void Post(Task task) override;
  TimerId PostAfter(Duration delay, Task task) override;
  TimerId PostAt(MonotonicTime at, Task task) override {
    return PostAfter(at - Now(), std::move(task));
  }
  // A millisecond from now.
  MonotonicTime NextGridPoint() const override { return Now() + std::chrono::milliseconds(1); }
  void Cancel(TimerId id) override;
  bool IsOwnerThread() const override;

 private:
  mutable std::mutex mutex_;
  const std::thread::id owner_;
  const MonotonicTime start_;
  const uint64_t start_unix_ms_;
  MonotonicTime now_;
  TimerId last_timer_ = 0;
  std::deque<Task> posted_;
  std::map<std::pair<MonotonicTime, TimerId>, Task> timers_;
};

}  // namespace macrame::transport
