#include "tests/support/fake_dispatcher.h"

#include <gtest/gtest.h>

#include <vector>

namespace macrame::transport {
namespace {

using std::chrono::milliseconds;

TEST(FakeDispatcherTest, TimersFireInOrderAtTheirInstants) {
  FakeDispatcher dispatcher;
  const MonotonicTime start = dispatcher.Now();
  std::vector<std::pair<char, Duration>> fired;
  dispatcher.PostAfter(milliseconds(20), [&] { fired.push_back({'b', dispatcher.Now() - start}); });
  dispatcher.PostAfter(milliseconds(10), [&] {
    fired.push_back({'a', dispatcher.Now() - start});
    dispatcher.PostAfter(milliseconds(5), [&] {
      fired.push_back({'c', dispatcher.Now() - start});
    });
  });
  dispatcher.AdvanceBy(milliseconds(100));
  const std::vector<std::pair<char, Duration>> expected = {
      {'a', milliseconds(10)}, {'c', milliseconds(15)}, {'b', milliseconds(20)}};
  EXPECT_EQ(fired, expected);
  EXPECT_EQ(dispatcher.Now() - start, milliseconds(100));
  EXPECT_EQ(dispatcher.pending_timers(), 0);
}

TEST(FakeDispatcherTest, ACancelledTimerDoesNotFire) {
  FakeDispatcher dispatcher;
  bool fired = false;
  const auto id = dispatcher.PostAfter(milliseconds(1), [&] { fired = true; });
  dispatcher.Cancel(id);
  dispatcher.Cancel(id + 1000);
  dispatcher.AdvanceBy(milliseconds(10));
  EXPECT_FALSE(fired);
}

TEST(FakeDispatcherTest, PostedTasksRunOnlyWhenTold) {
  FakeDispatcher dispatcher;
  int runs = 0;
  dispatcher.Post([&] {
    ++runs;
    dispatcher.Post([&] { ++runs; });
  });
  EXPECT_EQ(runs, 0);
  EXPECT_EQ(dispatcher.RunPosted(), 2);
  EXPECT_EQ(runs, 2);
}

TEST(FakeDispatcherTest, WallClockMovesWithTime) {
  FakeDispatcher dispatcher;
  const uint64_t before = dispatcher.UnixMs();
  dispatcher.AdvanceBy(milliseconds(1500));
  EXPECT_EQ(dispatcher.UnixMs() - before, 1500u);
}

}  // namespace
}  // namespace macrame::transport
