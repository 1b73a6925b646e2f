#include "runtime/gang/watchdog.h"

#include <gtest/gtest.h>

#include <condition_variable>
#include <mutex>
#include <vector>

namespace macrame::runtime::engine {
namespace {

using std::chrono::milliseconds;
using std::chrono::steady_clock;

// What a watchdog barked at, awaited.
class Barks {
 public:
  auto Hook() {
    return [this](const std::string& what, milliseconds limit) {
      const std::lock_guard lock(mutex_);
      barks_.emplace_back(what, limit);
      changed_.notify_all();
    };
  }
  bool Await() {
    std::unique_lock lock(mutex_);
    return changed_.wait_for(lock, std::chrono::seconds(10), [&] { return !barks_.empty(); });
  }
  std::vector<std::pair<std::string, milliseconds>> all() {
    const std::lock_guard lock(mutex_);
    return barks_;
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<std::pair<std::string, milliseconds>> barks_;
};

TEST(Watchdog, WhatOutlastsItsLimitIsNamedOnce) {
  Barks barks;
  Watchdog watchdog(barks.Hook());
  const auto begun = steady_clock::now();
  const Watchdog::Guard guard = watchdog.Watch("step 7", milliseconds(50));
  ASSERT_TRUE(barks.Await());
  EXPECT_GE(steady_clock::now() - begun, milliseconds(50));
  ASSERT_EQ(barks.all().size(), 1u);
  EXPECT_EQ(barks.all()[0].first, "step 7");
  EXPECT_EQ(barks.all()[0].second, milliseconds(50));
}

TEST(Watchdog, WhatEndsInTimeIsLeftAlone) {
  Barks barks;
  Watchdog watchdog(barks.Hook());
  for (int i = 0; i < 5000; ++i) {
    const Watchdog::Guard guard = watchdog.Watch("a step", std::chrono::seconds(30));
  }
  // One that has a shorter limit than those before it is seen in its own time.
  const auto begun = steady_clock::now();
  const Watchdog::Guard guard = watchdog.Watch("a short one", milliseconds(20));
  ASSERT_TRUE(barks.Await());
  EXPECT_LT(steady_clock::now() - begun, std::chrono::seconds(5));
  EXPECT_EQ(barks.all()[0].first, "a short one");
}

TEST(Watchdog, ProgressBeginsTheLimitAnew) {
  Barks barks;
  Watchdog watchdog(barks.Hook());
  const Watchdog::Guard guard = watchdog.Watch("loading", milliseconds(400));
  const auto begun = steady_clock::now();
  // Twice its limit, touched all the while.
  while (steady_clock::now() - begun < milliseconds(800)) watchdog.Touch();
  EXPECT_TRUE(barks.all().empty());
  ASSERT_TRUE(barks.Await()) << "and then none";
}

TEST(Watchdog, WithoutALimitNothingIsWatchedAndItEndsAtOnce) {
  Barks barks;
  const auto begun = steady_clock::now();
  {
    Watchdog watchdog(barks.Hook());
    const Watchdog::Guard guard = watchdog.Watch("for ever", milliseconds(0));
    const Watchdog::Guard beside = watchdog.Watch("an hour", std::chrono::hours(1));
  }
  EXPECT_LT(steady_clock::now() - begun, std::chrono::seconds(5));
  EXPECT_TRUE(barks.all().empty());
}

}  // namespace
}  // namespace macrame::runtime::engine
