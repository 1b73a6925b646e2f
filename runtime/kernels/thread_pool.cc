#include "runtime/kernels/thread_pool.h"

#include <algorithm>
#include <chrono>

#ifdef __linux__
#include <sched.h>
#endif

namespace macrame::runtime::kernels {
namespace {

constexpr std::chrono::microseconds kSpin{50};

void Pause() {
#if defined(__x86_64__) || defined(__i386__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  asm volatile("yield");
#endif
}

#ifdef __linux__
std::vector<int> AllowedProcessors() {
  cpu_set_t set;
  std::vector<int> allowed;
  if (sched_getaffinity(0, sizeof(set), &set) != 0) return allowed;
  for (int i = 0; i < CPU_SETSIZE; ++i) {
    if (CPU_ISSET(i, &set)) allowed.push_back(i);
  }
  return allowed;
}

void PinThisThread(int processor) {
  cpu_set_t set;
  CPU_ZERO(&set);
  CPU_SET(processor, &set);
  (void)sched_setaffinity(0, sizeof(set), &set);
}
#endif

}  // namespace

RowRange RowsOfWorker(size_t rows, size_t unit, int worker, int workers) {
  const size_t units = (rows + unit - 1) / unit;
  const auto at = [&](int w) {
    return std::min(rows, units * static_cast<size_t>(w) / static_cast<size_t>(workers) * unit);
  };
  return {at(worker), at(worker + 1)};
}

int ThreadPool::UsableProcessors() {
#ifdef __linux__
  if (const size_t allowed = AllowedProcessors().size(); allowed > 0) {
    return static_cast<int>(allowed);
  }
#endif
  return static_cast<int>(std::max(1U, std::thread::hardware_concurrency()));
}

ThreadPool::ThreadPool(int threads, [[maybe_unused]] bool pin)
    : threads_(std::max(1, threads)), spins_(threads_ <= UsableProcessors()) {
#ifdef __linux__
  const std::vector<int> processors = pin && spins_ ? AllowedProcessors() : std::vector<int>();
  if (!processors.empty()) PinThisThread(processors[0]);
#endif
  for (int worker = 1; worker < threads_; ++worker) {
    workers_.emplace_back([=, this] {
#ifdef __linux__
      if (!processors.empty()) PinThisThread(processors[static_cast<size_t>(worker)]);
#endif
      Work(worker);
    });
  }
}

ThreadPool::~ThreadPool() {
  ending_.store(true, std::memory_order_relaxed);
  round_.fetch_add(1, std::memory_order_release);
  round_.notify_all();
  for (std::thread& worker : workers_) worker.join();
}

void ThreadPool::AwaitChange(const std::atomic<uint32_t>& value, uint32_t old) const {
  if (spins_) {
    const auto end = std::chrono::steady_clock::now() + kSpin;
    do {
      for (int i = 0; i < 64; ++i) {
        if (value.load(std::memory_order_acquire) != old) return;
        Pause();
      }
    } while (std::chrono::steady_clock::now() < end);
  }
  value.wait(old, std::memory_order_acquire);
}

void ThreadPool::RunOnAll(Call call, void* context) {
  call_ = call;
  context_ = context;
  running_.store(static_cast<uint32_t>(threads_ - 1), std::memory_order_relaxed);
  round_.fetch_add(1, std::memory_order_release);
  round_.notify_all();
  call(context, 0, threads_);
  for (uint32_t left; (left = running_.load(std::memory_order_acquire)) != 0;) {
    AwaitChange(running_, left);
  }
}

void ThreadPool::Work(int worker) {
  for (uint32_t round = 0;;) {
    AwaitChange(round_, round);
    // Run waits for every worker before the next round, so none is ever missed.
    round = round_.load(std::memory_order_acquire);
    if (ending_.load(std::memory_order_relaxed)) return;
    call_(context_, worker, threads_);
    if (running_.fetch_sub(1, std::memory_order_acq_rel) == 1) running_.notify_all();
  }
}

}  // namespace macrame::runtime::kernels
