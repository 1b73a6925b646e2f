// From the outputs of whole simulated clusters to what the judge makes of them: the parsers, the
// joining of one machine's facts and the judging of all, in one.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <set>

#include "tests/unit/discovery/fake_cluster.h"
#include "transport/links/diagnosis.h"
#include "transport/links/judge.h"
#include "transport/links/net_plan.h"

namespace macrame::discovery {
namespace {

using ::testing::Contains;
using ::testing::IsEmpty;

struct Judged {
  v1::ClusterLinks links;
  std::set<std::string> link_codes, group_codes, warnings;
};

void Take(const google::protobuf::RepeatedPtrField<v1::Reason>& reasons,
          std::set<std::string>& codes) {
  for (const v1::Reason& reason : reasons) codes.insert(reason.code());
}

v1::LinkSnapshot Snapshot(const std::string& cluster) {
  v1::LinkSnapshot snapshot;
  int number = 0;
  for (auto& [name, facts] : tests::ClusterFacts(cluster)) {
    v1::NodeLinks& node = *snapshot.add_nodes();
    node.set_node_id("000000000000000000000000000000" + std::to_string(10 + number++));
    node.set_revision(1);
    *node.mutable_facts() = facts;
    node.mutable_facts()->set_node_id(node.node_id());
  }
  return snapshot;
}

Judged Judge(const std::string& cluster) {
  Judged judged;
  judged.links = transport::JudgeLinks(Snapshot(cluster));
  for (const v1::LinkVerdict& link : judged.links.links()) {
    if (link.kind() != v1::LINK_KIND_THUNDERBOLT) continue;
    Take(link.reasons(), judged.link_codes);
    Take(link.warnings(), judged.warnings);
  }
  Take(judged.links.group().reasons(), judged.group_codes);
  Take(judged.links.group().warnings(), judged.warnings);
  return judged;
}

TEST(ClusterVerdicts, MeshesRunJacclAndNameOneCableAtBothEnds) {
  for (const std::string cluster :
       {"mesh-2", "mesh-3", "mesh-4", "internet-sharing", "doubled-mesh-3"}) {
    const Judged judged = Judge(cluster);
    EXPECT_EQ(judged.links.group().verdict(), "jaccl-mesh") << cluster;
    EXPECT_THAT(judged.link_codes, IsEmpty()) << cluster;
    const auto& rows = judged.links.group().device_matrix();
    for (int a = 0; a < rows.size(); ++a) {
      for (int b = 0; b < rows.size(); ++b) {
        EXPECT_EQ(rows[a].cells(b).devices_size(), a == b ? 0 : 1) << cluster;
      }
    }
    EXPECT_FALSE(judged.links.group().rendezvous_ip().empty()) << cluster;
  }
  EXPECT_THAT(Judge("internet-sharing").warnings, Contains("INTERNET_SHARING"));
}

TEST(ClusterVerdicts, AMeshThatLacksACableIsARing) {
  const Judged judged = Judge("ring-4");
  EXPECT_EQ(judged.links.group().verdict(), "jaccl-ring");
  EXPECT_THAT(judged.group_codes, Contains("MESH_INCOMPLETE"));
}

TEST(ClusterVerdicts, ARingWithOneDoubledCableUsesOneOfEachPair) {
  const Judged judged = Judge("doubled-ring-4");
  const v1::GroupVerdict& group = judged.links.group();
  EXPECT_EQ(group.verdict(), "jaccl-ring");
  EXPECT_THAT(judged.warnings, Contains("SECOND_CABLE_UNUSED"));
  for (int rank = 0; rank < 4; ++rank) {
    EXPECT_EQ(group.device_matrix(rank).cells((rank + 1) % 4).devices_size(), 1) << rank;
    EXPECT_EQ(group.device_matrix(rank).cells((rank + 3) % 4).devices_size(), 1) << rank;
    EXPECT_EQ(group.ring_addresses(rank).ips_size(), 1) << rank;
  }
}

TEST(ClusterVerdicts, MacsWithFramesOfTwoSizesRunOverTcp) {
  const Judged judged = Judge("mixed-frames");
  EXPECT_EQ(judged.links.group().verdict(), "ring-only");
  EXPECT_THAT(judged.link_codes, IsEmpty()) << "the cable itself is good";
  EXPECT_THAT(judged.group_codes, Contains("OS_FRAME_MISMATCH"));
}

TEST(ClusterVerdicts, MacsWithoutCablesAreToldWhichOnesTheyLack) {
  const v1::LinkSnapshot snapshot = Snapshot("uncabled-3");
  const v1::Diagnosis diagnosis =
      transport::Diagnose(snapshot, transport::JudgeLinks(snapshot), {}, {});
  EXPECT_THAT(diagnosis.conclusion(), ::testing::HasSubstr("Thunderbolt 5 cables between"));
  EXPECT_THAT(diagnosis.conclusion(), ::testing::HasSubstr("would give RDMA"));
  EXPECT_THAT(diagnosis.conclusion(), ::testing::Not(::testing::HasSubstr("nothing is wrong")));
}

TEST(ClusterVerdicts, EveryFaultHasItsOwnCodeAndTheRingServes) {
  const std::pair<const char*, const char*> faults[] = {
      {"dock", "PEER_BEHIND_DOCK"},
      {"slow-cable", "LINK_40G"},
      {"rdma-off-there", "RDMA_DISABLED_LOCAL"},
      {"bridged", "NO_IPV4"},
      {"too-old", "OS_TOO_OLD"},
      {"tb4-pair", "TB4_CONTROLLER"},
      {"tb4-beside-tb5", "TB4_CONTROLLER"},
  };
  for (const auto& [cluster, code] : faults) {
    const Judged judged = Judge(cluster);
    EXPECT_EQ(judged.links.group().verdict(), "ring-only") << cluster;
    EXPECT_THAT(judged.link_codes, Contains(code)) << cluster;
    for (const v1::RankAddresses& addresses : judged.links.group().ring_addresses()) {
      EXPECT_FALSE(addresses.ips().empty()) << cluster;
      for (const std::string& ip : addresses.ips()) {
        EXPECT_NE(ip, "192.168.2.1") << "the address of Internet Sharing's bridge";
        EXPECT_NE(ip, "0.0.0.0");
      }
    }
  }
  EXPECT_EQ(Judge("chain-3").links.group().verdict(), "ring-only") << "over the LAN";
}

// Whatever their language, the same commands serve; the port that has a service keeps it.
TEST(ClusterVerdicts, LocalisedMacsGetAPlanInTheirOwnNames) {
  const Judged judged = Judge("localised");
  EXPECT_EQ(judged.links.group().verdict(), "ring-only");
  EXPECT_THAT(judged.link_codes, Contains("NO_IPV4"));
  EXPECT_THAT(judged.warnings, Contains("BRIDGE_MEMBER"));
  for (const v1::Reason& warning : judged.links.group().warnings()) {
    if (warning.code() != "BRIDGE_MEMBER") continue;
    EXPECT_THAT(warning.remedy(), ::testing::AnyOf(::testing::HasSubstr("Thunderbolt-Bridge"),
                                                   ::testing::HasSubstr("雷雳网桥")));
  }
  const v1::LinkSnapshot snapshot = Snapshot("localised");
  const auto plan = transport::PlanAddresses(snapshot, transport::JudgeLinks(snapshot), "");
  ASSERT_TRUE(plan.ok()) << plan.status();
  std::vector<std::string> commands;
  for (const v1::NetCommand& command : plan->commands()) commands.push_back(command.command());
  EXPECT_THAT(commands,
              ::testing::ElementsAre(
                  "networksetup -setnetworkserviceenabled \"Thunderbolt-Bridge\" off",
                  "networksetup -setmanual \"Kabel zum Schrank\" 10.77.0.1 255.255.255.252",
                  "networksetup -setnetworkserviceenabled \"雷雳网桥\" off",
                  "networksetup -createnetworkservice \"Macrame link en3\" \"雷雳 2\"",
                  "networksetup -setmanual \"Macrame link en3\" 10.77.0.2 255.255.255.252"));
}

// Further networks of the Macs are no way between them, and the ranks meet on the LAN.
TEST(ClusterVerdicts, VpnsAndTelephonesAreNoPlaceToMeet) {
  for (const char* cluster : {"vpn", "tethered", "sleeping", "mixed-builds", "mesh-5"}) {
    const Judged judged = Judge(cluster);
    EXPECT_EQ(judged.links.group().verdict(), "jaccl-mesh") << cluster;
    EXPECT_THAT(judged.link_codes, IsEmpty()) << cluster;
    EXPECT_THAT(judged.links.group().rendezvous_ip(), ::testing::StartsWith("198.18.7."))
        << cluster;
    for (const v1::NodePath& path : judged.links.paths()) {
      EXPECT_EQ(path.kind(), v1::INTERFACE_KIND_THUNDERBOLT) << cluster;
    }
  }
}

TEST(ClusterVerdicts, WhatIsAtARiskIsWarnedOfAndServes) {
  EXPECT_THAT(Judge("sleeping").warnings, ::testing::ElementsAre("MAY_SLEEP"));
  EXPECT_THAT(Judge("mixed-builds").warnings, ::testing::ElementsAre("OS_MISMATCH"));
  EXPECT_THAT(Judge("old-firmware").warnings, ::testing::ElementsAre("FIRMWARE_OLD"));
  EXPECT_THAT(Judge("tethered").warnings, IsEmpty());
  EXPECT_THAT(Judge("vpn").warnings, IsEmpty());
}

TEST(ClusterVerdicts, FiveMacsAreAMeshOfFourDevicesEach) {
  const Judged judged = Judge("mesh-5");
  ASSERT_EQ(judged.links.group().device_matrix_size(), 5);
  for (int rank = 0; rank < 5; ++rank) {
    std::set<std::string> devices;
    for (const v1::DeviceCell& cell : judged.links.group().device_matrix(rank).cells()) {
      devices.insert(cell.devices().begin(), cell.devices().end());
    }
    EXPECT_EQ(devices.size(), 4u) << rank;
  }
  // As agents are set from the start: a mesh of four at the most.
  v1::LinkSnapshot snapshot = Snapshot("mesh-5");
  snapshot.set_mesh_nodes_max(4);
  const v1::GroupVerdict ring = transport::JudgeLinks(snapshot).group();
  EXPECT_EQ(ring.verdict(), "jaccl-ring");
  EXPECT_EQ(ring.reasons(0).code(), "TOO_MANY_PEERS");
}

TEST(ClusterVerdicts, AStarServesOverTheLanAndIsToldItsCables) {
  const Judged judged = Judge("star-4");
  EXPECT_EQ(judged.links.group().verdict(), "ring-only");
  EXPECT_EQ(judged.links.group().graph(), "star");
  EXPECT_EQ(judged.links.group().ring_over(), "ethernet");
  EXPECT_THAT(judged.group_codes, Contains("MESH_INCOMPLETE"));
  for (const v1::Reason& reason : judged.links.group().reasons()) {
    if (reason.code() != "MESH_INCOMPLETE") continue;
    EXPECT_THAT(reason.remedy(), ::testing::HasSubstr("elm - oak"));
    EXPECT_THAT(reason.remedy(), ::testing::Not(::testing::HasSubstr("hub")));
  }
}

// A Mac that lacks the update is told that, and nobody goes to Recovery for it.
TEST(ClusterVerdicts, AMacThatIsTooOldSendsNobodyToRecovery) {
  const Judged judged = Judge("too-old");
  EXPECT_THAT(judged.link_codes, ::testing::ElementsAre("OS_TOO_OLD"));
}

TEST(ClusterVerdicts, ThunderboltFourNeedsNoCableAndNoRecovery) {
  for (const char* cluster : {"tb4-pair", "tb4-beside-tb5"}) {
    const Judged judged = Judge(cluster);
    EXPECT_THAT(judged.link_codes, ::testing::ElementsAre("TB4_CONTROLLER")) << cluster;
  }
}

// What is printed when MLX is started there all the same is a symptom; the controller is the cause.
TEST(ClusterVerdicts, TheDoctorNamesTheControllerAndWhatToCleanUp) {
  const v1::LinkSnapshot snapshot = Snapshot("tb4-beside-tb5");
  const v1::ClusterLinks links = transport::JudgeLinks(snapshot);
  const v1::Diagnosis diagnosis = transport::Diagnose(snapshot, links, {}, {});
  ASSERT_GT(diagnosis.findings_size(), 1);
  const v1::Finding& first = diagnosis.findings(0);
  EXPECT_EQ(first.reason().code(), "TB4_CONTROLLER");
  EXPECT_EQ(diagnosis.lowest_failing_layer(), "controller");
  std::string evidence;
  for (const v1::Evidence& item : first.evidence()) evidence += item.text() + "\n";
  EXPECT_THAT(evidence, ::testing::HasSubstr("does not support Thunderbolt 5, RDMA not supported"));
  std::set<std::string> codes;
  for (const v1::Finding& finding : diagnosis.findings()) codes.insert(finding.reason().code());
  EXPECT_THAT(codes, Contains("INTERNET_SHARING"));
  EXPECT_FALSE(codes.contains("RDMA_DISABLED_LOCAL")) << "nobody is sent to Recovery";
  EXPECT_FALSE(codes.contains("NO_RDMA_DEVICE"));
  EXPECT_GT(diagnosis.retry_triggers_size(), 0);
  EXPECT_GT(diagnosis.ruled_out_size(), 0);
}

}  // namespace
}  // namespace macrame::discovery
