// Fork and join: each worker once a round, nothing left over, parts that cover all rows.

#include "runtime/kernels/thread_pool.h"

#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <thread>
#include <vector>

namespace macrame::runtime::kernels {
namespace {

TEST(ThreadPoolTest, EachWorkerRunsOnceARoundAndRunWaitsForAll) {
  for (const int threads : {1, 2, 5}) {
    ThreadPool pool(threads);
    ASSERT_EQ(pool.threads(), threads);
    std::vector<int> calls(static_cast<size_t>(threads), 0);  // plain: Run is what orders them
    for (int round = 1; round <= 2000; ++round) {
      pool.Run([&](int worker, int workers) {
        ASSERT_EQ(workers, threads);
        ++calls[static_cast<size_t>(worker)];
      });
      for (const int count : calls) ASSERT_EQ(count, round);
    }
  }
}

TEST(ThreadPoolTest, WorkersThatBlockedAreWokenAgain) {
  ThreadPool pool(2);
  for (int round = 0; round < 20; ++round) {
    std::atomic<int> calls{0};
    pool.Run([&](int, int) { ++calls; });
    EXPECT_EQ(calls, 2);
    // Longer than workers spin: the next round finds them blocked.
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
}

TEST(ThreadPoolTest, TheCallerIsWorkerZeroAndWaitsForSlowOnes) {
  ThreadPool pool(2, /*pin=*/true);
  const std::thread::id caller = std::this_thread::get_id();
  bool slow_is_done = false;
  std::thread::id first;
  pool.Run([&](int worker, int) {
    if (worker == 0) {
      first = std::this_thread::get_id();
    } else {
      std::this_thread::sleep_for(std::chrono::milliseconds(5));
      slow_is_done = true;
    }
  });
  EXPECT_EQ(first, caller);
  EXPECT_TRUE(slow_is_done);
}

TEST(ThreadPoolTest, LessThanOneThreadIsOne) {
  EXPECT_EQ(ThreadPool(0).threads(), 1);
  EXPECT_GE(ThreadPool::UsableProcessors(), 1);
}

TEST(RowsOfWorkerTest, PartsCoverAllRowsInOrder) {
  for (const size_t rows : {0, 1, 31, 32, 33, 1000}) {
    for (const int workers : {1, 2, 3, 7}) {
      size_t next = 0;
      for (int worker = 0; worker < workers; ++worker) {
        const RowRange part = RowsOfWorker(rows, 32, worker, workers);
        EXPECT_EQ(part.begin, next);
        EXPECT_GE(part.end, part.begin);
        EXPECT_TRUE(part.end == rows || part.end % 32 == 0);
        next = part.end;
      }
      EXPECT_EQ(next, rows);
    }
  }
}

}  // namespace
}  // namespace macrame::runtime::kernels
