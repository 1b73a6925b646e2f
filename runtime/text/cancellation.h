#pragma once

// Ends a thread's work on a text that nobody waits for any more.

#include <atomic>

namespace macrame::runtime::text {

// While it lives, encoding on this thread ends with an error soon after `is_cancelled` is true.
// Whoever called waits for it to end, so nothing is left running. One at a time on a thread.
class CancelledBy {
 public:
  explicit CancelledBy(const std::atomic<bool>& is_cancelled);
  ~CancelledBy();
  CancelledBy(const CancelledBy&) = delete;
  CancelledBy& operator=(const CancelledBy&) = delete;
};

}  // namespace macrame::runtime::text
