#pragma once

// One thread that owns things, and how others hand it work.
//
// Everything that decides in a process belongs to one dispatcher's thread and is touched by no
// other; gRPC callbacks, HTTP sessions and process watchers Post what they learnt. Tests use
// FakeDispatcher (tests/support/fake_dispatcher.h), where time passes only when told.

#include <cstdint>
#include <functional>

#include "proto/monotonic_time.h"

namespace macrame::transport {

// Where time comes from. Thread-safe.
class Clock {
 public:
  virtual ~Clock() = default;
  virtual MonotonicTime Now() const = 0;
  virtual uint64_t UnixMs() const = 0;
};

class Dispatcher : public Clock {
 public:
  using Task = std::function<void()>;
  using TimerId = uint64_t;  // never 0, never used again

  // Runs `task` on the owner thread, later, in the order of the calls. Any thread.
  virtual void Post(Task task) = 0;
  // Runs `task` once on the owner thread, not before `delay` has passed. Any thread.
  virtual TimerId PostAfter(Duration delay, Task task) = 0;
  // Runs `task` once on the owner thread at `at` or later. Any thread.
  virtual TimerId PostAt(MonotonicTime at, Task task) = 0;
  // Where long timers end together; later than now. Any thread.
  virtual MonotonicTime NextGridPoint() const = 0;
  // From the owner thread only: after it the task does not run any more. Unknown ids are ignored.
  virtual void Cancel(TimerId id) = 0;
  virtual bool IsOwnerThread() const = 0;
  // `observer` hears of each timer, on the owner thread, how much later than it should it ran: that
  // long the thread was busy with something else. Owner thread. Nothing where time is simulated.
  virtual void ObserveDelays(std::function<void(Duration)> observer) { (void)observer; }
};

}  // namespace macrame::transport
