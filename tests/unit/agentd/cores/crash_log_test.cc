#include "agentd/cores/crash_log.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace macrame::agentd {
namespace {

using std::chrono::minutes;
using testing::HasSubstr;

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

// --- a Mac's own reports of panics ---------------------------------------------------------------

constexpr uint64_t kMinuteMs = 60'000;
constexpr uint64_t kNowMs = 1'795'000'000'000;

v1::PanicReport Panic(uint64_t unix_ms, const std::string& text) {
  v1::PanicReport panic;
  panic.set_unix_ms(unix_ms);
  panic.set_text(text);
  return panic;
}

TEST(TakePanics, ACrashThatWasSeenGetsWhatTheKernelSaid) {
  v1::NodeCrashes crashes;
  AddCrash(crashes, "ring", kNowMs);
  // The report is written minutes after the restart that was seen.
  const std::vector<v1::PanicReport> panics = {
      Panic(kNowMs - 3 * kMinuteMs, "panic(cpu 2 caller 0x1): DART")};
  const PanicsTaken taken = TakePanics(panics, "jaccl", kNowMs + 5 * kMinuteMs, crashes);
  EXPECT_TRUE(taken.changed);
  EXPECT_FALSE(taken.has_new);
  ASSERT_EQ(crashes.crashes_size(), 1);
  EXPECT_EQ(crashes.crashes(0).backend(), "ring");
  EXPECT_EQ(CrashReason(crashes, "ada").message(),
            "ada restarted once while it held a rank, last over ring: "
            "panic(cpu 2 caller 0x1): DART");
  EXPECT_FALSE(TakePanics(panics, "jaccl", kNowMs + 6 * kMinuteMs, crashes).changed)
      << "taken once";
}

TEST(TakePanics, OneThatNobodySawIsACrashMoreWhileItIsFresh) {
  const auto counted = [](uint64_t unix_ms) {
    v1::NodeCrashes crashes;
    const PanicsTaken taken = TakePanics({Panic(unix_ms, "panic: x")}, "ring", kNowMs, crashes);
    EXPECT_EQ(taken.has_new, crashes.crashes_size() == 1);
    EXPECT_EQ(taken.changed, taken.has_new);
    if (taken.has_new) {
      EXPECT_EQ(crashes.crashes(0).seen_unix_ms(), unix_ms);
    }
    return taken.has_new;
  };
  EXPECT_TRUE(counted(kNowMs - 10 * kMinuteMs));
  EXPECT_TRUE(counted(kNowMs - kUnseenPanicMs));
  EXPECT_TRUE(counted(kNowMs + kPanicAheadMs)) << "its clock is ahead";
  EXPECT_FALSE(counted(kNowMs - kUnseenPanicMs - 1)) << "it may have been before it was a member";
  EXPECT_FALSE(counted(kNowMs + kPanicAheadMs + 1)) << "by a clock that nothing can be said of";
  EXPECT_FALSE(counted(0));
  EXPECT_FALSE(counted(UINT64_MAX));
}

TEST(TakePanics, TwoWithinTheHourCordonAsTwoRestartsDo) {
  v1::NodeCrashes crashes;
  std::vector<v1::PanicReport> panics = {Panic(kNowMs - 40 * kMinuteMs, "panic: x")};
  EXPECT_TRUE(TakePanics(panics, "", kNowMs - 38 * kMinuteMs, crashes).has_new);
  EXPECT_FALSE(WantsCordon(crashes));
  panics.push_back(Panic(kNowMs - 2 * kMinuteMs, "panic: x"));
  EXPECT_TRUE(TakePanics(panics, "", kNowMs, crashes).has_new) << "of the same words";
  EXPECT_TRUE(WantsCordon(crashes));
  EXPECT_EQ(CrashReason(crashes, "ada").message(), "ada restarted 2 times: panic: x")
      << "whether it held a rank is not known";
  EXPECT_THAT(CrashReason(crashes, "ada").remedy(), HasSubstr("uncordon"));
  EXPECT_FALSE(TakePanics(panics, "", kNowMs + kMinuteMs, crashes).changed);
  // The first is of yesterday by now.
  panics.erase(panics.begin());
  EXPECT_FALSE(TakePanics(panics, "", kNowMs + kMinuteMs, crashes).changed);
  EXPECT_EQ(crashes.crashes_size(), 2);
}

TEST(TakePanics, EachIsOfTheCrashNextToIt) {
  v1::NodeCrashes crashes;
  AddCrash(crashes, "ring", kNowMs - 30 * kMinuteMs);
  AddCrash(crashes, "single", kNowMs);
  const PanicsTaken taken = TakePanics({Panic(kNowMs - 32 * kMinuteMs, "panic: first"),
                                        Panic(kNowMs - 2 * kMinuteMs, "panic: second")},
                                       "", kNowMs, crashes);
  EXPECT_FALSE(taken.has_new);
  ASSERT_EQ(crashes.crashes_size(), 2);
  EXPECT_EQ(crashes.crashes(0).panic(), "panic: first");
  EXPECT_EQ(crashes.crashes(1).panic(), "panic: second");
}

// The coordinator's own machine crashed first, and another one saw the second crash.
TEST(TakePanics, OneThatNobodySawStandsWhereItsTimeIs) {
  v1::NodeCrashes crashes;
  AddCrash(crashes, "ring", kNowMs);
  const PanicsTaken taken = TakePanics({Panic(kNowMs - 50 * kMinuteMs, "panic: first"),
                                        Panic(kNowMs - 2 * kMinuteMs, "panic: second")},
                                       "single", kNowMs + kMinuteMs, crashes);
  EXPECT_TRUE(taken.has_new);
  ASSERT_EQ(crashes.crashes_size(), 2);
  EXPECT_EQ(crashes.crashes(0).panic(), "panic: first");
  EXPECT_EQ(crashes.crashes(0).backend(), "single");
  EXPECT_EQ(crashes.crashes(1).panic(), "panic: second");
  EXPECT_EQ(crashes.crashes(1).backend(), "ring");
  EXPECT_TRUE(WantsCordon(crashes));
}

TEST(TakePanics, AClockThatIsWrongMakesNoTwoCrashesOfOne) {
  v1::NodeCrashes crashes;
  AddCrash(crashes, "ring", kNowMs);
  for (const uint64_t off : {90 * kMinuteMs, 30 * kMinuteMs}) {
    v1::NodeCrashes early = crashes, late = crashes;
    EXPECT_FALSE(TakePanics({Panic(kNowMs - off, "panic: x")}, "", kNowMs, early).has_new);
    EXPECT_FALSE(TakePanics({Panic(kNowMs + off, "panic: x")}, "", kNowMs, late).has_new);
  }
}

TEST(TakePanics, WhereItIsNotKnownWhatRanTheWordsDecide) {
  for (const auto& [text, cordons] :
       {std::pair("panic: \"DART (acio0) error\"", false), std::pair("panic: IORDMAFamily", false),
        std::pair("panic: watchdog timeout", true)}) {
    v1::NodeCrashes crashes;
    TakePanics({Panic(kNowMs - 20 * kMinuteMs, text), Panic(kNowMs, text)}, "", kNowMs, crashes);
    EXPECT_TRUE(IsQuarantined(crashes)) << text;
    EXPECT_EQ(WantsCordon(crashes), cordons) << text;
    v1::NodeCrashes over_tcp;
    TakePanics({Panic(kNowMs - 20 * kMinuteMs, text), Panic(kNowMs, text)}, "ring", kNowMs,
               over_tcp);
    EXPECT_TRUE(WantsCordon(over_tcp)) << text;
  }
}

TEST(TakePanics, WithoutWordsItCountsOnceAllTheSame) {
  v1::NodeCrashes crashes;
  const std::vector<v1::PanicReport> panics = {Panic(kNowMs, "")};
  EXPECT_TRUE(TakePanics(panics, "ring", kNowMs, crashes).has_new);
  EXPECT_FALSE(TakePanics(panics, "ring", kNowMs, crashes).changed);
  EXPECT_EQ(CrashReason(crashes, "ada").message(),
            "ada restarted once while it held a rank, last over ring");
}

TEST(TakePanics, ManyOrHugeReportsAreCutAndSettle) {
  std::vector<v1::PanicReport> panics;
  for (uint64_t i = 0; i < 1000; ++i) {
    panics.push_back(Panic(kNowMs - (1000 - i), std::to_string(i) + std::string(100'000, 'x')));
  }
  v1::NodeCrashes crashes;
  for (uint64_t i = 0; i < 20; ++i) AddCrash(crashes, "ring", kNowMs - 10'000 + i);
  for (int i = 0; i < 3; ++i) TakePanics(panics, "ring", kNowMs, crashes);
  EXPECT_FALSE(TakePanics(panics, "ring", kNowMs, crashes).changed);
  EXPECT_LE(crashes.crashes_size(), kCrashesKept);
  EXPECT_LT(crashes.ByteSizeLong(), 10'000u);
}

}  // namespace
}  // namespace macrame::agentd
