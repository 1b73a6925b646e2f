#include "agentd/cores/alert_tracker.h"

#include <gtest/gtest.h>

#include "proto/reasons.h"

namespace macrame::agentd {
namespace {

using std::chrono::seconds;

class AlertTrackerTest : public ::testing::Test {
 protected:
  // Looks each second while `span` passes.
  std::vector<Alert> Pass(Duration span, const std::vector<Problem>& problems) {
    std::vector<Alert> all;
    for (Duration passed{}; passed < span; passed += seconds(1)) {
      now_ += seconds(1);
      unix_ms_ += 1000;
      for (Alert& alert : tracker_.Update(problems, now_, unix_ms_)) {
        all.push_back(std::move(alert));
      }
    }
    return all;
  }

  const Problem dead_{MakeReason("NODE_DEAD", "mini-3 is dead", "3"), ""};
  AlertTracker tracker_;
  MonotonicTime now_{std::chrono::hours(1)};
  uint64_t unix_ms_ = 1'000'000;
};

TEST_F(AlertTrackerTest, WhatStaysIsToldOnceAndItsEndOnce) {
  EXPECT_TRUE(Pass(seconds(10), {dead_}).empty());
  const auto raised = Pass(seconds(60), {dead_});
  ASSERT_EQ(raised.size(), 1u);
  EXPECT_FALSE(raised[0].is_over);
  EXPECT_EQ(raised[0].reason.code(), "NODE_DEAD");
  EXPECT_EQ(raised[0].since_unix_ms, 1'001'000u);
  EXPECT_TRUE(Pass(seconds(29), {}).empty());
  const auto over = Pass(seconds(60), {});
  ASSERT_EQ(over.size(), 1u);
  EXPECT_TRUE(over[0].is_over);
}

TEST_F(AlertTrackerTest, WhatPassesOrComesAndGoesIsNotTold) {
  EXPECT_TRUE(Pass(seconds(5), {dead_}).empty());
  EXPECT_TRUE(Pass(seconds(60), {}).empty());
  for (int i = 0; i < 10; ++i) {
    EXPECT_TRUE(Pass(seconds(4), {dead_}).empty());
    EXPECT_TRUE(Pass(seconds(8), {}).empty());
  }
}

TEST_F(AlertTrackerTest, WhatIsBackBeforeItsEndWasToldGoesOn) {
  EXPECT_EQ(Pass(seconds(20), {dead_}).size(), 1u);
  EXPECT_TRUE(Pass(seconds(20), {}).empty());
  EXPECT_TRUE(Pass(seconds(60), {dead_}).empty());
}

TEST_F(AlertTrackerTest, AModelThatIsNotServedIsOneProblemWhateverTheCause) {
  EXPECT_EQ(Pass(seconds(15), {{MakeReason("RANK_EXITED", "rank 0 exited", "1"), "a"}}).size(), 1u);
  EXPECT_TRUE(
      Pass(seconds(60), {{MakeReason("RANK_KILLED", "rank 1 was killed", "2"), "a"}}).empty());
  EXPECT_EQ(tracker_.Raised().size(), 1u);
  const Problem other{MakeReason("MODEL_FILE_BROKEN", "a shard is cut short", "2"), "b"};
  EXPECT_EQ(Pass(seconds(15), {{MakeReason("RANK_KILLED", "again", "2"), "a"}, other}).size(), 1u)
      << "of a model that is wanted it is an alert, of a folder that nobody asked for none";
}

TEST_F(AlertTrackerTest, HowItIsConfiguredIsNoAlertHeatIs) {
  EXPECT_FALSE(IsAlert("NODE_CORDONED"));
  EXPECT_FALSE(IsAlert("CLUSTER_PAUSED"));
  EXPECT_FALSE(IsAlert("ALERT_UNDELIVERED"));
  EXPECT_TRUE(IsAlert("THERMAL"));
  EXPECT_TRUE(IsAlert("GPU_WEDGED"));
  EXPECT_TRUE(IsAlert("NODE_DEAD"));
  EXPECT_TRUE(IsAlert("TRANSPORT_FALLBACK"));
  EXPECT_TRUE(Pass(seconds(60), {{MakeReason("NODE_CORDONED", "mini-2 is cordoned"), ""}}).empty());
}

}  // namespace
}  // namespace macrame::agentd
