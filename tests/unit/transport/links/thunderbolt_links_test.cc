// How cables are found between Macs: by the domains of their ports alone.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <set>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "proto/reason_codes.h"
#include "tests/unit/transport/links/link_snapshots_for_tests.h"
#include "transport/links/diagnosis.h"
#include "transport/links/judge.h"

namespace macrame::transport {
namespace {

using testing::Contains;
using testing::Each;
using testing::HasSubstr;
using testing::Not;

// "mac-0 1 - mac-2 3", the lower id first.
std::string CableText(const v1::LinkVerdict& link) {
  return absl::StrCat(link.a().node_id(), " ", link.a().socket(), " - ", link.b().node_id(), " ",
                      link.b().socket());
}

std::vector<std::string> CablesOf(const v1::ClusterLinks& links) {
  std::vector<std::string> cables;
  for (const v1::LinkVerdict& link : links.links()) cables.push_back(CableText(link));
  std::sort(cables.begin(), cables.end());
  return cables;
}

// Macs joined at random, and the cables as they should be found.
struct Cluster {
  v1::LinkSnapshot snapshot;
  std::vector<std::string> cables;
};
Cluster RandomCluster(std::mt19937& random) {
  const int count = 2 + static_cast<int>(random() % 5);
  std::vector<v1::NodeLinks> nodes;
  std::vector<uint32_t> sockets(static_cast<size_t>(count), 1);
  for (int i = 0; i < count; ++i) nodes.push_back(GoodMac(absl::StrCat("mac-", i)));
  Cluster cluster;
  for (int number = 1; number <= static_cast<int>(random() % 9); ++number) {
    const size_t a = random() % nodes.size(), b = random() % nodes.size();
    if (a == b) continue;
    cluster.cables.push_back(absl::StrCat("mac-", std::min(a, b), " ", sockets[std::min(a, b)],
                                          " - mac-", std::max(a, b), " ", sockets[std::max(a, b)]));
    // Either end may be the one that is given first.
    Cable(nodes[a], sockets[a], nodes[b], sockets[b], number);
    ++sockets[a], ++sockets[b];
  }
  std::sort(cluster.cables.begin(), cluster.cables.end());
  for (v1::NodeLinks& node : nodes) *cluster.snapshot.add_nodes() = std::move(node);
  return cluster;
}

template <typename List>
void Shuffle(List& list, std::mt19937& random) {
  for (int i = list.size() - 1; i > 0; --i) {
    list.SwapElements(i, static_cast<int>(random() % static_cast<uint32_t>(i + 1)));
  }
}

// All but the order in which the ways that are not taken are listed.
std::string Comparable(v1::ClusterLinks links) {
  for (v1::NodePath& path : *links.mutable_paths()) {
    std::sort(path.mutable_rejected()->begin(), path.mutable_rejected()->end(),
              [](const v1::Reason& a, const v1::Reason& b) { return a.message() < b.message(); });
  }
  return links.SerializeAsString();
}

TEST(ThunderboltLinks, EachCableIsOneLinkWhateverTheOrderOfPortsAndNodes) {
  for (uint32_t seed = 0; seed < 300; ++seed) {
    SCOPED_TRACE(seed);
    std::mt19937 random(seed);
    Cluster cluster = RandomCluster(random);
    const v1::ClusterLinks links = JudgeLinks(cluster.snapshot);
    EXPECT_EQ(CablesOf(links), cluster.cables);
    for (v1::NodeLinks& node : *cluster.snapshot.mutable_nodes()) {
      Shuffle(*node.mutable_facts()->mutable_ports(), random);
      Shuffle(*node.mutable_facts()->mutable_interfaces(), random);
      Shuffle(*node.mutable_facts()->mutable_rdma_devices(), random);
    }
    Shuffle(*cluster.snapshot.mutable_nodes(), random);
    EXPECT_TRUE(Comparable(JudgeLinks(cluster.snapshot)) == Comparable(links));
  }
}

TEST(ThunderboltLinks, NamesThatAreAlikeJoinNothing) {
  v1::LinkSnapshot snapshot = Macs(3, {{0, 1}});
  // A third Mac of the very same names, whose own cable leads elsewhere.
  FactsOf(snapshot, 2).set_hostname("mac-1");
  v1::ThunderboltPort& port = *FactsOf(snapshot, 2).add_ports();
  port = FactsOf(snapshot, 1).ports(0);
  port.set_domain_uuid("third/1");
  port.mutable_peers(0)->set_domain_uuid("a visitor's");
  const v1::ClusterLinks links = JudgeLinks(snapshot);
  EXPECT_THAT(CablesOf(links), testing::UnorderedElementsAre("mac-0 1 - mac-1 1", "mac-2 1 -  0"));
  for (const v1::LinkVerdict& link : links.links()) {
    if (link.a().node_id() != "mac-2") continue;
    EXPECT_EQ(link.rdma_usable(), v1::FACT_UNKNOWN);
    EXPECT_THAT(CodesIn(link.reasons()), Contains("PEER_UNKNOWN"));
  }
}

class OneSided : public ::testing::TestWithParam<int> {
 protected:
  // The Mac of that number does not see the cable (yet, or any more).
  OneSided() : snapshot_(Macs(2, {{0, 1}})) {
    FactsOf(snapshot_, GetParam()).mutable_ports(0)->clear_peers();
    links_ = JudgeLinks(snapshot_);
  }
  v1::LinkSnapshot snapshot_;
  v1::ClusterLinks links_;
};

TEST_P(OneSided, NothingIsConcludedOfACableThatOneEndDoesNotSee) {
  ASSERT_EQ(links_.links_size(), 1);
  const v1::LinkVerdict& link = links_.links(0);
  EXPECT_EQ(CableText(link), "mac-0 1 - mac-1 1");
  EXPECT_EQ(link.rdma_usable(), v1::FACT_UNKNOWN);
  EXPECT_EQ(link.lowest_failing_layer(), "");
  const auto codes = CodesIn(link.reasons());
  EXPECT_THAT(codes, Contains("CONFLICTING_FACTS"));
  // The other end sees a computer there.
  EXPECT_THAT(codes, Not(Contains("NO_PEER")));
  EXPECT_EQ(links_.group().verdict(), "ring-only");
  const v1::Diagnosis diagnosis = Diagnose(snapshot_, links_, {}, {});
  for (const v1::Finding& finding : diagnosis.findings()) {
    EXPECT_THAT(finding.reason().message(), Not(HasSubstr("no computer at")));
  }
}

TEST_P(OneSided, AFaultOfTheMachineItselfIsSaidAllTheSame) {
  FactsOf(snapshot_, 0).set_os_version("15.6");
  const v1::LinkVerdict link = JudgeLinks(snapshot_).links(0);
  EXPECT_NE(link.rdma_usable(), v1::FACT_YES);
  EXPECT_THAT(CodesIn(link.reasons()), Contains("OS_TOO_OLD"));
}

INSTANTIATE_TEST_SUITE_P(EitherEnd, OneSided, testing::Values(0, 1));

TEST(ThunderboltLinks, TwoMacsWithOneDomainAreToldApartByNobodyAndCrashNothing) {
  // A copied machine: its ports have the domains of the original's.
  v1::LinkSnapshot snapshot = Macs(3, {{0, 1}});
  *FactsOf(snapshot, 2).mutable_ports() = FactsOf(snapshot, 1).ports();
  *FactsOf(snapshot, 2).mutable_interfaces() = FactsOf(snapshot, 1).interfaces();
  const v1::ClusterLinks links = JudgeLinks(snapshot);
  ASSERT_GE(links.links_size(), 1);
  for (const v1::LinkVerdict& link : links.links()) EXPECT_EQ(link.a().node_id(), "mac-0");
  std::mt19937 random(1);
  for (int round = 0; round < 10; ++round) {
    Shuffle(*snapshot.mutable_nodes(), random);
    EXPECT_TRUE(Comparable(JudgeLinks(snapshot)) == Comparable(links));
  }
}

TEST(ThunderboltLinks, ACableOfAMacToItselfIsNoWayToAnother) {
  v1::LinkSnapshot snapshot = Macs(2, {{0, 1}});
  v1::NodeLinks& node = *snapshot.mutable_nodes(0);
  for (const auto& [own, other] : {std::pair(5, 6), std::pair(6, 5)}) {
    v1::ThunderboltPeer& peer =
        *AddPort(node, static_cast<uint32_t>(own), absl::StrCat("10.78.0.", own)).add_peers();
    peer.set_domain_uuid(absl::StrCat("mac-0/", other));
    peer.set_advertises_rdma(v1::FACT_YES);
  }
  const v1::ClusterLinks links = JudgeLinks(snapshot);
  EXPECT_EQ(links.group().verdict(), "jaccl-mesh");
  for (const v1::LinkVerdict& link : links.links()) {
    if (link.a().socket() < 5) continue;
    EXPECT_NE(link.rdma_usable(), v1::FACT_YES) << CableText(link);
    EXPECT_EQ(link.b().node_id(), "") << CableText(link);
  }
  const std::vector<std::string> ids = {"mac-0", "mac-1"};
  for (const v1::DeviceRow& row : DeviceMatrix(links, ids, /*only_usable=*/false)) {
    for (const v1::DeviceCell& cell : row.cells()) EXPECT_LE(cell.devices_size(), 1);
  }
}

TEST(ThunderboltLinks, TheSpeedIsTheSlowerEndsAndSaidOnce) {
  for (const int slow : {0, 1}) {
    v1::LinkSnapshot snapshot = Macs(2, {{0, 1}});
    FactsOf(snapshot, slow).mutable_ports(0)->set_speed_gbps(40);
    const v1::LinkVerdict one = JudgeLinks(snapshot).links(0);
    EXPECT_EQ(one.speed_gbps(), 40u);
    FactsOf(snapshot, 1 - slow).mutable_ports(0)->set_speed_gbps(40);
    const v1::LinkVerdict both = JudgeLinks(snapshot).links(0);
    EXPECT_EQ(both.reasons_size(), 1);
    EXPECT_EQ(both.reasons(0).code(), "LINK_40G");
    EXPECT_EQ(both.lowest_failing_layer(), "speed");
    EXPECT_THAT(both.reasons(0).message(), HasSubstr("40 Gb/s"));
  }
}

v1::LinkMeasurement Measured(int from, int to, double round_trip_us) {
  const auto ip = [](int node) { return absl::StrCat("10.77.1.", node + 1); };
  v1::LinkMeasurement measured;
  measured.set_from_node_id(absl::StrCat("mac-", from));
  measured.set_to_node_id(absl::StrCat("mac-", to));
  measured.set_from_ip(ip(from));
  measured.set_to_ip(ip(to));
  measured.set_round_trip_us_p50(round_trip_us);
  return measured;
}

TEST(ThunderboltLinks, ASlowRoundTripIsWarnedOfWhicheverEndMeasuredIt) {
  for (const int from : {0, 1}) {
    v1::LinkSnapshot snapshot = Macs(2, {{0, 1}});
    auto& node = *snapshot.mutable_nodes(from);
    *node.add_measurements() = Measured(from, 1 - from, 40);
    const v1::LinkVerdict quick = JudgeLinks(snapshot).links(0);
    EXPECT_TRUE(quick.warnings().empty());
    EXPECT_EQ(quick.measurement().round_trip_us_p50(), 40);
    *node.mutable_measurements(0) = Measured(from, 1 - from, 2500);
    const v1::LinkVerdict slow = JudgeLinks(snapshot).links(0);
    ASSERT_EQ(slow.warnings_size(), 1);
    EXPECT_EQ(slow.warnings(0).code(), "LATENCY_HIGH");
    EXPECT_THAT(slow.warnings(0).message(), HasSubstr("2500 us"));
    EXPECT_EQ(slow.rdma_usable(), v1::FACT_YES) << "a warning forbids nothing";
    // A measurement of other addresses says nothing of this cable.
    node.mutable_measurements(0)->set_to_ip("192.0.2.9");
    EXPECT_FALSE(JudgeLinks(snapshot).links(0).has_measurement());
  }
}

TEST(ThunderboltLinks, OfANodeThatIsGivenTwiceTheNewerNewsCount) {
  v1::LinkSnapshot snapshot = Macs(2, {{0, 1}});
  v1::NodeLinks older = snapshot.nodes(1);
  snapshot.mutable_nodes(1)->set_revision(7);
  older.set_revision(6);
  older.mutable_facts()->set_rdma_enabled(v1::FACT_NO);
  *snapshot.add_nodes() = older;
  EXPECT_EQ(JudgeLinks(snapshot).links(0).rdma_usable(), v1::FACT_YES);
  snapshot.mutable_nodes(2)->set_revision(8);
  EXPECT_EQ(JudgeLinks(snapshot).links(0).rdma_usable(), v1::FACT_NO);
  snapshot.mutable_nodes()->SwapElements(0, 2);
  EXPECT_EQ(JudgeLinks(snapshot).links(0).rdma_usable(), v1::FACT_NO);
}

TEST(BridgeLoops, OnlyCablesThatCloseACircleOfBridgesAreWarnedOf) {
  const auto warned = [](const std::vector<std::pair<int, int>>& cables, bool bridge_is_up) {
    v1::LinkSnapshot snapshot = Macs(3, cables);
    for (int i = 0; i < 3; ++i) {
      v1::NetworkBridge& bridge = *FactsOf(snapshot, i).add_bridges();
      bridge.set_name("bridge0");
      bridge.set_is_up(bridge_is_up ? v1::FACT_YES : v1::FACT_NO);
      for (v1::LinkInterface& one : *FactsOf(snapshot, i).mutable_interfaces()) {
        if (one.kind() != v1::INTERFACE_KIND_THUNDERBOLT) continue;
        one.set_bridge("bridge0");
        bridge.add_members(one.name());
      }
    }
    int count = 0;
    const v1::ClusterLinks links = JudgeLinks(snapshot);
    for (const v1::LinkVerdict& link : links.links()) {
      count += CodesIn(link.warnings()).contains("BRIDGE_LOOP_RISK");
    }
    return count;
  };
  EXPECT_EQ(warned({{0, 1}, {1, 2}, {0, 2}}, true), 3);
  EXPECT_EQ(warned({{0, 1}, {1, 2}, {0, 2}}, false), 0);
  EXPECT_EQ(warned({{0, 1}, {1, 2}}, true), 0);
}

// ---- what the other end explains

v1::LinkVerdict TheLink(const v1::LinkSnapshot& snapshot) {
  const v1::ClusterLinks links = JudgeLinks(snapshot);
  EXPECT_EQ(links.links_size(), 1);
  return links.links(0);
}

// The link runs at 40 Gb/s and its port is down because of the controller: no cable changes it, and
// no walk to Recovery either, although Thunderbolt 4 Macs ship with RDMA off.
TEST(ThunderboltLinks, BesideAThunderbolt4MacNoCableAndNoRecoveryIsAdvised) {
  for (const int old : {0, 1}) {
    v1::LinkSnapshot snapshot = GoodPair();
    for (int i = 0; i < 2; ++i) {
      FactsOf(snapshot, i).mutable_ports(0)->set_speed_gbps(40);
      FactsOf(snapshot, i).mutable_rdma_devices(0)->set_port_state(v1::RDMA_PORT_STATE_DOWN);
      FactsOf(snapshot, i).set_rdma_enabled(v1::FACT_NO);
      FactsOf(snapshot, i).mutable_ports(0)->mutable_peers(0)->set_advertises_rdma(v1::FACT_NO);
    }
    FactsOf(snapshot, old).mutable_ports(0)->set_is_thunderbolt5(v1::FACT_NO);
    const v1::LinkVerdict link = TheLink(snapshot);
    EXPECT_EQ(link.rdma_usable(), v1::FACT_NO);
    EXPECT_EQ(CodesIn(link.reasons()), (std::set<std::string>{reasons::kTb4Controller}))
        << link.DebugString();
    const v1::LinkEnd& newer = old == 0 ? link.b() : link.a();
    EXPECT_TRUE(newer.reasons().empty()) << newer.DebugString();
    const v1::GroupVerdict group = JudgeLinks(snapshot).group();
    EXPECT_EQ(CodesIn(group.reasons()), (std::set<std::string>{reasons::kTb4Controller}));
  }
}

TEST(ThunderboltLinks, ASlowLinkOfUnknownControllersIsLookedAtBeforeACableIsBought) {
  v1::LinkSnapshot snapshot = GoodPair();
  FactsOf(snapshot, 0).mutable_ports(0)->set_speed_gbps(40);
  v1::LinkVerdict link = TheLink(snapshot);
  ASSERT_EQ(link.reasons(0).code(), reasons::kLink40g);
  EXPECT_THAT(link.reasons(0).remedy(), testing::StartsWith("a Thunderbolt 5 cable"));
  FactsOf(snapshot, 1).mutable_ports(0)->set_is_thunderbolt5(v1::FACT_UNKNOWN);
  link = TheLink(snapshot);
  ASSERT_EQ(link.reasons(0).code(), reasons::kLink40g);
  EXPECT_THAT(link.reasons(0).remedy(), testing::StartsWith("see first that both Macs"));
}

TEST(ThunderboltLinks, AMacThatIsTooOldIsUpdatedBeforeAnybodyGoesToRecovery) {
  v1::LinkSnapshot snapshot = GoodPair();
  FactsOf(snapshot, 1).set_os_version("26.1");
  FactsOf(snapshot, 1).set_rdma_ctl_missing(true);
  FactsOf(snapshot, 1).set_rdma_enabled(v1::FACT_UNKNOWN);
  FactsOf(snapshot, 1).clear_rdma_devices();
  FactsOf(snapshot, 1).mutable_ports(0)->clear_rdma_device();
  FactsOf(snapshot, 0).mutable_ports(0)->mutable_peers(0)->set_advertises_rdma(v1::FACT_NO);
  FactsOf(snapshot, 0).mutable_rdma_devices(0)->set_port_state(v1::RDMA_PORT_STATE_DOWN);
  const v1::LinkVerdict link = TheLink(snapshot);
  EXPECT_EQ(CodesIn(link.reasons()), (std::set<std::string>{reasons::kOsTooOld}))
      << link.DebugString();
}

// ---- self-assigned addresses

v1::LinkSnapshot SelfAssignedMesh() {
  v1::LinkSnapshot snapshot = Macs(3, {{0, 1}, {1, 2}, {0, 2}});
  int number = 0;
  for (int i = 0; i < 3; ++i) {
    v1::LinkFacts& facts = FactsOf(snapshot, i);
    for (const char* name : {"en2", "en3"}) {
      GiveAddress(name, absl::StrCat("169.254.", ++number, ".7"), 16, facts);
    }
    // One of them holds the route of all.
    facts.clear_routes();
    v1::NetworkRoute& route = *facts.add_routes();
    route.set_destination("169.254");
    route.set_interface_name("en2");
  }
  return snapshot;
}

TEST(ThunderboltLinks, AMeshOfSelfAssignedAddressesIsAllowedWithAWarning) {
  const v1::LinkSnapshot snapshot = SelfAssignedMesh();
  const v1::ClusterLinks links = JudgeLinks(snapshot);
  EXPECT_EQ(links.group().verdict(), "jaccl-mesh") << links.group().DebugString();
  EXPECT_EQ(links.group().rendezvous_ip(), "192.0.2.1") << "on the LAN, never on such an address";
  bool is_warned = false;
  for (const v1::Reason& warning : links.group().warnings()) {
    is_warned = is_warned || (warning.message().find("self-assigned") != std::string::npos &&
                              warning.remedy().find("net plan") != std::string::npos);
  }
  EXPECT_TRUE(is_warned) << links.group().DebugString();
  EXPECT_NE(links.group().ring_over(), "thunderbolt") << "TCP can't tell the cables apart";
}

TEST(ThunderboltLinks, ASelfAssignedAddressBesideAStaticOneDoesNotMatch) {
  v1::LinkSnapshot snapshot = GoodPair();
  GiveAddress("en2", "169.254.3.7", 16, FactsOf(snapshot, 0));
  const v1::LinkVerdict link = TheLink(snapshot);
  EXPECT_EQ(link.rdma_usable(), v1::FACT_NO);
  EXPECT_THAT(CodesIn(link.reasons()), testing::Contains(reasons::kSubnetMismatch));
}

// macOS assigns them, and their GIDs, minutes after a start.
TEST(ThunderboltLinks, AnAddressThatMayStillComeIsWaitedFor) {
  for (const uint64_t age : {40u, 299u, 300u, 90'000u}) {
    for (const bool has_address : {true, false}) {
      v1::LinkSnapshot snapshot = GoodPair();
      v1::LinkFacts& facts = FactsOf(snapshot, 0);
      facts.set_boot_time_unix_seconds(1'795'000'000);
      facts.set_probed_unix_ms((1'795'000'000 + age) * 1000);
      facts.mutable_rdma_devices(0)->clear_gids();
      if (!has_address) {
        for (v1::LinkInterface& one : *facts.mutable_interfaces()) {
          if (one.name() == "en2") one.clear_addresses();
        }
      }
      const v1::LinkVerdict link = TheLink(snapshot);
      ASSERT_GE(link.reasons_size(), 1);
      EXPECT_EQ(link.reasons(0).code(), has_address ? reasons::kNoIpv4Gid : reasons::kNoIpv4);
      EXPECT_EQ(link.reasons(0).remedy().find("wait until") == 0, age < 300) << age;
    }
  }
}

}  // namespace
}  // namespace macrame::transport
