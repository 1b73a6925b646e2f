#pragma once

// Ends what would wait for ever. MLX's ring throws when a peer's process dies but waits without end
// when a peer is stopped, so every wait on others has a limit that this thread watches.

#include <chrono>
#include <functional>
#include <string>
#include <thread>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"

namespace macrame::runtime::engine {

class Watchdog {
 public:
  // `on_stall(what, limit)` runs on the watchdog's thread, once; it is expected to end the process.
  explicit Watchdog(std::function<void(const std::string&, std::chrono::milliseconds)> on_stall);
  ~Watchdog();
  Watchdog(const Watchdog&) = delete;
  Watchdog& operator=(const Watchdog&) = delete;

  // Watched from its making to its end.
  class [[nodiscard]] Guard {
   public:
    Guard(Watchdog& watchdog, bool active) : watchdog_(watchdog), active_(active) {}
    ~Guard() {
      if (active_) watchdog_.Disarm();
    }
    Guard(const Guard&) = delete;
    Guard& operator=(const Guard&) = delete;

   private:
    Watchdog& watchdog_;
    const bool active_;
  };

  // One thing at a time: the engine thread's. A limit of zero watches nothing.
  Guard Watch(std::string what, std::chrono::milliseconds limit);
  // Starts the running limit anew: there was progress.
  void Touch();

 private:
  void Run();
  void Disarm();

  const std::function<void(const std::string&, std::chrono::milliseconds)> on_stall_;
  absl::Mutex mutex_;
  bool armed_ ABSL_GUARDED_BY(mutex_) = false;
  bool ending_ ABSL_GUARDED_BY(mutex_) = false;
  std::string what_ ABSL_GUARDED_BY(mutex_);
  std::chrono::milliseconds limit_ ABSL_GUARDED_BY(mutex_){0};
  std::chrono::steady_clock::time_point deadline_ ABSL_GUARDED_BY(mutex_);
  std::chrono::steady_clock::time_point waiting_for_ ABSL_GUARDED_BY(mutex_);
  std::thread thread_;
};

}  // namespace macrame::runtime::engine
