#pragma once

// One thread for work that blocks (disks, slow files), so that an owner thread need not. Tasks run
// in the order in which they were given; what they learnt they Post to their owner.

#include <condition_variable>
#include <deque>
#include <functional>
#include <mutex>
#include <thread>

namespace macrame::transport {

class WorkerThread {
 public:
  WorkerThread();
  // Waits for the task that runs; those that wait are dropped.
  ~WorkerThread();
  WorkerThread(const WorkerThread&) = delete;
  WorkerThread& operator=(const WorkerThread&) = delete;

  // Any thread. False, and the task is dropped, when kWorkerTasksMax wait already.
  bool Add(std::function<void()> task);

 private:
  void Run();

  std::mutex mutex_;
  std::condition_variable wake_;
  std::deque<std::function<void()>> tasks_;
  bool stopping_ = false;
  std::thread thread_;
};

inline constexpr size_t kWorkerTasksMax = 1024;

}  // namespace macrame::transport
