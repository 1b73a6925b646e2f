#include "transport/worker_thread.h"

#include <gtest/gtest.h>

#include <future>
#include <vector>

#include "transport/guarded.h"

namespace macrame::transport {
namespace {

TEST(WorkerThreadTest, TasksRunInOrderOnAnotherThread) {
  WorkerThread worker;
  std::vector<int> seen;
  std::promise<std::thread::id> ran_on;
  for (int i = 0; i < 100; ++i) {
    ASSERT_TRUE(worker.Add([&seen, i] { seen.push_back(i); }));
  }
  ASSERT_TRUE(worker.Add([&ran_on] { ran_on.set_value(std::this_thread::get_id()); }));
  EXPECT_NE(ran_on.get_future().get(), std::this_thread::get_id());
  ASSERT_EQ(seen.size(), 100u);
  for (int i = 0; i < 100; ++i) EXPECT_EQ(seen[i], i);
}

TEST(WorkerThreadTest, TooManyTasksAreRefused) {
  std::promise<void> open;
  std::shared_future<void> opened = open.get_future().share();
  WorkerThread worker;
  worker.Add([opened] { opened.wait(); });
  size_t added = 0;
  while (added <= kWorkerTasksMax && worker.Add([] {})) ++added;
  EXPECT_LE(added, kWorkerTasksMax);
  open.set_value();
}

TEST(GuardedTest, HoldsTheLastValue) {
  Guarded<int> value(1);
  value.Set(2);
  EXPECT_EQ(value.Get(), 2);
}

}  // namespace
}  // namespace macrame::transport
