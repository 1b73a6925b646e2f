#include "agentd/links/link_table.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <spdlog/sinks/ostream_sink.h>

#include <filesystem>
#include <fstream>
#include <map>
#include <set>
#include <sstream>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "agentd/links/support_list.h"
#include "proto/backends.h"
#include "tests/sim/asked_agents.h"
#include "transport/links/refusals.h"

namespace macrame::agentd {
namespace {

using std::chrono::seconds;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::SizeIs;

class LinkTableTest : public sim::AskedAgents {
 protected:
  LinkTable& links(int at) { return parts(at).links; }
  // Whom a node has measured, and when.
  std::map<std::string, uint64_t> Measured(int at) {
    std::map<std::string, uint64_t> measured;
    for (const v1::LinkMeasurement& one : links(at).own().measurements()) {
      measured[one.to_node_id()] = one.measured_unix_ms();
    }
    return measured;
  }
  std::set<std::string> InSnapshot(int at) {
    std::set<std::string> nodes;
    const v1::LinkSnapshot snapshot = links(at).Snapshot();
    for (const v1::NodeLinks& node : snapshot.nodes()) nodes.insert(node.node_id());
    return nodes;
  }
  v1::TransportRefusal Refusal(const std::vector<int>& nodes) {
    std::vector<std::string> ids;
    for (const int node : nodes) ids.push_back(id(node).value());
    const v1::Reason why = MakeReason(reasons::kInitStalled, "it stalled");
    return transport::MakeRefusal(links(Leader()).Snapshot(), ids, NameOf(Backend::kVerbs), why,
                                  why);
  }
  // A warning that holds for this node, as another or itself judges; null: there is none.
  const v1::Reason* Warning(int judge, std::string_view code, int node) {
    for (const v1::Reason& warning : links(judge).links().group().warnings()) {
      if (warning.code() == code && warning.node_id() == id(node).value()) return &warning;
    }
    return nullptr;
  }
  // Its machine goes down while it holds a rank over `backend`, and comes up again.
  void RestartWhileItServes(int node, const std::string& backend) {
    const int leader = Leader();
    links(leader).NoteLostNode(id(node), backend);
    sim().Crash(node);
    sim().RunFor(6000);
    const uint64_t boots = ++boots_[node];
    sim().FactsOf(node).change_links = [boots](v1::LinkFacts& facts) {
      facts.set_boot_time_unix_seconds(facts.boot_time_unix_seconds() + 600 * boots);
    };
    sim().Start(node);
    sim().RunFor(6000);
    ASSERT_EQ(Leader(), leader);
  }

 private:
  std::map<int, uint64_t> boots_;
};

TEST_F(LinkTableTest, OneOfEachTwoMeasuresTheirLink) {
  Begin(4);
  sim().RunFor(20'000);
  for (int a = 0; a < 4; ++a) {
    for (int b = a + 1; b < 4; ++b) {
      EXPECT_EQ(Measured(a).contains(id(b).value()) + Measured(b).contains(id(a).value()), 1)
          << a << " and " << b;
    }
  }
}

TEST_F(LinkTableTest, VerdictsAreWrittenByTheCoordinatorWhenTheyChangeAndNotElse) {
  Begin(3);
  sim().RunFor(20'000);
  const uint64_t revision = desired(Leader()).links().revision();
  EXPECT_GT(revision, 0u);
  sim().RunFor(60'000);
  for (int at = 0; at < 3; ++at) {
    EXPECT_EQ(desired(at).links().revision(), revision) << "nothing changed at " << at;
  }
  sim().Crash(Follower());
  sim().RunFor(10'000);
  EXPECT_GT(desired(Leader()).links().revision(), revision);
}

TEST_F(LinkTableTest, WhoIsDeadIsNotJudgedAndWhoIsBackIs) {
  Begin(3);
  sim().RunFor(10'000);
  const int gone = Follower(), at = Leader();
  EXPECT_THAT(InSnapshot(at), SizeIs(3));
  sim().Crash(gone);
  sim().RunFor(6000);
  EXPECT_THAT(InSnapshot(at), SizeIs(2));
  EXPECT_FALSE(InSnapshot(at).contains(id(gone).value()));
  sim().Start(gone);
  sim().RunFor(10'000);
  EXPECT_THAT(InSnapshot(at), SizeIs(3));
}

// It could not be measured while it was cut off.
TEST_F(LinkTableTest, WhatCouldNotBeMeasuredIsMeasuredWhenItsNodeIsBack) {
  Begin(2);
  sim().RunFor(10'000);
  const int measures = Measured(0).empty() ? 1 : 0;
  const std::string other = id(1 - measures).value();
  const uint64_t before = Measured(measures).at(other);
  sim().Isolate(1 - measures, true);
  links(measures).MeasureNow("", seconds(5), [] {});
  sim().RunFor(10'000);
  sim().Isolate(1 - measures, false);
  EXPECT_TRUE(RunUntil(
      [&] {
        const auto measured = Measured(measures);
        return measured.contains(other) && measured.at(other) > before &&
               !links(measures).own().measurements(0).has_failure();
      },
      20'000));
}

TEST_F(LinkTableTest, AMeasurementThatIsAskedForEndsAtItsLimit) {
  Begin(2);
  sim().RunFor(10'000);
  const int measures = Measured(0).empty() ? 1 : 0;
  sim().Pause(1 - measures);
  const MonotonicTime begun = parts(measures).dispatcher.Now();
  std::optional<Duration> took;
  links(measures).MeasureNow(id(1 - measures).value(), seconds(4),
                             [&] { took = parts(measures).dispatcher.Now() - begun; });
  ASSERT_TRUE(RunUntil([&] { return took.has_value(); }, 10'000));
  EXPECT_LE(*took, seconds(4) + std::chrono::milliseconds(500));
  sim().Resume(1 - measures);
  sim().RunFor(3000);
}

// A rank that failed to reach another puts all measured ways in doubt, once for each launch.
TEST_F(LinkTableTest, ALaunchThatFailedToConnectHasLinksMeasuredAgainOnce) {
  Begin(2);
  sim().RunFor(10'000);
  const int measures = Measured(0).empty() ? 1 : 0;
  const std::string other = id(1 - measures).value();
  v1::RankStatus rank;
  rank.set_deployment("m0");
  rank.set_epoch(1001);
  *rank.mutable_failure() = MakeReason(reasons::kConnectFailed, "nobody answers");
  uint64_t before = Measured(measures).at(other);
  links(measures).NoteRanks({rank});
  ASSERT_TRUE(RunUntil([&] { return Measured(measures).at(other) > before; }, 10'000));
  before = Measured(measures).at(other);
  links(measures).NoteRanks({rank});
  sim().RunFor(10'000);
  EXPECT_EQ(Measured(measures).at(other), before) << "of the same launch";
  rank.set_epoch(1002);
  links(measures).NoteRanks({rank});
  EXPECT_TRUE(RunUntil([&] { return Measured(measures).at(other) > before; }, 10'000));
  // What has nothing to do with links puts none in doubt.
  before = Measured(measures).at(other);
  rank.set_epoch(1003);
  *rank.mutable_failure() = MakeReason(reasons::kMemoryShort, "no memory");
  links(measures).NoteRanks({rank});
  sim().RunFor(10'000);
  EXPECT_EQ(Measured(measures).at(other), before);
}

// --- what is not tried again ---------------------------------------------------------------------

TEST_F(LinkTableTest, ARefusalIsKnownEverywhereAndOutlivesTheCoordinator) {
  Begin(3);
  sim().RunFor(10'000);
  links(Leader()).Remember(Refusal({0, 1}));
  sim().RunFor(1500);
  for (int at = 0; at < 3; ++at) EXPECT_THAT(links(at).Refusals(), SizeIs(1)) << at;
  sim().Crash(Leader());
  ASSERT_TRUE(RunUntil([&] { return Leader() != -1; }, 8000));
  EXPECT_THAT(links(Leader()).Refusals(), SizeIs(1));
  EXPECT_THAT(links(Leader()).ForgetRefusals({}), SizeIs(1));
  sim().RunFor(1500);
  EXPECT_THAT(links(Leader()).Refusals(), IsEmpty());
  EXPECT_THAT(links(Leader()).ForgetRefusals({}), IsEmpty());
}

TEST_F(LinkTableTest, RefusalsOfOneNodeAreForgottenAlone) {
  Begin(3);
  sim().RunFor(10'000);
  links(Leader()).Remember(Refusal({0, 1}));
  links(Leader()).Remember(Refusal({0, 2}));
  sim().RunFor(1500);
  EXPECT_THAT(links(Leader()).Refusals(), SizeIs(2));
  EXPECT_THAT(links(Leader()).ForgetRefusals({id(2).value()}), SizeIs(1));
  sim().RunFor(1500);
  EXPECT_THAT(links(Leader()).Refusals(), SizeIs(1));
  EXPECT_THAT(links(Leader()).ForgetRefusals({std::string(32, 'f')}), IsEmpty());
}

// --- machines that restart while they serve ------------------------------------------------------

TEST_F(LinkTableTest, AMachineThatRestartsTwiceWhileItServesOverTcpIsCordoned) {
  Begin(3);
  sim().RunFor(5000);
  const int node = Follower();
  RestartWhileItServes(node, "ring");
  EXPECT_EQ(desired(Leader()).FindCordon(id(node).value()), nullptr) << "once";
  EXPECT_THAT(links(Leader()).CrashReasons(), SizeIs(1));
  RestartWhileItServes(node, "single");
  for (int at = 0; at < 3; ++at) {
    const v1::Cordon* cordon = desired(at).FindCordon(id(node).value());
    ASSERT_NE(cordon, nullptr) << at;
    EXPECT_FALSE(cordon->drain());
  }
  ASSERT_THAT(links(Leader()).CrashReasons(), SizeIs(1));
  EXPECT_THAT(links(Leader()).CrashReasons()[0].remedy(), HasSubstr("it was cordoned"));
}

TEST_F(LinkTableTest, ACrashedMachineIsNotCordonedWhereNoOtherServes) {
  Begin(3);
  sim().RunFor(5000);
  const int node = Follower();
  for (int other = 0; other < 3; ++other) {
    if (other != node) sim().Cordon(Leader(), id(other), v1::CORDON_ORDER_CORDON);
  }
  sim().RunFor(2000);
  for (int other = 0; other < 3; ++other) {
    ASSERT_EQ(desired(Leader()).FindCordon(id(other).value()) != nullptr, other != node);
  }
  for (int times = 0; times < 2; ++times) RestartWhileItServes(node, "ring");
  ASSERT_THAT(links(Leader()).CrashReasons(), SizeIs(1));
  EXPECT_EQ(desired(Leader()).FindCordon(id(node).value()), nullptr);
}

TEST_F(LinkTableTest, ACrashedMachineThatWasDrainedByOrderStaysDrained) {
  Begin(3);
  sim().RunFor(5000);
  const int node = Follower();
  sim().Cordon(Leader(), id(node), v1::CORDON_ORDER_DRAIN);
  sim().RunFor(2000);
  const v1::Cordon* cordon = desired(Leader()).FindCordon(id(node).value());
  ASSERT_NE(cordon, nullptr);
  const std::string before = cordon->SerializeAsString();
  for (int times = 0; times < 2; ++times) RestartWhileItServes(node, "ring");
  cordon = desired(Leader()).FindCordon(id(node).value());
  ASSERT_NE(cordon, nullptr);
  EXPECT_TRUE(cordon->drain());
  EXPECT_EQ(cordon->SerializeAsString(), before);
}

TEST_F(LinkTableTest, AMachineThatRestartsTwiceOverRdmaIsKeptOffRdmaAndServesOn) {
  Begin(3);
  sim().RunFor(5000);
  const int node = Follower();
  RestartWhileItServes(node, "verbs");
  EXPECT_THAT(links(Leader()).Refusals(), IsEmpty()) << "once";
  RestartWhileItServes(node, "jaccl");
  std::set<std::string> refused;
  for (const v1::TransportRefusal& refusal : links(Leader()).Refusals()) {
    EXPECT_THAT(refusal.node_ids(), ElementsAre(id(node).value()));
    EXPECT_EQ(refusal.reason().code(), reasons::kNodeCrashed);
    refused.insert(refusal.backend());
  }
  EXPECT_EQ(refused, (std::set<std::string>{"jaccl", "verbs"}));
  for (int at = 0; at < 3; ++at) {
    EXPECT_EQ(desired(Leader()).FindCordon(id(at).value()), nullptr) << at;
  }
}

// --- RDMA protection domains ---------------------------------------------------------------------

class HeldDomainsTest : public LinkTableTest {
 protected:
  // One RDMA port, of which a group holds two domains at most.
  void BeginWithRdma() {
    Begin(1);
    sim().FactsOf(0).change_links = [this](v1::LinkFacts& facts) {
      facts.add_rdma_devices()->set_port_state(v1::RDMA_PORT_STATE_ACTIVE);
      facts.set_protection_domains(in_use_);
    };
  }
  // What the kernel counts from now on.
  void Count(int32_t in_use) {
    in_use_ = in_use;
    links(0).ProbeNow([] {});
    sim().RunFor(100);
  }
  void HaveRank(bool runs) {
    v1::RankStatus rank;
    rank.set_phase(v1::RANK_PHASE_READY);
    rank.set_backend("jaccl");
    links(0).NoteRanks(runs ? std::vector{rank} : std::vector<v1::RankStatus>());
  }
  int32_t Told() { return links(0).own().facts().protection_domains(); }

  int32_t in_use_ = 0;
};

TEST_F(HeldDomainsTest, WhatAnOwnRankHoldsIsNeverToldAsLeaked) {
  BeginWithRdma();
  Count(0);
  HaveRank(true);
  Count(2);
  EXPECT_EQ(Told(), 0);
  const uint64_t revision = links(0).own().revision();
  // It gave them back as it ended, which the next probe sees.
  in_use_ = 0;
  HaveRank(false);
  EXPECT_EQ(Told(), 0) << "the last count was made while it ran";
  sim().RunFor(100);
  EXPECT_EQ(Told(), 0);
  EXPECT_EQ(Warning(0, reasons::kResourceExhausted, 0), nullptr);
  EXPECT_LE(links(0).own().revision(), revision + 1) << "for the probe, and for nothing else";
}

TEST_F(HeldDomainsTest, WhatIsLeftAfterARanksEndIsToldOnceItWasCountedAgain) {
  BeginWithRdma();
  Count(5);
  EXPECT_EQ(Told(), 5) << "another program's";
  HaveRank(true);
  EXPECT_EQ(Told(), 3) << "two of them may be the rank's";
  Count(7);
  EXPECT_EQ(Told(), 5);
  HaveRank(false);
  EXPECT_EQ(Told(), 5) << "held until a probe after its end";
  sim().RunFor(100);
  EXPECT_EQ(Told(), 7);
  const v1::Reason* warning = Warning(0, reasons::kResourceExhausted, 0);
  ASSERT_NE(warning, nullptr);
  EXPECT_THAT(warning->message(), HasSubstr("7 RDMA protection domains"));
}

// --- support lists -------------------------------------------------------------------------------

class SupportListsTest : public LinkTableTest {
 protected:
  void BeginWithFolder() {
    auto logger = std::make_shared<spdlog::logger>(
        "lines", std::make_shared<spdlog::sinks::ostream_sink_mt>(log_));
    Begin(1, [this](sim::SimOptions& options) {
      options.configure = [this](Config& config) { path_ = config.state_folder + "/support.yaml"; };
    });
    spdlog::set_default_logger(std::move(logger));
  }
  void TearDown() override {
    spdlog::set_default_logger(before_);
    LinkTableTest::TearDown();
  }
  // Until it has been read.
  void Write(const std::string& text) {
    std::ofstream(path_) << text;
    sim().RunFor(35'000);
  }
  static std::string Dated(const std::string& date) {
    return absl::StrCat("date: ", date, "\nentries:\n- {subject: rdma, chips: [Apple M1], ",
                        "supported: true, source: a test}\n");
  }
  std::string DateInForce() { return links(0).Snapshot().support_list().date(); }
  int LinesWith(const std::string& part) const {
    int count = 0;
    for (const std::string& line : std::vector<std::string>(absl::StrSplit(log_.str(), '\n'))) {
      count += absl::StrContains(line, part) && absl::StrContains(line, path_);
    }
    return count;
  }

  std::string path_;
  std::ostringstream log_;
  const std::shared_ptr<spdlog::logger> before_ = spdlog::default_logger();
};

TEST_F(SupportListsTest, ANewerFileInTheStateFolderTakesThePlaceOfTheShippedListWhileItIsThere) {
  BeginWithFolder();
  const std::string shipped = ShippedSupportList().date();
  EXPECT_EQ(DateInForce(), shipped);
  EXPECT_EQ(links(0).Snapshot().support_list().entries_size(), ShippedSupportList().entries_size());
  Write(Dated("2099-01-01"));
  EXPECT_EQ(DateInForce(), "2099-01-01");
  ASSERT_EQ(links(0).Snapshot().support_list().entries_size(), 1);
  EXPECT_EQ(links(0).Snapshot().support_list().entries(0).chips(0), "Apple M1");
  std::filesystem::remove(path_);
  sim().RunFor(35'000);
  EXPECT_EQ(DateInForce(), shipped);
  EXPECT_EQ(LinesWith("support.yaml"), 0) << log_.str();
}

TEST_F(SupportListsTest, AnOlderFileIsNotUsedWhichIsLoggedOnce) {
  BeginWithFolder();
  for (const std::string& date : {std::string("2020-01-01"), ShippedSupportList().date()}) {
    Write(Dated(date));
    sim().RunFor(100'000);
    EXPECT_EQ(DateInForce(), ShippedSupportList().date());
    EXPECT_GT(links(0).Snapshot().support_list().entries(0).chips_size(), 1);
    EXPECT_EQ(LinesWith(absl::StrCat("is not used: its date, ", date)), 1) << log_.str();
  }
}

TEST_F(SupportListsTest, ABrokenFileIsNotUsedWhichIsLoggedOnce) {
  BeginWithFolder();
  Write("date: 2099-01-01\nentries: [{subject");
  sim().RunFor(100'000);
  EXPECT_EQ(DateInForce(), ShippedSupportList().date());
  EXPECT_EQ(LinesWith("support.yaml"), 1) << log_.str();
  // Of one that was good before nothing is kept.
  Write(Dated("2099-01-01"));
  EXPECT_EQ(DateInForce(), "2099-01-01");
  Write("date: 2099-01-01");
  EXPECT_EQ(DateInForce(), "2099-01-01") << "without entries";
  Write(std::string(100'000, '['));
  EXPECT_EQ(DateInForce(), ShippedSupportList().date());
  EXPECT_EQ(LinesWith("support.yaml"), 2) << log_.str();
}

// --- a GPU that stays busy -----------------------------------------------------------------------

class WedgedGpuTest : public LinkTableTest {
 protected:
  // m1, of two ranks, computes on both nodes, and is ended.
  void ServeAndEnd(double busy_after) {
    LoadAndWait("m1");
    sim().FactsOf(0).gpu_busy_ratio = sim().FactsOf(1).gpu_busy_ratio = 1;
    sim().RunFor(20'000);
    EXPECT_EQ(Warning(0, reasons::kGpuWedged, 0), nullptr) << "a rank runs";
    sim().Unload(Leader(), "m1");
    ASSERT_TRUE(
        RunUntil([&] { return sim().RanksOn(0, "m1") + sim().RanksOn(1, "m1") == 0; }, 20'000));
    sim().FactsOf(0).gpu_busy_ratio = busy_after;
    sim().FactsOf(1).gpu_busy_ratio = 0;
  }
  v1::ClusterStatus Status(int at) {
    const auto status = Ask(at, kGetStatus, v1::GetStatusRequest());
    EXPECT_TRUE(status.ok()) << status.status();
    return status.value_or(v1::ClusterStatus());
  }
  static const v1::Reason* Problem(const v1::ClusterStatus& status) {
    for (const v1::Reason& problem : status.problems()) {
      if (problem.code() == reasons::kGpuWedged) return &problem;
    }
    return nullptr;
  }
};

TEST_F(WedgedGpuTest, IsToldOnEveryNodeFromThirtySecondsAfterItsLastRankUntilItRests) {
  Begin(2);
  ServeAndEnd(1);
  sim().RunFor(25'000);
  for (int at = 0; at < 2; ++at) EXPECT_EQ(Warning(at, reasons::kGpuWedged, 0), nullptr) << at;
  sim().RunFor(15'000);
  for (int at = 0; at < 2; ++at) {
    const v1::Reason* warning = Warning(at, reasons::kGpuWedged, 0);
    ASSERT_NE(warning, nullptr) << at;
    EXPECT_THAT(warning->message(), HasSubstr("node-a: its GPU has been busy for 30 s"));
    EXPECT_EQ(Warning(at, reasons::kGpuWedged, 1), nullptr) << "that one rests";
    const v1::ClusterStatus status = Status(at);
    ASSERT_NE(Problem(status), nullptr) << at;
    EXPECT_EQ(Problem(status)->node_id(), id(0).value());
    EXPECT_THAT(Problem(status)->remedy(), HasSubstr("restart this machine"));
    EXPECT_TRUE(status.healthy()) << "what is served is served";
  }
  const auto diagnosis = Ask(1, kDiagnose, v1::DiagnoseRequest());
  ASSERT_TRUE(diagnosis.ok()) << diagnosis.status();
  int findings = 0;
  for (const v1::Finding& finding : diagnosis->findings()) {
    findings += finding.reason().code() == reasons::kGpuWedged;
  }
  EXPECT_EQ(findings, 1) << "said once, by the doctor as well";
  sim().FactsOf(0).gpu_busy_ratio = 0.4;
  sim().RunFor(10'000);
  for (int at = 0; at < 2; ++at) {
    EXPECT_EQ(Warning(at, reasons::kGpuWedged, 0), nullptr) << at;
    EXPECT_EQ(Problem(Status(at)), nullptr) << at;
  }
}

TEST_F(WedgedGpuTest, ARankThatIsLaunchedThereMayUseItAgain) {
  Begin(2);
  ServeAndEnd(1);
  sim().RunFor(40'000);
  ASSERT_NE(Warning(1, reasons::kGpuWedged, 0), nullptr);
  LoadAndWait("m1");
  sim().RunFor(3000);
  EXPECT_EQ(Warning(1, reasons::kGpuWedged, 0), nullptr);
}

TEST_F(WedgedGpuTest, WhatIsNotKnownOrLowerIsNotTold) {
  Begin(2);
  for (const double after : {-1.0, 0.0, 0.9}) {
    ServeAndEnd(after);
    sim().RunFor(60'000);
    EXPECT_EQ(Warning(0, reasons::kGpuWedged, 0), nullptr) << after;
    EXPECT_EQ(Problem(Status(1)), nullptr) << after;
  }
}

TEST_F(WedgedGpuTest, AnotherProgramThatWasThereBeforeIsNoneOfOurs) {
  Begin(2);
  sim().FactsOf(0).gpu_busy_ratio = 1;
  sim().RunFor(30'000);
  ServeAndEnd(1);
  sim().RunFor(60'000);
  EXPECT_EQ(Warning(0, reasons::kGpuWedged, 0), nullptr);
}

}  // namespace
}  // namespace macrame::agentd
