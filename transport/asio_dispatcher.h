#pragma once

// The dispatcher of real processes: one thread that runs a boost::asio::io_context.
//
// The thread that calls Run() is the owner thread until Run() returns; before that it is the thread
// that made the dispatcher. Sockets and timers that belong to the owner thread are made on io().
//
// Delays of kLongDelay and more end on a grid of kTimerGrid, so up to that much later: a process
// that has little to do then wakes up once for several tasks. The grid of each dispatcher begins
// when it is made, so that many on one machine don't wake at once.

#include <atomic>
#include <memory>
#include <mutex>
#include <thread>
#include <unordered_map>

#include "transport/dispatcher.h"

namespace boost::asio {
class io_context;
}

namespace macrame::transport {

// The machine's own clocks.
class SystemClock : public Clock {
 public:
  MonotonicTime Now() const override;
  uint64_t UnixMs() const override;
};

inline constexpr Duration kLongDelay = std::chrono::seconds(1);
inline constexpr Duration kTimerGrid = std::chrono::milliseconds(250);

class AsioDispatcher : public Dispatcher {
 public:
  AsioDispatcher();
  ~AsioDispatcher() override;
  AsioDispatcher(const AsioDispatcher&) = delete;
  AsioDispatcher& operator=(const AsioDispatcher&) = delete;

  // For sockets and signals of the owner thread. Include <boost/asio.hpp> to use it.
  boost::asio::io_context& io();

  // Runs tasks on the calling thread until Stop(); may be called again after it.
  void Run();
  // Any thread, and from a signal handler's task. Tasks still queued do not run.
  void Stop();

  // By kTimerGrid later than now at most.
  MonotonicTime NextGridPoint() const override { return GridPointAfter(Now()); }
  // `at` is not moved onto the grid.
  TimerId PostAt(MonotonicTime at, Task task) override;

  MonotonicTime Now() const override;
  uint64_t UnixMs() const override;
  void Post(Task task) override;
  TimerId PostAfter(Duration delay, Task task) override;
  void Cancel(TimerId id) override;
  bool IsOwnerThread() const override;
  void ObserveDelays(std::function<void(Duration)> observer) override;

 private:
  MonotonicTime GridPointAfter(MonotonicTime time) const;

  struct Parts;  // keeps Boost's headers out of this one
  std::unique_ptr<Parts> parts_;
  SystemClock clock_;
  const MonotonicTime grid_begin_ = clock_.Now();
  std::atomic<std::thread::id> owner_;
  std::function<void(Duration)> delay_observer_;
};

}  // namespace macrame::transport
