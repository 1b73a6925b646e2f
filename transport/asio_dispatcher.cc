#include "transport/asio_dispatcher.h"

#include <boost/asio/executor_work_guard.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/steady_timer.hpp>

#include <algorithm>

#include "proto/check.h"

namespace macrame::transport {
MonotonicTime SystemClock::Now() const {
  return std::chrono::time_point_cast<Duration>(std::chrono::steady_clock::now());
}

uint64_t SystemClock::UnixMs() const {
  return static_cast<uint64_t>(std::chrono::duration_cast<std::chrono::milliseconds>(
                                   std::chrono::system_clock::now().time_since_epoch())
                                   .count());
}

struct AsioDispatcher::Parts {
  // One thread runs it; the hint lets Asio leave out what only several would need.
  boost::asio::io_context io{1};
  boost::asio::executor_work_guard<boost::asio::io_context::executor_type> work{io.get_executor()};
  std::mutex mutex;
  TimerId last_timer = 0;
  std::unordered_map<TimerId, std::unique_ptr<boost::asio::steady_timer>> timers;
};

AsioDispatcher::AsioDispatcher()
    : parts_(std::make_unique<Parts>()), owner_(std::this_thread::get_id()) {}

AsioDispatcher::~AsioDispatcher() = default;

boost::asio::io_context& AsioDispatcher::io() { return parts_->io; }

void AsioDispatcher::Run() {
  owner_ = std::this_thread::get_id();
  parts_->io.restart();
  parts_->io.run();
}

void AsioDispatcher::Stop() { parts_->io.stop(); }

MonotonicTime AsioDispatcher::Now() const { return clock_.Now(); }

uint64_t AsioDispatcher::UnixMs() const { return clock_.UnixMs(); }

MonotonicTime AsioDispatcher::GridPointAfter(MonotonicTime time) const {
  return grid_begin_ + kTimerGrid * ((time - grid_begin_) / kTimerGrid + 1);
}

void AsioDispatcher::Post(Task task) { boost::asio::post(parts_->io, std::move(task)); }

Dispatcher::TimerId AsioDispatcher::PostAfter(Duration delay, Task task) {
  // The clock's own time is up to a microsecond later than Now().
  const MonotonicTime at = Now() + delay + std::chrono::microseconds(1);
  return PostAt(delay >= kLongDelay ? GridPointAfter(at) : at, std::move(task));
}

Dispatcher::TimerId AsioDispatcher::PostAt(MonotonicTime at, Task task) {
  auto timer = std::make_unique<boost::asio::steady_timer>(parts_->io, at);
  boost::asio::steady_timer* armed = timer.get();
  std::lock_guard<std::mutex> lock(parts_->mutex);
  const TimerId id = ++parts_->last_timer;
  parts_->timers.emplace(id, std::move(timer));
  armed->async_wait([this, id, at, task = std::move(task)](const boost::system::error_code&) {
    {
      std::lock_guard<std::mutex> inner(parts_->mutex);
      // A cancelled timer is no longer listed, even when it had fired already.
      if (parts_->timers.erase(id) == 0) return;
    }
    if (delay_observer_) delay_observer_(std::max(Now() - at, Duration::zero()));
    task();
  });
  return id;
}

void AsioDispatcher::Cancel(TimerId id) {
  MACRAME_CHECK(IsOwnerThread()) << "timers are cancelled on the owner thread";
  std::unique_ptr<boost::asio::steady_timer> timer;
  {
    std::lock_guard<std::mutex> lock(parts_->mutex);
    const auto found = parts_->timers.find(id);
    if (found == parts_->timers.end()) return;
    timer = std::move(found->second);
    parts_->timers.erase(found);
  }
}

void AsioDispatcher::ObserveDelays(std::function<void(Duration)> observer) {
  delay_observer_ = std::move(observer);
}

bool AsioDispatcher::IsOwnerThread() const { return owner_.load() == std::this_thread::get_id(); }

}  // namespace macrame::transport
