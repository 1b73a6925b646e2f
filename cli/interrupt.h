#pragma once

// Ctrl-C and SIGTERM as a call on a thread of its own, so that what is under way can be ended in
// order.

#include <signal.h>

#include <array>
#include <atomic>
#include <functional>
#include <thread>

#include "cli/exit_codes.h"

namespace macrame::cli {

// While it lives, SIGINT and SIGTERM run `on_signal` (once) instead of ending the process; a second
// SIGINT ends it as usual. Afterwards they do what they did before. One at a time per process.
class InterruptWatch {
 public:
  explicit InterruptWatch(std::function<void()> on_signal);
  ~InterruptWatch();
  InterruptWatch(const InterruptWatch&) = delete;
  InterruptWatch& operator=(const InterruptWatch&) = delete;

  bool interrupted() const { return signal_.load() != 0; }
  // kExitInterrupted or kExitTerminated, once interrupted.
  ExitCode exit_code() const;

 private:
  std::function<void()> on_signal_;
  std::atomic<int> signal_{0};
  std::array<struct sigaction, 2> before_{};  // of SIGINT and SIGTERM
  std::thread thread_;
};

// While it lives, a SIGINT that comes between two watches does nothing: who answers to it in turn
// with several watches is not ended by one that comes in the instant between them.
class InterruptGap {
 public:
  InterruptGap();
  ~InterruptGap();
  InterruptGap(const InterruptGap&) = delete;
  InterruptGap& operator=(const InterruptGap&) = delete;

 private:
  struct sigaction before_ {};
};

}  // namespace macrame::cli
