#include "runtime/gang/watchdog.h"

#include <algorithm>
#include <utility>

#include "absl/time/time.h"
#include "proto/check.h"

namespace macrame::runtime::engine {

using std::chrono::milliseconds;
using std::chrono::steady_clock;

Watchdog::Watchdog(std::function<void(const std::string&, milliseconds)> on_stall)
    : on_stall_(std::move(on_stall)), thread_([this] { Run(); }) {}

Watchdog::~Watchdog() {
  {
    absl::MutexLock lock(&mutex_);
    ending_ = true;
  }
  thread_.join();
}

Watchdog::Guard Watchdog::Watch(std::string what, milliseconds limit) {
  if (limit.count() == 0) return Guard(*this, false);
  absl::MutexLock lock(&mutex_);
  MACRAME_CHECK(!armed_) << "already watching " << what_;
  armed_ = true;
  what_ = std::move(what);
  limit_ = limit;
  deadline_ = steady_clock::now() + limit;
  return Guard(*this, true);
}

void Watchdog::Touch() {
  absl::MutexLock lock(&mutex_);
  deadline_ = steady_clock::now() + limit_;
}

void Watchdog::Disarm() {
  absl::MutexLock lock(&mutex_);
  armed_ = false;
}

void Watchdog::Run() {
  // Steps come and go by the thousand: the thread wakes only when the deadline that it waits for
  // has come, or an earlier one is set.
  absl::MutexLock lock(&mutex_);
  while (!ending_) {
    if (!armed_) {
      mutex_.Await(absl::Condition(
          +[](Watchdog* self) ABSL_EXCLUSIVE_LOCKS_REQUIRED(self->mutex_) {
            return self->armed_ || self->ending_;
          },
          this));
      continue;
    }
    const auto left = deadline_ - steady_clock::now();
    if (left <= steady_clock::duration::zero()) {
      const std::string what = what_;
      const milliseconds limit = limit_;
      armed_ = false;
      mutex_.Unlock();
      on_stall_(what, limit);
      mutex_.Lock();
      continue;
    }
    waiting_for_ = deadline_;
    mutex_.AwaitWithTimeout(absl::Condition(
                                +[](Watchdog* self) ABSL_EXCLUSIVE_LOCKS_REQUIRED(self->mutex_) {
                                  return self->ending_ ||
                                         (self->armed_ && self->deadline_ < self->waiting_for_);
                                },
                                this),
                            absl::FromChrono(left));
  }
}

}  // namespace macrame::runtime::engine
