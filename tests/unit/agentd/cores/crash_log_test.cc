#include "agentd/cores/crash_log.h"

#include <gtest/gtest.h>

namespace macrame::agentd {
namespace {

using std::chrono::minutes;

const NodeId kNode("00000000000000000000000000000001");
constexpr MonotonicTime kStart{minutes(100)};

TEST(CrashLog, ARestartAfterALossIsACrash) {
  CrashLog log;
  EXPECT_FALSE(log.NoteBoot(kNode, 1000, kStart).has_value()) << "the first word of it";
  log.NoteLost(kNode, "verbs", kStart);
  EXPECT_FALSE(log.NoteBoot(kNode, 1003, kStart + minutes(1)).has_value())
      << "only its clock was set, or its agent died";
  EXPECT_EQ(log.NoteBoot(kNode, 9000, kStart + minutes(2)), "verbs");
  EXPECT_FALSE(log.NoteBoot(kNode, 9000, kStart + minutes(3)).has_value()) << "counted once";
}

TEST(CrashLog, ARestartThatNobodyMissedIsNone) {
  CrashLog log;
  log.NoteBoot(kNode, 1000, kStart);
  EXPECT_FALSE(log.NoteBoot(kNode, 9000, kStart + minutes(1)).has_value());
  log.NoteLost(kNode, "ring", kStart + minutes(2));
  EXPECT_FALSE(log.NoteBoot(kNode, 99000, kStart + minutes(60)).has_value()) << "long after";
}

TEST(CrashLog, TwoInAnHourKeepItOffRdma) {
  v1::NodeCrashes crashes;
  crashes.set_node_id(kNode.value());
  AddCrash(crashes, "jaccl", 1'000'000);
  EXPECT_FALSE(IsQuarantined(crashes));
  AddCrash(crashes, "jaccl", 1'000'000 + kQuarantineWindowMs + 1);
  EXPECT_FALSE(IsQuarantined(crashes));
  AddCrash(crashes, "jaccl", 1'000'000 + kQuarantineWindowMs + 60'000);
  EXPECT_TRUE(IsQuarantined(crashes));
  const v1::Reason why = CrashReason(crashes, "studio-1");
  EXPECT_EQ(why.code(), "NODE_CRASHED");
  EXPECT_EQ(why.message(), "studio-1 restarted 3 times while it held a rank, last over jaccl");
}

// A machine that panics without RDMA would panic with each further rank.
TEST(CrashLog, TwoInAnHourOverTcpCordonIt) {
  v1::NodeCrashes crashes;
  AddCrash(crashes, "ring", 1'000'000);
  EXPECT_FALSE(WantsCordon(crashes));
  AddCrash(crashes, "jaccl", 1'060'000);
  EXPECT_TRUE(IsQuarantined(crashes));
  EXPECT_FALSE(WantsCordon(crashes)) << "without RDMA it may be well";
  AddCrash(crashes, "ring", 1'120'000);
  EXPECT_FALSE(WantsCordon(crashes));
  AddCrash(crashes, "single", 1'180'000);
  EXPECT_TRUE(WantsCordon(crashes));
  EXPECT_NE(CrashReason(crashes, "mini").remedy().find("uncordon"), std::string::npos);
  AddCrash(crashes, "ring", 1'180'000 + kQuarantineWindowMs + 1);
  EXPECT_FALSE(WantsCordon(crashes));
}

// The second one was written down by another coordinator, whose clock is ten minutes behind.
TEST(CrashLog, TwoInAnHourAreTwoWhoseverClockTheyWereSeenBy) {
  v1::NodeCrashes crashes;
  AddCrash(crashes, "jaccl", 10'000'000);
  AddCrash(crashes, "jaccl", 10'000'000 - 600'000);
  EXPECT_TRUE(IsQuarantined(crashes));
  AddCrash(crashes, "jaccl", 10'000'000 - 600'000 + kQuarantineWindowMs + 1);
  EXPECT_FALSE(IsQuarantined(crashes));
}

TEST(CrashLog, KeepsTheLastFew) {
  v1::NodeCrashes crashes;
  for (uint64_t i = 0; i < 100; ++i) AddCrash(crashes, "ring", i);
  EXPECT_EQ(crashes.crashes_size(), kCrashesKept);
  EXPECT_EQ(crashes.crashes(kCrashesKept - 1).seen_unix_ms(), 99u);
}

}  // namespace
}  // namespace macrame::agentd
