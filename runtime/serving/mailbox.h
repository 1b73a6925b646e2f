#pragma once

// Hands work from one thread to another: the dispatcher's to the engine's.

#include <deque>
#include <optional>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"

namespace macrame::runtime::engine {

template <typename T>
class Mailbox {
 public:
  // Any thread. Whoever puts bounds how much.
  void Put(T item) {
    absl::MutexLock lock(&mutex_);
    if (!closed_) items_.push_back(std::move(item));
  }

  // Blocks; nothing once closed, even if items are left.
  std::optional<T> Take() {
    absl::MutexLock lock(&mutex_);
    mutex_.Await(absl::Condition(
        +[](Mailbox* self) ABSL_EXCLUSIVE_LOCKS_REQUIRED(self->mutex_) {
          return self->closed_ || !self->items_.empty();
        },
        this));
    if (closed_) return std::nullopt;
    T item = std::move(items_.front());
    items_.pop_front();
    return item;
  }

  // What is there within `limit`.
  std::optional<T> TakeWithin(absl::Duration limit) {
    absl::MutexLock lock(&mutex_);
    mutex_.AwaitWithTimeout(absl::Condition(
                                +[](Mailbox* self) ABSL_EXCLUSIVE_LOCKS_REQUIRED(self->mutex_) {
                                  return self->closed_ || !self->items_.empty();
                                },
                                this),
                            limit);
    if (items_.empty()) return std::nullopt;
    T item = std::move(items_.front());
    items_.pop_front();
    return item;
  }

  bool closed() {
    absl::MutexLock lock(&mutex_);
    return closed_;
  }

  void Close() {
    absl::MutexLock lock(&mutex_);
    closed_ = true;
    items_.clear();
  }

 private:
  absl::Mutex mutex_;
  std::deque<T> items_ ABSL_GUARDED_BY(mutex_);
  bool closed_ ABSL_GUARDED_BY(mutex_) = false;
};

}  // namespace macrame::runtime::engine
