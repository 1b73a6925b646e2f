#include "transport/asio_dispatcher.h"

#include <gtest/gtest.h>

#include <thread>
#include <vector>

namespace macrame::transport {
namespace {

using std::chrono::milliseconds;

TEST(AsioDispatcherTest, TasksOfOtherThreadsRunOnTheOwnerThreadInOrder) {
  AsioDispatcher dispatcher;
  std::vector<int> seen;
  std::thread other([&] {
    for (int i = 0; i < 100; ++i) {
      dispatcher.Post([&, i] {
        EXPECT_TRUE(dispatcher.IsOwnerThread());
        seen.push_back(i);
      });
    }
    EXPECT_FALSE(dispatcher.IsOwnerThread());
    dispatcher.Post([&] { dispatcher.Stop(); });
  });
  dispatcher.Run();
  other.join();
  ASSERT_EQ(seen.size(), 100u);
  for (int i = 0; i < 100; ++i) EXPECT_EQ(seen[i], i);
}

TEST(AsioDispatcherTest, ATimerThatABusyThreadKeptWaitingIsObserved) {
  AsioDispatcher dispatcher;
  std::vector<Duration> delays;
  dispatcher.ObserveDelays([&](Duration delay) { delays.push_back(delay); });
  dispatcher.PostAfter(milliseconds(5), [&] { dispatcher.Stop(); });
  dispatcher.Post([&] {
    const MonotonicTime begun = dispatcher.Now();
    while (dispatcher.Now() - begun < milliseconds(30)) std::this_thread::yield();
  });
  dispatcher.Run();
  ASSERT_EQ(delays.size(), 1u);
  EXPECT_GE(delays[0], milliseconds(20));
}

TEST(AsioDispatcherTest, TimersFireNotBeforeTheirTime) {
  AsioDispatcher dispatcher;
  const MonotonicTime start = dispatcher.Now();
  Duration after{};
  dispatcher.PostAfter(milliseconds(20), [&] {
    after = dispatcher.Now() - start;
    dispatcher.Stop();
  });
  dispatcher.Run();
  EXPECT_GE(after, milliseconds(20));
}

// Of two delays that end between the same two points of the grid; once in several tries, as
// something else may run between the two calls.
TEST(AsioDispatcherTest, LongTimersFireTogetherNotBeforeTheirTime) {
  Duration between = milliseconds(1000);
  for (int i = 0; i < 5 && between > milliseconds(50); ++i) {
    AsioDispatcher dispatcher;
    const MonotonicTime start = dispatcher.Now();
    MonotonicTime first;
    dispatcher.PostAfter(milliseconds(1010), [&] { first = dispatcher.Now(); });
    dispatcher.PostAfter(milliseconds(1200), [&] {
      between = dispatcher.Now() - first;
      dispatcher.Stop();
    });
    dispatcher.Run();
    EXPECT_GE(first - start, milliseconds(1010));
    EXPECT_GE(first + between - start, milliseconds(1200));
  }
  EXPECT_LE(between, milliseconds(50));
}

TEST(AsioDispatcherTest, TheNextPointOfTheGridIsAhead) {
  AsioDispatcher dispatcher;
  const MonotonicTime before = dispatcher.Now();
  const MonotonicTime point = dispatcher.NextGridPoint();
  EXPECT_GT(point, before);
  EXPECT_LE(point, dispatcher.Now() + kTimerGrid);
}

TEST(AsioDispatcherTest, ACancelledTimerDoesNotFireEvenWhenItIsDue) {
  AsioDispatcher dispatcher;
  bool fired = false;
  Dispatcher::TimerId second = 0;
  // Both are due at once; the first one cancels the second.
  dispatcher.PostAfter(Duration::zero(), [&] { dispatcher.Cancel(second); });
  second = dispatcher.PostAfter(Duration::zero(), [&] { fired = true; });
  dispatcher.PostAfter(milliseconds(10), [&] { dispatcher.Stop(); });
  std::this_thread::sleep_for(milliseconds(2));
  dispatcher.Run();
  EXPECT_FALSE(fired);
}

TEST(AsioDispatcherTest, TimersArmedByOtherThreadsFire) {
  AsioDispatcher dispatcher;
  std::thread other([&] { dispatcher.PostAfter(milliseconds(1), [&] { dispatcher.Stop(); }); });
  dispatcher.Run();
  other.join();
}

}  // namespace
}  // namespace macrame::transport
