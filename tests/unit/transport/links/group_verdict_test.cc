// What groups are told: over which backend, why not over a better one, where they meet.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "proto/reasons.h"
#include "tests/unit/transport/links/link_snapshots_for_tests.h"
#include "transport/links/diagnosis.h"
#include "transport/links/judge.h"
#include "transport/links/link_ends.h"
#include "transport/links/mlx_settings.h"

namespace macrame::transport {
namespace {

using testing::Contains;
using testing::HasSubstr;
using testing::Not;

const v1::BackendChoice* Choice(const v1::GroupVerdict& group, const std::string& backend,
                                const std::string& topology) {
  for (const v1::BackendChoice& choice : group.choices()) {
    if (choice.backend() == backend && choice.topology() == topology) return &choice;
  }
  return nullptr;
}

std::vector<std::string> MeetingPlaces(const v1::GroupVerdict& group) {
  return {group.rendezvous_ips().begin(), group.rendezvous_ips().end()};
}

// A cable reaches one neighbour only: without a LAN each calls rank 0 at the end of its own cable.
TEST(GroupVerdict, MacsOfAMeshWithoutALanMeetOverTheirCables) {
  const v1::LinkSnapshot snapshot = Macs(3, {{0, 1}, {1, 2}, {0, 2}}, /*has_lan=*/false);
  const v1::ClusterLinks links = JudgeLinks(snapshot);
  const v1::GroupVerdict& group = links.group();
  EXPECT_EQ(group.verdict(), "jaccl-mesh");
  EXPECT_TRUE(group.reasons().empty()) << group.DebugString();
  EXPECT_EQ(group.rendezvous_ip(), "") << "no address of one is reached by two others";
  EXPECT_EQ(MeetingPlaces(group), (std::vector<std::string>{"0.0.0.0", "10.77.1.1", "10.77.3.1"}));
  ASSERT_NE(Choice(group, "jaccl", "mesh"), nullptr);
  EXPECT_TRUE(Choice(group, "jaccl", "mesh")->usable());
  EXPECT_EQ(Diagnose(snapshot, links, {}, {}).conclusion(),
            "Every pair of nodes has a link that RDMA works on.");
  // Each rank is told its own; mlx.launch would tell all of them the same.
  for (int rank = 0; rank < 3; ++rank) {
    const auto environment = MlxEnvironmentOf(group, "jaccl", rank, 4000);
    ASSERT_TRUE(environment.ok()) << environment.status();
    EXPECT_THAT(environment->settings,
                Contains(std::pair<std::string, std::string>(
                    "MLX_JACCL_COORDINATOR", MeetingPlaces(group)[rank] + ":4000")));
  }
  const auto hostfile = MlxHostfile(group, "jaccl", {"mac-0", "mac-1", "mac-2"});
  EXPECT_EQ(ReasonOf(hostfile.status()).code(), reasons::kCoordinator);
  // Two of them have one cable, and one address.
  const std::vector<std::string> two = {"mac-0", "mac-1"};
  const v1::GroupVerdict pair = JudgeGroup(snapshot, links, two);
  EXPECT_EQ(pair.verdict(), "jaccl-mesh");
  EXPECT_EQ(pair.rendezvous_ip(), "10.77.1.1");
  EXPECT_TRUE(pair.rendezvous_ips().empty());
}

// A ring with a diagonal: only its two ends have a cable to each other Mac, and one is rank 0.
TEST(GroupVerdict, WithoutALanRanksTurnUntilTheFirstIsEverybodysNeighbour) {
  const v1::LinkSnapshot snapshot =
      Macs(4, {{0, 1}, {1, 2}, {2, 3}, {3, 0}, {1, 3}}, /*has_lan=*/false);
  const v1::GroupVerdict group = JudgeLinks(snapshot).group();
  EXPECT_EQ(group.verdict(), "jaccl-ring");
  EXPECT_EQ(CodesIn(group.reasons()), (std::set<std::string>{reasons::kMeshIncomplete}));
  EXPECT_THAT((std::set<std::string>{"mac-1", "mac-3"}), Contains(group.node_ids(0)));
  ASSERT_EQ(group.rendezvous_ips_size(), 4);
  EXPECT_EQ(group.rendezvous_ips(0), "0.0.0.0");
  EXPECT_EQ(
      std::set<std::string>(group.rendezvous_ips().begin(), group.rendezvous_ips().end()).size(),
      4u);
}

TEST(GroupVerdict, ARingWithoutALanHasNowhereToMeetForRdma) {
  const v1::LinkSnapshot snapshot = Macs(4, {{0, 1}, {1, 2}, {2, 3}, {3, 0}}, /*has_lan=*/false);
  const v1::ClusterLinks links = JudgeLinks(snapshot);
  const v1::GroupVerdict& group = links.group();
  EXPECT_EQ(group.verdict(), "ring-only") << "what the choices allow";
  EXPECT_EQ(group.ring_over(), "thunderbolt");
  EXPECT_TRUE(group.rendezvous_ips().empty());
  ASSERT_NE(Choice(group, "jaccl", "ring"), nullptr);
  EXPECT_FALSE(Choice(group, "jaccl", "ring")->usable());
  EXPECT_THAT(CodesIn(group.reasons()), Contains(reasons::kCoordinator));
  EXPECT_EQ(group.node_ids_size(), 4);
  EXPECT_EQ(group.ring_addresses_size(), 4);
  const v1::Diagnosis told = Diagnose(snapshot, links, {}, {});
  EXPECT_THAT(told.conclusion(), HasSubstr("TCP over the Thunderbolt cables, not over RDMA"));
  EXPECT_THAT(told.conclusion(), HasSubstr("COORDINATOR"));
  ASSERT_GE(told.findings_size(), 1);
  EXPECT_EQ(told.findings(0).reason().code(), reasons::kCoordinator);
  EXPECT_THAT(told.findings(0).steps(0), HasSubstr("LAN"));
}

TEST(GroupVerdict, RanksTurnUntilTheFirstHasAnAddressThatAllReach) {
  v1::LinkSnapshot snapshot = Macs(3, {{0, 1}, {1, 2}, {0, 2}}, /*has_lan=*/false);
  // Only mac-1 is measured to be reached by both others at one address.
  for (const int from : {0, 2}) {
    v1::LinkMeasurement& measured = *snapshot.mutable_nodes(from)->add_measurements();
    measured.set_to_node_id("mac-1");
    measured.set_from_ip(from == 0 ? "10.77.1.1" : "10.77.2.2");
    measured.set_to_ip("10.77.1.2");
    measured.set_round_trip_us_p50(20);
  }
  const v1::GroupVerdict group = JudgeLinks(snapshot).group();
  EXPECT_EQ(group.verdict(), "jaccl-mesh");
  EXPECT_EQ(group.rendezvous_ip(), "10.77.1.2");
  EXPECT_EQ(group.node_ids(0), "mac-1");
  EXPECT_EQ(group.node_ids(1), "mac-2");
  EXPECT_EQ(group.node_ids(2), "mac-0");
  // The matrix has turned with them.
  EXPECT_TRUE(group.device_matrix(0).cells(0).devices().empty());
  EXPECT_EQ(group.device_matrix(0).cells(2).devices(0), "rdma_en2") << "from mac-1 to mac-0";
}

TEST(GroupVerdict, AChainIsToldWhichCableIsMissing) {
  const v1::ClusterLinks links = JudgeLinks(Macs(4, {{0, 1}, {1, 2}, {2, 3}}));
  const v1::GroupVerdict& group = links.group();
  EXPECT_EQ(group.verdict(), "ring-only");
  EXPECT_EQ(group.graph(), "chain");
  for (const v1::Reason& reason : group.reasons()) {
    if (reason.code() != reasons::kMeshIncomplete) continue;
    EXPECT_THAT(reason.message(), HasSubstr("mac-0 - mac-2, mac-0 - mac-3, mac-1 - mac-3"));
    EXPECT_THAT(reason.remedy(), HasSubstr("mac-1 - mac-3"));
  }
  EXPECT_THAT(CodesIn(group.reasons()), Contains(reasons::kNoRing));
}

TEST(GroupVerdict, OneNodeIsJudgedBySilence) {
  const v1::ClusterLinks links = JudgeLinks(Macs(1, {}));
  EXPECT_EQ(links.group().verdict(), "single");
  EXPECT_EQ(Diagnose(Macs(1, {}), links, {}, {}).conclusion(),
            "One node: there are no links to judge.");
  EXPECT_EQ(JudgeLinks(v1::LinkSnapshot()).group().verdict(), "single");
}

TEST(GroupVerdict, NodesThatNothingJoinsCannotServeTogether) {
  v1::LinkSnapshot snapshot = Macs(2, {}, /*has_lan=*/false);
  AddLan(*snapshot.mutable_nodes(0), "192.0.2.1");
  AddLan(*snapshot.mutable_nodes(1), "198.51.100.1");
  const v1::ClusterLinks links = JudgeLinks(snapshot);
  EXPECT_EQ(links.group().verdict(), "none");
  const v1::Diagnosis told = Diagnose(snapshot, links, {}, {});
  EXPECT_THAT(told.conclusion(), HasSubstr("These nodes can't serve together."));
  EXPECT_THAT(told.findings(0).DebugString(), HasSubstr("mac-0 - mac-1"));
  EXPECT_EQ(told.findings(0).severity(), v1::SEVERITY_ERROR);
}

TEST(GroupVerdict, MoreMacsThanAMeshTakesMakeARing) {
  v1::LinkSnapshot snapshot = Macs(3, {{0, 1}, {1, 2}, {0, 2}});
  snapshot.set_mesh_nodes_max(2);
  const v1::GroupVerdict group = JudgeLinks(snapshot).group();
  EXPECT_EQ(group.verdict(), "jaccl-ring");
  EXPECT_THAT(CodesIn(group.reasons()), Contains(reasons::kTooManyPeers));
}

TEST(GroupVerdict, ARefusalOfOneNodeKeepsEveryGroupWithItOffRdmaAndNoOther) {
  v1::LinkSnapshot snapshot = Macs(3, {{0, 1}, {1, 2}, {0, 2}});
  v1::TransportRefusal& refusal = *snapshot.add_refusals();
  refusal.add_node_ids("mac-2");
  refusal.set_backend("jaccl");
  *refusal.mutable_reason() = MakeReason(reasons::kNodeCrashed, "mac-2 went down", "mac-2");
  const v1::ClusterLinks links = JudgeLinks(snapshot);
  EXPECT_EQ(links.group().verdict(), "ring-only");
  EXPECT_THAT(CodesIn(links.group().reasons()), Contains(reasons::kNodeCrashed));
  EXPECT_THAT(CodesIn(Choice(links.group(), "jaccl", "mesh")->reasons()),
              Contains(reasons::kRefusalRemembered));
  const std::vector<std::string> without = {"mac-0", "mac-1"};
  EXPECT_EQ(JudgeGroup(snapshot, links, without).verdict(), "jaccl-mesh");
}

TEST(GroupVerdict, OldMlxIsNamedWithItsNode) {
  v1::LinkSnapshot snapshot = GoodPair();
  FactsOf(snapshot, 1).set_mlx_version("0.30.5");
  const v1::GroupVerdict group = JudgeLinks(snapshot).group();
  EXPECT_EQ(group.verdict(), "ring-only");
  ASSERT_GE(group.reasons_size(), 1);
  EXPECT_EQ(group.reasons(0).code(), reasons::kMlxOld);
  EXPECT_EQ(group.reasons(0).node_id(), "mini-b");
  EXPECT_EQ(group.reasons(0).message(), "MLX 0.30.5 on mini-b; jaccl needs 0.30.6");
  FactsOf(snapshot, 1).set_mlx_version("0.30.10");
  EXPECT_EQ(JudgeLinks(snapshot).group().verdict(), "jaccl-mesh") << "ten is more than six";
}

// ---- warnings of nodes

struct Warning {
  std::string_view code;
  void (*make)(v1::LinkFacts&);
  const char* says;
};

TEST(NodeWarnings, EachIsSaidWithItsMachineAndAVerdictStands) {
  const Warning warnings[] = {
      {reasons::kMaySleep, [](v1::LinkFacts& facts) { facts.set_sleep_minutes(10); },
       "goes to sleep after 10 min where no rank keeps it awake"},
      {reasons::kLowPowerMode, [](v1::LinkFacts& facts) { facts.set_low_power_mode(v1::FACT_YES); },
       "Low Power Mode"},
      {reasons::kThermal,
       [](v1::LinkFacts& facts) { facts.set_thermal_state(v1::THERMAL_STATE_THROTTLED); },
       "throttled"},
      {reasons::kMemoryPressure,
       [](v1::LinkFacts& facts) { facts.set_memory_pressure(v1::MEMORY_PRESSURE_WARNING); },
       "memory pressure"},
      {reasons::kResourceExhausted, [](v1::LinkFacts& facts) { facts.set_protection_domains(4); },
       "4 RDMA protection domains"},
      {reasons::kLocalNetworkPrivacy,
       [](v1::LinkFacts& facts) { facts.set_local_network_denied(v1::FACT_YES); },
       "refused this program"},
      {reasons::kGpuWedged, [](v1::LinkFacts& facts) { facts.set_gpu_busy_alone_seconds(60); },
       "GPU has been busy for 60 s or longer"},
      {reasons::kInternetSharing,
       [](v1::LinkFacts& facts) {
         v1::NetworkBridge& bridge = *facts.add_bridges();
         bridge.set_name("bridge100");
         bridge.add_members("en5");
       },
       "made bridge100 of en5"},
      {reasons::kFabricNotSeparate,
       [](v1::LinkFacts& facts) {
         v1::NetworkRoute& route = *facts.add_routes();
         route.set_destination("default");
         route.set_interface_name("en2");
         route.set_gateway("10.77.5.9");
       },
       "leaves by en2"},
      {reasons::kLinkFlaps,
       [](v1::LinkFacts& facts) { facts.mutable_ports(0)->set_drops_last_hour(4); },
       "the link at Thunderbolt socket 1 (en2) went and came 4 times within the last hour"},
  };
  for (const Warning& warning : warnings) {
    SCOPED_TRACE(std::string(warning.code));
    v1::LinkSnapshot snapshot = GoodPair();
    warning.make(FactsOf(snapshot, 0));
    const v1::GroupVerdict group = JudgeLinks(snapshot).group();
    EXPECT_EQ(group.verdict(), "jaccl-mesh") << "a warning rules nothing out";
    ASSERT_EQ(group.warnings_size(), 1) << group.DebugString();
    EXPECT_EQ(group.warnings(0).code(), warning.code);
    EXPECT_EQ(group.warnings(0).node_id(), "mini-a");
    EXPECT_THAT(group.warnings(0).message(), HasSubstr("mini-a: "));
    EXPECT_THAT(group.warnings(0).message(), HasSubstr(warning.says));
    EXPECT_FALSE(group.warnings(0).remedy().empty());
  }
}

TEST(NodeWarnings, APanicOfTheLastDayIsToldWithItsAgeAndItsReport) {
  constexpr uint64_t kHour = 3'600'000, kNow = 1'795'000'000'000;
  v1::LinkSnapshot snapshot = GoodPair();
  snapshot.set_now_unix_ms(kNow);
  const auto add = [&](uint64_t age_ms, const std::string& text) {
    v1::PanicReport& panic = *FactsOf(snapshot, 0).add_panics();
    panic.set_unix_ms(kNow - age_ms);
    panic.set_text(text);
    panic.set_file("/reports/" + text);
  };
  add(25 * kHour, "old");
  EXPECT_TRUE(JudgeLinks(snapshot).group().warnings().empty());
  add(150 * kHour / 60, "panic: x");
  v1::GroupVerdict group = JudgeLinks(snapshot).group();
  ASSERT_EQ(group.warnings_size(), 1) << group.DebugString();
  EXPECT_EQ(group.warnings(0).code(), reasons::kNodeCrashed);
  EXPECT_EQ(group.warnings(0).message(), "mini-a: its kernel panicked 2 h ago: panic: x");
  EXPECT_EQ(group.warnings(0).evidence(), "/reports/panic: x");
  add(20 * kHour / 60, "panic: y");
  group = JudgeLinks(snapshot).group();
  ASSERT_EQ(group.warnings_size(), 1) << "one for each machine";
  EXPECT_EQ(group.warnings(0).message(),
            "mini-a: its kernel panicked 20 min ago, 2 times within 24 h: panic: y");
}

// The doctor has one finding for it, which holds what the others saw, and the way back.
TEST(NodeWarnings, APanicAndTheRestartThatWasSeenAreOneFinding) {
  v1::LinkSnapshot snapshot = GoodPair();
  FactsOf(snapshot, 0).add_panics()->set_text("panic: x");
  v1::Reason seen = MakeReason(reasons::kNodeCrashed, "mini-a restarted 2 times", "mini-a");
  seen.set_remedy("it was cordoned");
  const std::vector<v1::Reason> failures = {seen};
  const v1::Diagnosis diagnosis = Diagnose(snapshot, JudgeLinks(snapshot), {}, failures);
  std::vector<const v1::Finding*> found;
  for (const v1::Finding& finding : diagnosis.findings()) {
    if (finding.reason().code() == reasons::kNodeCrashed) found.push_back(&finding);
  }
  ASSERT_EQ(found.size(), 1u);
  EXPECT_THAT(found[0]->symptom(), HasSubstr("its kernel panicked"));
  EXPECT_THAT(found[0]->DebugString(), HasSubstr("mini-a restarted 2 times"));
  EXPECT_THAT(found[0]->steps(), Contains("it was cordoned"));
}

// A rank of a mesh holds a domain for each peer; two of a pair open their device twice in a ring.
TEST(NodeWarnings, AMeshThatServesIsNotToldToRestart) {
  v1::LinkSnapshot snapshot = Macs(4, {{0, 1}, {0, 2}, {0, 3}, {1, 2}, {1, 3}, {2, 3}});
  for (int i = 0; i < 4; ++i) FactsOf(snapshot, i).set_protection_domains(3);
  v1::GroupVerdict group = JudgeLinks(snapshot).group();
  EXPECT_EQ(group.verdict(), "jaccl-mesh");
  EXPECT_TRUE(group.warnings().empty()) << group.DebugString();
  v1::LinkSnapshot pair = GoodPair();
  FactsOf(pair, 0).set_protection_domains(2);
  EXPECT_TRUE(JudgeLinks(pair).group().warnings().empty());
  // More than any group of theirs holds was leaked.
  FactsOf(snapshot, 2).set_protection_domains(7);
  group = JudgeLinks(snapshot).group();
  ASSERT_EQ(group.warnings_size(), 1);
  EXPECT_EQ(group.warnings(0).code(), reasons::kResourceExhausted);
  EXPECT_EQ(group.warnings(0).node_id(), "mac-2");
  EXPECT_THAT(group.warnings(0).remedy(), HasSubstr("once its ranks have ended"));
}

// Shortly after a rank's end its last load still says that it computes.
TEST(NodeWarnings, AGpuThatIsBusyAloneIsToldFromThirtySecondsOn) {
  v1::LinkSnapshot snapshot = GoodPair();
  FactsOf(snapshot, 1).set_is_mac(v1::FACT_NO);
  const auto told = [&](int node, uint32_t seconds) {
    FactsOf(snapshot, node).set_gpu_busy_alone_seconds(seconds);
    const std::vector<v1::Reason> warnings = NodeWarnings(FactsOf(snapshot, node), 0);
    return warnings.empty() ? v1::Reason() : warnings[0];
  };
  EXPECT_EQ(told(0, 0).code(), "");
  EXPECT_EQ(told(0, 29).code(), "");
  EXPECT_EQ(told(0, 30).code(), reasons::kGpuWedged);
  EXPECT_THAT(told(0, 240).message(), HasSubstr("busy for 4 min or longer"));
  EXPECT_THAT(told(0, 30).remedy(), HasSubstr("Activity Monitor"));
  EXPECT_THAT(told(1, 30).remedy(), Not(HasSubstr("Activity Monitor"))) << "no Mac";
  EXPECT_THAT(told(1, 30).remedy(), HasSubstr("restart this machine"));
}

TEST(NodeWarnings, ABridgeOfOnesOwnIsNotInternetSharing) {
  v1::LinkSnapshot snapshot = GoodPair();
  v1::NetworkBridge& bridge = *FactsOf(snapshot, 0).add_bridges();
  bridge.set_name("bridge1");
  bridge.add_members("en5");
  EXPECT_TRUE(JudgeLinks(snapshot).group().warnings().empty());
}

TEST(NodeWarnings, ALinkThatWentTwiceIsNotWarnedOf) {
  v1::LinkSnapshot snapshot = GoodPair();
  FactsOf(snapshot, 1).mutable_ports(0)->set_drops_last_hour(2);
  EXPECT_TRUE(JudgeLinks(snapshot).group().warnings().empty());
}

TEST(NodeWarnings, AllSocketsThatFlapAreNamedInOneWarning) {
  v1::LinkSnapshot snapshot = Macs(3, {{0, 1}, {0, 2}, {1, 2}});
  v1::LinkFacts& facts = FactsOf(snapshot, 0);
  for (int i = 0; i < 2; ++i) facts.mutable_ports(i)->set_drops_last_hour(3 + i);
  facts.mutable_ports(1)->set_speed_text("80 Gb/s");
  facts.mutable_ports(1)->mutable_peers(0)->set_device_name("Mac16,9");
  v1::GroupVerdict group = JudgeLinks(snapshot).group();
  EXPECT_EQ(group.verdict(), "jaccl-mesh");
  ASSERT_EQ(group.warnings_size(), 1) << group.DebugString();
  EXPECT_EQ(group.warnings(0).message(),
            "mac-0: the link at Thunderbolt socket 1 (en2) went and came 3 times, that at "
            "Thunderbolt socket 2 (en3) 4 times within the last hour");
  EXPECT_THAT(group.warnings(0).evidence(),
              HasSubstr("; Thunderbolt socket 2 (en3): 4 drops, 80 Gb/s, to Mac16,9"));
  EXPECT_THAT(group.warnings(0).remedy(), HasSubstr("seat the plug again"));
  const v1::Diagnosis told = Diagnose(snapshot, JudgeLinks(snapshot), {}, {});
  ASSERT_EQ(told.findings_size(), 1);
  EXPECT_THAT(told.findings(0).symptom(), HasSubstr("socket 2 (en3) 4 times"));
  // What another node says of itself is not believed to have no end.
  for (int i = 0; i < 1000; ++i) facts.add_ports()->set_drops_last_hour(9);
  EXPECT_LT(JudgeLinks(snapshot).group().warnings(0).message().size(), 1000u);
}

// ---- unknown is never no

void LoseLan(v1::LinkFacts& facts) {
  auto* interfaces = facts.mutable_interfaces();
  for (int i = interfaces->size() - 1; i >= 0; --i) {
    if (interfaces->Get(i).name() == "en0") interfaces->DeleteSubrange(i, 1);
  }
}

TEST(GroupVerdict, InterfacesThatAreUnknownDenyNoRdma) {
  v1::LinkSnapshot snapshot = Macs(4, {{0, 1}, {1, 2}, {2, 3}, {3, 0}});
  for (int i = 0; i < 4; ++i) LoseLan(FactsOf(snapshot, i));
  ASSERT_EQ(JudgeLinks(snapshot).group().verdict(), "ring-only") << "known to have no LAN";
  // Their ifconfig was cut off: the LAN may be there.
  *FactsOf(snapshot, 2).add_unknown() =
      MakeReason(reasons::kCommandTimedOut, "interfaces: ifconfig: took longer than 3 s");
  const v1::ClusterLinks links = JudgeLinks(snapshot);
  const v1::GroupVerdict& group = links.group();
  EXPECT_EQ(group.verdict(), "jaccl-ring") << group.DebugString();
  ASSERT_NE(Choice(group, "jaccl", "ring"), nullptr);
  EXPECT_TRUE(Choice(group, "jaccl", "ring")->usable());
  EXPECT_EQ(group.node_ids_size(), 4);
  EXPECT_FALSE(CodesIn(group.warnings()).contains(reasons::kCoordinator));
  EXPECT_THAT(CodesIn(group.warnings()), Contains(reasons::kFactUnknown));
  const v1::Diagnosis told = Diagnose(snapshot, links, {}, {});
  for (const v1::Finding& finding : told.findings()) {
    if (finding.reason().code() != reasons::kFactUnknown) continue;
    EXPECT_EQ(finding.severity(), v1::SEVERITY_INFO);
    EXPECT_THAT(finding.steps(0), HasSubstr("links recheck"));
  }
}

TEST(GroupVerdict, AMacWhoseInterfacesAreUnknownIsNotSaidToBeAlone) {
  v1::LinkSnapshot snapshot = GoodPair();
  FactsOf(snapshot, 1).clear_interfaces();
  *FactsOf(snapshot, 1).add_unknown() =
      MakeReason(reasons::kCommandTimedOut, "interfaces: ifconfig: took longer than 3 s");
  const v1::GroupVerdict group = JudgeLinks(snapshot).group();
  EXPECT_EQ(group.verdict(), "ring-only") << group.DebugString();
  EXPECT_FALSE(CodesIn(group.reasons()).contains(reasons::kNoRing));
  EXPECT_FALSE(CodesIn(group.warnings()).contains(reasons::kCoordinator));
  EXPECT_THAT(CodesIn(group.warnings()), Contains(reasons::kFactUnknown));
}

// A cable to a Mac that has no Thunderbolt 5 gives no RDMA.
TEST(GroupVerdict, NobodyIsSentToBuyACableToAThunderbolt4Mac) {
  v1::LinkSnapshot snapshot = Macs(2, {});
  for (int i = 0; i < 2; ++i) {
    v1::ThunderboltPort& port = *FactsOf(snapshot, i).add_ports();
    port.set_socket(1);
    port.set_is_thunderbolt5(i == 0 ? v1::FACT_YES : v1::FACT_NO);
  }
  const v1::GroupVerdict group = JudgeLinks(snapshot).group();
  EXPECT_EQ(group.verdict(), "ring-only");
  EXPECT_EQ(CodesIn(group.reasons()), (std::set<std::string>{reasons::kTb4Controller}));
  for (const v1::Reason& reason : group.reasons()) {
    EXPECT_THAT(reason.remedy(), Not(HasSubstr("cable")));
  }
}

TEST(NodeWarnings, ABridgeOfVirtualMachinesIsNotInternetSharing) {
  v1::LinkSnapshot snapshot = GoodPair();
  v1::NetworkBridge& bridge = *FactsOf(snapshot, 0).add_bridges();
  bridge.set_name("bridge100");
  bridge.add_members("vmenet0");
  EXPECT_TRUE(JudgeLinks(snapshot).group().warnings().empty());
}

TEST(Conclusion, OneMorePairIsOne) {
  v1::LinkSnapshot snapshot = Macs(4, {{0, 1}, {2, 3}});
  const std::string text = Diagnose(snapshot, JudgeLinks(snapshot), {}, {}).conclusion();
  EXPECT_THAT(text, HasSubstr("and 1 more pair."));
  EXPECT_THAT(text, Not(HasSubstr("1 more pairs")));
}

// ---- what MLX is told

TEST(MlxSettings, EachRankIsToldWhereTheGroupMeetsAndOverWhat) {
  const v1::GroupVerdict group = JudgeLinks(GoodPair()).group();
  const auto jaccl = MlxEnvironmentOf(group, "jaccl", 1, 4000);
  ASSERT_TRUE(jaccl.ok()) << jaccl.status();
  using Setting = std::pair<std::string, std::string>;
  EXPECT_THAT(jaccl->settings,
              testing::ElementsAre(Setting("MLX_RANK", "1"),
                                   Setting("MLX_JACCL_COORDINATOR", "192.0.2.1:4000"),
                                   Setting("MLX_METAL_FAST_SYNCH", "1")));
  EXPECT_THAT(jaccl->files, testing::ElementsAre(Setting(
                                "MLX_IBV_DEVICES", R"([[null,"rdma_en2"],["rdma_en3",null]])")));
  const auto plain = MlxEnvironmentOf(group, "jaccl", 0, 4000, /*fast_synch=*/false);
  EXPECT_EQ(plain->settings.size(), 2u);
  const auto ring = MlxEnvironmentOf(group, "ring", 0, 5000);
  ASSERT_TRUE(ring.ok()) << ring.status();
  EXPECT_EQ(ring->files[0].second, R"([["10.77.5.1:5000"],["10.77.5.2:5001"]])");
}

TEST(MlxSettings, WhatTheGroupCannotDoIsRefusedWithItsReasons) {
  v1::LinkSnapshot snapshot = GoodPair();
  FactsOf(snapshot, 0).set_rdma_enabled(v1::FACT_NO);
  const v1::GroupVerdict group = JudgeLinks(snapshot).group();
  const std::vector<std::string> names = {"mini-a", "mini-b"};
  for (const absl::Status& refused : {MlxHostfile(group, "jaccl", names).status(),
                                      MlxEnvironmentOf(group, "jaccl", 0, 4000).status()}) {
    EXPECT_EQ(ReasonOf(refused).code(), reasons::kTransportUnavailable);
    EXPECT_THAT(ReasonOf(refused).message(), HasSubstr("RDMA_DISABLED_LOCAL (RDMA is off on"));
  }
  EXPECT_EQ(ReasonOf(MlxHostfile(group, "jackal", names).status()).code(), reasons::kBadRequest);
  EXPECT_THAT(ReasonOf(MlxHostfile(group, "jackal", names).status()).message(),
              HasSubstr("'jackal'; there are: "));
  EXPECT_TRUE(absl::IsInvalidArgument(MlxHostfile(group, "ring", {"one"}).status()));
  EXPECT_TRUE(absl::IsInvalidArgument(MlxEnvironmentOf(group, "ring", 2, 4000).status()));
  EXPECT_TRUE(absl::IsInvalidArgument(MlxEnvironmentOf(group, "ring", -1, 4000).status()));
}

// A ring of MLX's whose rank has no address would fail far from here, and say less.
TEST(MlxSettings, ARankWithoutAnAddressIsNamed) {
  v1::GroupVerdict group = JudgeLinks(GoodPair()).group();
  group.mutable_ring_addresses(1)->clear_ips();
  const std::vector<std::string> names = {"a.local", "b.local"};
  const absl::Status file = MlxHostfile(group, "ring", names).status();
  EXPECT_EQ(ReasonOf(file).code(), reasons::kCoordinator);
  EXPECT_THAT(ReasonOf(file).message(), HasSubstr("no address of b.local"));
  const absl::Status settings = MlxEnvironmentOf(group, "ring", 0, 4000).status();
  EXPECT_EQ(ReasonOf(settings).code(), reasons::kCoordinator) << settings;
  EXPECT_THAT(ReasonOf(settings).message(), HasSubstr("no address of mini-b"));
  group.clear_rendezvous_ip();
  EXPECT_EQ(ReasonOf(MlxEnvironmentOf(group, "jaccl", 1, 4000).status()).code(),
            reasons::kCoordinator);
}

}  // namespace
}  // namespace macrame::transport
