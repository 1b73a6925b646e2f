#pragma once

// The threads that a rank computes with: fork and join around one function, many thousand times a
// second.
//
// The caller is worker 0. After its work a worker spins for about 50 us, in which the next function
// usually arrives, and then blocks; it does not spin at all where there are more workers than
// processors. One thread at a time may call Run, always the same one if the pool pins. Run neither
// allocates nor takes a lock.

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <thread>
#include <type_traits>
#include <vector>

namespace macrame::runtime::kernels {

// A part [begin, end) of some rows.
struct RowRange {
  size_t begin = 0;
  size_t end = 0;
};

// The rows of one worker: parts differ by at most one `unit`, and begin at multiples of it.
RowRange RowsOfWorker(size_t rows, size_t unit, int worker, int workers);

class ThreadPool {
 public:
  // At least one thread, the caller's included. With `pin`, each worker stays on one of the
  // processors that this process may use, the constructing thread on the first: only right where no
  // other process computes on them. A system that refuses to pin is left alone.
  explicit ThreadPool(int threads, bool pin = false);
  ~ThreadPool();
  ThreadPool(const ThreadPool&) = delete;
  ThreadPool& operator=(const ThreadPool&) = delete;

  int threads() const { return threads_; }

  // Processors that this process may use: more threads than that only get in each other's way.
  static int UsableProcessors();

  // Calls function(worker, workers) once on each thread and returns when all calls have. The
  // function must not throw and must not call Run.
  template <typename Function>
  void Run(Function&& function) {
    using Plain = std::remove_reference_t<Function>;
    if (threads_ == 1) {
      function(0, 1);
      return;
    }
    RunOnAll([](void* context, int worker,
                int workers) { (*static_cast<Plain*>(context))(worker, workers); },
             const_cast<void*>(static_cast<const void*>(&function)));
  }

 private:
  using Call = void (*)(void* context, int worker, int workers);

  void RunOnAll(Call call, void* context);
  void Work(int worker);
  // Waits until `value` is no longer `old`: spinning first, then blocked.
  void AwaitChange(const std::atomic<uint32_t>& value, uint32_t old) const;

  const int threads_;
  const bool spins_;
  Call call_ = nullptr;
  void* context_ = nullptr;
  // Each on a cache line of its own: one is written by the caller, the other by all workers.
  alignas(64) std::atomic<uint32_t> round_{0};    // counts calls of Run
  alignas(64) std::atomic<uint32_t> running_{0};  // workers that are not done
  std::atomic<bool> ending_{false};
  std::vector<std::thread> workers_;
};

}  // namespace macrame::runtime::kernels
