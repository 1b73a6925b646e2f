// What a coordinator makes of the kernel panics that Macs report themselves.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>

#include "agentd/links/link_table.h"
#include "tests/sim/asked_agents.h"

namespace macrame::agentd {
namespace {

using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::SizeIs;

constexpr uint64_t kMinuteMs = 60'000;

class LinkTablePanicsTest : public sim::AskedAgents {
 protected:
  LinkTable& links(int at) { return parts(at).links; }
  // Its machine finds the report of a panic so long ago.
  void Report(int node, uint64_t age_ms, const std::string& text) {
    v1::PanicReport panic;
    panic.set_unix_ms(parts(node).dispatcher.UnixMs() - age_ms);
    panic.set_text(text);
    panic.set_file("/Library/Logs/DiagnosticReports/" + text);
    panics_[node].push_back(panic);
    sim().FactsOf(node).change_links = [this, node](v1::LinkFacts& facts) {
      facts.set_boot_time_unix_seconds(facts.boot_time_unix_seconds() + 600 * boots_[node]);
      for (const v1::PanicReport& one : panics_[node]) *facts.add_panics() = one;
    };
    if (sim().machine(node).up()) links(node).ProbeNow([] {});
    sim().RunFor(3000);
  }
  // It goes down and comes up again; its panic is reported later.
  void Restart(int node) {
    sim().Crash(node);
    sim().RunFor(6000);
    ++boots_[node];
    if (!sim().FactsOf(node).change_links) {
      sim().FactsOf(node).change_links = [this, node](v1::LinkFacts& facts) {
        facts.set_boot_time_unix_seconds(facts.boot_time_unix_seconds() + 600 * boots_[node]);
      };
    }
    sim().Start(node);
    sim().RunFor(6000);
  }
  bool IsCordoned(int node) { return desired(Leader()).FindCordon(id(node).value()) != nullptr; }
  std::string Crashes() {
    std::string all;
    for (const v1::Reason& reason : links(Leader()).CrashReasons()) all += reason.message() + "\n";
    return all;
  }

 private:
  std::map<int, std::vector<v1::PanicReport>> panics_;
  std::map<int, uint64_t> boots_;
};

TEST_F(LinkTablePanicsTest, ARestartThatWasSeenIsExplainedWhenItsReportIsThere) {
  Begin(3);
  sim().RunFor(5000);
  const int node = Follower();
  links(Leader()).NoteLostNode(id(node), "ring");
  Restart(node);
  EXPECT_THAT(Crashes(), HasSubstr("restarted once while it held a rank, last over ring\n"));
  Report(node, 10'000, "panic(cpu 2 caller 0x1): DART");
  EXPECT_THAT(Crashes(), HasSubstr("last over ring: panic(cpu 2 caller 0x1): DART"));
  EXPECT_THAT(Crashes(), HasSubstr("restarted once")) << "it is one crash";
  for (int at = 0; at < 3; ++at) EXPECT_EQ(desired(at).crashes().size(), 1u) << at;
  EXPECT_FALSE(IsCordoned(node));
}

TEST_F(LinkTablePanicsTest, TwoWithinAnHourThatNobodySawCordonTheMachine) {
  Begin(3);
  sim().RunFor(5000);
  const int node = Follower();
  Report(node, 20 * kMinuteMs, "panic(cpu 0 caller 0x1): watchdog timeout");
  EXPECT_FALSE(IsCordoned(node)) << "once";
  EXPECT_THAT(links(Leader()).CrashReasons(), SizeIs(1));
  Report(node, kMinuteMs, "panic(cpu 0 caller 0x2): watchdog timeout");
  EXPECT_TRUE(IsCordoned(node));
  EXPECT_THAT(links(Leader()).CrashReasons()[0].remedy(), HasSubstr("it was cordoned"));
  // A person lifts that: the same reports do not lay it on again, whoever leads.
  sim().Cordon(Leader(), id(node), v1::CORDON_ORDER_UNCORDON);
  sim().RunFor(3000);
  Report(node, 30 * kMinuteMs + 26 * 3'600'000, "panic: of another day");
  sim().RunFor(10'000);
  EXPECT_FALSE(IsCordoned(node));
  sim().Crash(Leader());
  ASSERT_TRUE(RunUntil([&] { return Leader() != -1; }, 10'000));
  sim().RunFor(10'000);
  EXPECT_FALSE(IsCordoned(node));
  // One more is news.
  Report(node, 0, "panic(cpu 0 caller 0x3): watchdog timeout");
  EXPECT_TRUE(IsCordoned(node));
}

// It lost its own memory of what it served, and leads again.
TEST_F(LinkTablePanicsTest, TheCoordinatorsOwnMachineIsCordonedToo) {
  Begin(3);
  sim().RunFor(5000);
  const int node = Leader();
  Report(node, 20 * kMinuteMs, "panic(cpu 0 caller 0x1): watchdog timeout");
  Report(node, kMinuteMs, "panic(cpu 0 caller 0x2): watchdog timeout");
  ASSERT_EQ(Leader(), node) << "it leads on";
  EXPECT_TRUE(IsCordoned(node));
}

TEST_F(LinkTablePanicsTest, WhatWasToldBeforeANodeLedIsLookedAtWhenItLeads) {
  Begin(3);
  sim().RunFor(5000);
  const int node = Follower();
  sim().Crash(Leader());
  // Known by the others before one of them leads.
  Report(node, 20 * kMinuteMs, "panic(cpu 0 caller 0x1): x");
  Report(node, kMinuteMs, "panic(cpu 0 caller 0x2): x");
  ASSERT_TRUE(RunUntil([&] { return Leader() != -1; }, 10'000));
  EXPECT_TRUE(RunUntil([&] { return IsCordoned(node); }, 3000));
}

TEST_F(LinkTablePanicsTest, WhereNoOtherServesItIsNotCordoned) {
  Begin(1);
  Report(0, 20 * kMinuteMs, "panic(cpu 0 caller 0x1): x");
  Report(0, kMinuteMs, "panic(cpu 0 caller 0x2): x");
  EXPECT_THAT(links(0).CrashReasons(), SizeIs(1));
  EXPECT_FALSE(IsCordoned(0));
}

TEST_F(LinkTablePanicsTest, ThoseOfADmaMappingKeepItOffRdmaAndItServesOn) {
  Begin(3);
  sim().RunFor(5000);
  const int node = Follower();
  Report(node, 20 * kMinuteMs, "panic(cpu 0 caller 0x1): \"DART (acio0) error\"");
  EXPECT_THAT(links(Leader()).Refusals(), IsEmpty());
  Report(node, kMinuteMs, "panic(cpu 0 caller 0x2): \"DART (acio0) error\"");
  EXPECT_THAT(links(Leader()).Refusals(), SizeIs(2));
  EXPECT_FALSE(IsCordoned(node));
}

TEST_F(LinkTablePanicsTest, AGangsBackendIsThatOfThePanicUnderIt) {
  Begin(2);
  LoadAndWait("m1");
  const int node = Follower();
  Report(node, kMinuteMs, "panic(cpu 0 caller 0x1): x");
  const std::string backend = desired(Leader()).gangs().begin()->second.plan().backend();
  ASSERT_NE(backend, "");
  EXPECT_THAT(Crashes(), HasSubstr("while it held a rank, last over " + backend + ": panic"));
}

}  // namespace
}  // namespace macrame::agentd
