#include "tests/support/fake_dispatcher.h"

#include <algorithm>

#include "proto/check.h"

namespace macrame::transport {

FakeDispatcher::FakeDispatcher(MonotonicTime start, uint64_t unix_ms)
    : owner_(std::this_thread::get_id()), start_(start), start_unix_ms_(unix_ms), now_(start) {}

int FakeDispatcher::RunPosted() {
  MACRAME_CHECK(IsOwnerThread()) << "tasks run on the owner thread";
  int count = 0;
  while (true) {
    Task task;
    {
      std::lock_guard<std::mutex> lock(mutex_);
      if (posted_.empty()) return count;
      task = std::move(posted_.front());
      posted_.pop_front();
    }
    task();
    ++count;
  }
}

void FakeDispatcher::AdvanceBy(Duration duration) {
  RunPosted();
  MonotonicTime end;
  {
    std::lock_guard<std::mutex> lock(mutex_);
    end = now_ + duration;
  }
  while (true) {
    Task task;
    {
      std::lock_guard<std::mutex> lock(mutex_);
      const auto first = timers_.begin();
      if (first == timers_.end() || first->first.first > end) {
        now_ = end;
        return;
      }
      now_ = std::max(now_, first->first.first);
      task = std::move(first->second);
      timers_.erase(first);
    }
    task();
    RunPosted();
  }
}

int FakeDispatcher::pending_timers() const {
  std::lock_guard<std::mutex> lock(mutex_);
  return static_cast<int>(timers_.size());
}

MonotonicTime FakeDispatcher::Now() const {
  std::lock_guard<std::mutex> lock(mutex_);
  return now_;
}

uint64_t FakeDispatcher::UnixMs() const {
  std::lock_guard<std::mutex> lock(mutex_);
  const auto passed = std::chrono::duration_cast<std::chrono::milliseconds>(now_ - start_);
  return start_unix_ms_ + static_cast<uint64_t>(passed.count());
}

void FakeDispatcher::Post(Task task) {
  std::lock_guard<std::mutex> lock(mutex_);
  posted_.push_back(std::move(task));
}

Dispatcher::TimerId FakeDispatcher::PostAfter(Duration delay, Task task) {
  std::lock_guard<std::mutex> lock(mutex_);
  const TimerId id = ++last_timer_;
  timers_.emplace(std::make_pair(now_ + std::max(delay, Duration::zero()), id), std::move(task));
  return id;
}

void FakeDispatcher::Cancel(TimerId id) {
  MACRAME_CHECK(IsOwnerThread()) << "timers are cancelled on the owner thread";
  std::lock_guard<std::mutex> lock(mutex_);
  for (auto it = timers_.begin(); it != timers_.end(); ++it) {
    if (it->first.second == id) {
      timers_.erase(it);
      return;
    }
  }
}

bool FakeDispatcher::IsOwnerThread() const { return owner_ == std::this_thread::get_id(); }

}  // namespace macrame::transport
