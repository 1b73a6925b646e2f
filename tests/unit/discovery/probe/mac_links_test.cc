#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "tests/unit/discovery/fake_cluster.h"

namespace macrame::discovery {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::UnorderedElementsAre;
using tests::ClusterFacts;

const v1::ThunderboltPort& PortAt(const v1::LinkFacts& facts, uint32_t socket) {
  for (const v1::ThunderboltPort& port : facts.ports()) {
    if (port.socket() == socket) return port;
  }
  ADD_FAILURE() << facts.hostname() << " has no socket " << socket;
  static const v1::ThunderboltPort none;
  return none;
}

std::vector<std::string> DeviceNames(const v1::LinkFacts& facts) {
  std::vector<std::string> names;
  for (const v1::RdmaDevice& device : facts.rdma_devices()) names.push_back(device.name());
  return names;
}

const v1::RdmaDevice& DeviceNamed(const v1::LinkFacts& facts, const std::string& name) {
  for (const v1::RdmaDevice& device : facts.rdma_devices()) {
    if (device.name() == name) return device;
  }
  ADD_FAILURE() << facts.hostname() << " has no device " << name;
  static const v1::RdmaDevice none;
  return none;
}

const v1::LinkInterface& InterfaceNamed(const v1::LinkFacts& facts, const std::string& name) {
  for (const v1::LinkInterface& interface : facts.interfaces()) {
    if (interface.name() == name) return interface;
  }
  ADD_FAILURE() << facts.hostname() << " has no interface " << name;
  static const v1::LinkInterface none;
  return none;
}

// Which (machine, socket) each cabled socket leads to, by domain UUID alone.
std::map<std::string, std::string> Joined(const std::map<std::string, v1::LinkFacts>& cluster) {
  std::map<std::string, std::string> ends;
  for (const auto& [name, facts] : cluster) {
    for (const v1::ThunderboltPort& port : facts.ports()) {
      ends[port.domain_uuid()] = name + " " + std::to_string(port.socket());
    }
  }
  std::map<std::string, std::string> joined;
  for (const auto& [name, facts] : cluster) {
    for (const v1::ThunderboltPort& port : facts.ports()) {
      for (const v1::ThunderboltPeer& peer : port.peers()) {
        joined[name + " " + std::to_string(port.socket())] = ends[peer.domain_uuid()];
      }
    }
  }
  return joined;
}

TEST(MacLinks, APairOnOneCableIsKnownThroughAndThrough) {
  const auto cluster = ClusterFacts("mesh-2");
  ASSERT_EQ(cluster.size(), 2u);
  EXPECT_THAT(Joined(cluster),
              UnorderedElementsAre(std::pair<const std::string, std::string>("oak 2", "elm 1"),
                                   std::pair<const std::string, std::string>("elm 1", "oak 2")));
  const v1::LinkFacts& oak = cluster.at("oak");
  EXPECT_EQ(oak.is_mac(), v1::FACT_YES);
  EXPECT_EQ(oak.is_virtual_machine(), v1::FACT_NO);
  EXPECT_EQ(oak.os_version(), "26.4.1");
  EXPECT_EQ(oak.os_build(), "25E253");
  EXPECT_EQ(oak.machine_model(), "Mac16,11");
  EXPECT_EQ(oak.system_firmware(), "13822.81.10");
  EXPECT_EQ(oak.has_thunderbolt(), v1::FACT_YES);
  EXPECT_EQ(oak.rdma_enabled(), v1::FACT_YES);
  EXPECT_EQ(oak.rdma_devices_listed(), v1::FACT_YES);
  EXPECT_THAT(DeviceNames(oak), UnorderedElementsAre("rdma_en2", "rdma_en3", "rdma_en4"));
  EXPECT_EQ(oak.kernel_refuses_rdma(), v1::FACT_NO);
  EXPECT_EQ(oak.rdma_driver_kext(), v1::FACT_YES);
  EXPECT_EQ(oak.internet_sharing(), v1::FACT_NO);
  EXPECT_EQ(oak.ip_forwarding(), v1::FACT_NO);
  EXPECT_EQ(oak.protection_domains(), 0);
  EXPECT_EQ(oak.sleep_minutes(), 0);
  EXPECT_EQ(oak.bridge_service(), "");
  EXPECT_EQ(oak.hardware_id().size(), 16u);
  EXPECT_THAT(oak.unknown(), IsEmpty());

  const v1::ThunderboltPort& port = PortAt(oak, 2);
  EXPECT_EQ(port.interface_name(), "en3");
  EXPECT_EQ(port.rdma_device(), "rdma_en3");
  EXPECT_EQ(port.speed_gbps(), 80u);
  EXPECT_EQ(port.is_thunderbolt5(), v1::FACT_YES);
  EXPECT_EQ(port.connected(), v1::FACT_YES);
  ASSERT_EQ(port.peers_size(), 1);
  EXPECT_EQ(port.peers(0).advertises_rdma(), v1::FACT_YES);
  EXPECT_EQ(port.peers(0).devices_between(), 0u);
  EXPECT_EQ(PortAt(oak, 1).connected(), v1::FACT_NO);
  EXPECT_EQ(PortAt(oak, 1).speed_gbps(), 0u);

  const v1::RdmaDevice& device = DeviceNamed(oak, "rdma_en3");
  EXPECT_EQ(device.port_state(), v1::RDMA_PORT_STATE_ACTIVE);
  ASSERT_EQ(device.gids_size(), 2);
  EXPECT_EQ(device.gids(1).index(), 1u);
  EXPECT_EQ(device.gids(1).ipv4(), "198.19.0.1");
  EXPECT_EQ(DeviceNamed(oak, "rdma_en2").port_state(), v1::RDMA_PORT_STATE_DOWN);
  const v1::LinkInterface& interface = InterfaceNamed(oak, "en3");
  EXPECT_EQ(interface.socket(), 2u);
  EXPECT_EQ(interface.kind(), v1::INTERFACE_KIND_THUNDERBOLT);
  EXPECT_EQ(interface.has_carrier(), v1::FACT_YES);
}

TEST(MacLinks, EveryCableOfAMeshIsSeenFromBothEnds) {
  EXPECT_EQ(Joined(ClusterFacts("mesh-3")).size(), 6u);
  EXPECT_EQ(Joined(ClusterFacts("mesh-4")).size(), 12u);
  const auto ring = Joined(ClusterFacts("ring-4"));
  EXPECT_EQ(ring.size(), 10u);
  EXPECT_FALSE(ring.contains("east 3"));
  EXPECT_EQ(Joined(ClusterFacts("chain-3")).size(), 4u);
}

TEST(MacLinks, InterfacesAreTakenFromTheHardwarePortsNotFromNumbers) {
  const auto cluster = ClusterFacts("dock");
  const v1::ThunderboltPort& port = PortAt(cluster.at("elm"), 2);
  EXPECT_EQ(port.interface_name(), "en6");
  EXPECT_EQ(port.rdma_device(), "rdma_en6");
  ASSERT_EQ(port.peers_size(), 1);
  EXPECT_EQ(port.peers(0).devices_between(), 1u);
  EXPECT_EQ(port.speed_gbps(), 40u);
}

TEST(MacLinks, ASlowCableSaysNothingAgainstTheController) {
  const auto cluster = ClusterFacts("slow-cable");
  const v1::ThunderboltPort& port = PortAt(cluster.at("oak"), 1);
  EXPECT_EQ(port.speed_gbps(), 40u);
  EXPECT_EQ(port.is_thunderbolt5(), v1::FACT_YES);
  EXPECT_EQ(DeviceNamed(cluster.at("oak"), "rdma_en2").port_state(), v1::RDMA_PORT_STATE_DOWN);
}

TEST(MacLinks, RdmaThatIsOffThereIsSeenFromHere) {
  const auto cluster = ClusterFacts("rdma-off-there");
  EXPECT_EQ(cluster.at("elm").rdma_enabled(), v1::FACT_NO);
  EXPECT_EQ(cluster.at("elm").rdma_devices_listed(), v1::FACT_YES);
  EXPECT_THAT(DeviceNames(cluster.at("elm")), IsEmpty());
  EXPECT_EQ(PortAt(cluster.at("oak"), 1).peers(0).advertises_rdma(), v1::FACT_NO);
  EXPECT_EQ(PortAt(cluster.at("elm"), 1).peers(0).advertises_rdma(), v1::FACT_YES);
}

TEST(MacLinks, AnOldSystemLacksTheCommandWhichIsNoNo) {
  const auto cluster = ClusterFacts("too-old");
  EXPECT_TRUE(cluster.at("oak").rdma_ctl_missing());
  EXPECT_EQ(cluster.at("oak").rdma_enabled(), v1::FACT_UNKNOWN);
  EXPECT_EQ(cluster.at("oak").os_version(), "26.1");
  EXPECT_EQ(cluster.at("oak").rdma_driver_kext(), v1::FACT_NO);
}

TEST(MacLinks, SharingShowsByItsBridge) {
  const auto cluster = ClusterFacts("internet-sharing");
  const v1::LinkFacts& oak = cluster.at("oak");
  EXPECT_EQ(oak.internet_sharing(), v1::FACT_YES);
  EXPECT_THAT(oak.internet_sharing_interfaces(), ElementsAre("en4"));
  EXPECT_EQ(oak.ip_forwarding(), v1::FACT_YES);
  EXPECT_EQ(InterfaceNamed(oak, "en4").bridge(), "bridge100");
  EXPECT_EQ(cluster.at("elm").internet_sharing(), v1::FACT_NO);
}

TEST(MacLinks, MembersOfTheBridgeAndMissingAddressesAreSeen) {
  const auto cluster = ClusterFacts("bridged");
  const v1::LinkFacts& oak = cluster.at("oak");
  EXPECT_EQ(oak.bridge_service(), "Thunderbolt Bridge");
  EXPECT_EQ(InterfaceNamed(oak, "en2").bridge(), "bridge0");
  EXPECT_TRUE(InterfaceNamed(oak, "en2").is_promiscuous());
  EXPECT_THAT(InterfaceNamed(oak, "en2").addresses(), IsEmpty());
  const v1::RdmaDevice& device = DeviceNamed(oak, "rdma_en2");
  EXPECT_TRUE(device.gids_known());
  EXPECT_EQ(device.gids_size(), 1);
  EXPECT_EQ(device.gids(0).ipv4(), "");
}

// Names of ports and services are in the system's language; sockets and BSD names are not.
TEST(MacLinks, AMacOfAnotherLanguageIsReadByItsDevices) {
  const auto cluster = ClusterFacts("localised");
  const v1::LinkFacts& german = cluster.at("eiche");
  EXPECT_EQ(german.bridge_service(), "Thunderbolt-Bridge");
  EXPECT_EQ(InterfaceNamed(german, "en1").kind(), v1::INTERFACE_KIND_WIFI);
  EXPECT_EQ(InterfaceNamed(german, "bridge0").kind(), v1::INTERFACE_KIND_BRIDGE);
  const v1::LinkFacts& chinese = cluster.at("song");
  EXPECT_EQ(chinese.bridge_service(), "雷雳网桥");
  EXPECT_EQ(InterfaceNamed(chinese, "bridge0").kind(), v1::INTERFACE_KIND_BRIDGE);
  EXPECT_EQ(InterfaceNamed(chinese, "en3").kind(), v1::INTERFACE_KIND_THUNDERBOLT);
  EXPECT_EQ(InterfaceNamed(chinese, "en3").socket(), 2u);
  EXPECT_EQ(PortAt(chinese, 2).interface_name(), "en3");
  EXPECT_EQ(PortAt(chinese, 2).rdma_device(), "rdma_en3");
  EXPECT_NE(InterfaceNamed(chinese, "en0").kind(), v1::INTERFACE_KIND_THUNDERBOLT);
}

TEST(MacLinks, ABridgeOfOnesOwnIsNotInternetSharing) {
  auto opened = ReplayCommandRunner::Open(tests::MakeCluster("mesh-2") + "/oak");
  ASSERT_TRUE(opened.ok());
  CommandResult config = opened->answers().at("ifconfig");
  config.out +=
      "bridge1: flags=8863<UP,BROADCAST,SMART,RUNNING,SIMPLEX,MULTICAST> mtu 1500\n"
      "\tmember: en4 flags=3<LEARNING,DISCOVER>\n\tstatus: active\n";
  opened->Set("ifconfig", config);
  LinkInputs inputs;
  inputs.node_id = NodeId("000000000000000000000000000000aa");
  EXPECT_EQ(CollectMacLinks(*opened, inputs).internet_sharing(), v1::FACT_NO);
}

TEST(MacLinks, Thunderbolt4BesideThunderbolt5TellsItsWholeStory) {
  const auto cluster = ClusterFacts("tb4-beside-tb5");
  const v1::LinkFacts& m3 = cluster.at("max3");
  const v1::LinkFacts& m4 = cluster.at("max4");
  EXPECT_EQ(m3.chip(), "Apple M3 Max");
  EXPECT_EQ(m3.rdma_enabled(), v1::FACT_YES);
  EXPECT_EQ(m3.rdma_driver_kext(), v1::FACT_YES);
  EXPECT_EQ(m3.rdma_family_kext(), v1::FACT_YES);
  EXPECT_EQ(m3.rdma_devices_listed(), v1::FACT_YES);
  EXPECT_THAT(DeviceNames(m3), IsEmpty());
  EXPECT_EQ(m3.kernel_refuses_rdma(), v1::FACT_YES);
  ASSERT_EQ(m3.kernel_lines_size(), 2);
  EXPECT_EQ(m3.kernel_lines(0).code(), "RDMA_STARTING");
  EXPECT_EQ(m3.kernel_lines(1).code(), "TB4_CONTROLLER");
  EXPECT_THAT(m3.kernel_lines(1).text(),
              HasSubstr("Thunderbolt controller does not support Thunderbolt 5, RDMA not "
                        "supported"));
  EXPECT_EQ(PortAt(m3, 2).is_thunderbolt5(), v1::FACT_NO);
  EXPECT_THAT(PortAt(m3, 2).controller_evidence(), HasSubstr("\"Supported Link Speed\" = 12"));
  EXPECT_EQ(m3.internet_sharing(), v1::FACT_YES);
  const auto& bridges = m3.bridges();
  EXPECT_TRUE(std::any_of(bridges.begin(), bridges.end(), [](const v1::NetworkBridge& bridge) {
    return bridge.name() == "bridge100" && bridge.members_size() == 1;
  }));
  EXPECT_THAT(DeviceNames(m4), ElementsAre("rdma_en2"));
  EXPECT_EQ(PortAt(m4, 2).rdma_device(), "rdma_en2");
  EXPECT_EQ(PortAt(m4, 2).is_thunderbolt5(), v1::FACT_YES);
  EXPECT_EQ(PortAt(m4, 2).peers(0).advertises_rdma(), v1::FACT_NO);
  EXPECT_EQ(DeviceNamed(m4, "rdma_en2").port_state(), v1::RDMA_PORT_STATE_DOWN);
}

// Whatever one command fails to say, the others' facts stand and nothing becomes a "no".
TEST(MacLinks, ACommandThatHangsLeavesItsFactsUnknown) {
  const std::string folder = tests::MakeCluster("mesh-2");
  auto opened = ReplayCommandRunner::Open(folder + "/oak");
  ASSERT_TRUE(opened.ok());
  LinkInputs inputs;
  inputs.node_id = NodeId("000000000000000000000000000000aa");
  for (const CommandOutcome outcome :
       {CommandOutcome::kTimedOut, CommandOutcome::kNotFound, CommandOutcome::kSignalled}) {
    for (const auto& [command, answer] : opened->answers()) {
      ReplayCommandRunner runner = *opened;
      CommandResult silent;
      silent.outcome = outcome;
      runner.Set(command, silent);
      const v1::LinkFacts facts = CollectMacLinks(runner, inputs);
      EXPECT_NE(facts.is_mac(), v1::FACT_NO) << command;
      EXPECT_NE(facts.has_thunderbolt(), v1::FACT_NO) << command;
      EXPECT_NE(facts.rdma_enabled(), v1::FACT_NO) << command;
      EXPECT_NE(facts.kernel_refuses_rdma(), v1::FACT_YES) << command;
      EXPECT_NE(facts.internet_sharing(), v1::FACT_YES) << command;
      for (const v1::ThunderboltPort& port : facts.ports()) {
        EXPECT_NE(port.is_thunderbolt5(), v1::FACT_NO) << command;
      }
      if (command == "ibv_devices") {
        EXPECT_NE(facts.rdma_devices_listed(), v1::FACT_YES);
      }
    }
  }
}

TEST(MacLinks, AListThatWasCutDoesNotLackWhatItDoesNotName) {
  auto opened = ReplayCommandRunner::Open(tests::MakeCluster("tb4-beside-tb5") + "/max4");
  ASSERT_TRUE(opened.ok());
  LinkInputs inputs;
  inputs.node_id = NodeId("000000000000000000000000000000aa");
  const v1::LinkFacts whole = CollectMacLinks(*opened, inputs);
  for (const auto& [command, answer] : opened->answers()) {
    for (size_t cut = 0; cut < answer.out.size(); cut += 1 + answer.out.size() / 200) {
      if (cut > 0 && answer.out[cut - 1] == '\n') continue;  // as if it were a shorter list
      ReplayCommandRunner runner = *opened;
      CommandResult shorter = answer;
      shorter.out.resize(cut);
      runner.Set(command, shorter);
      const v1::LinkFacts facts = CollectMacLinks(runner, inputs);
      const auto never_no = [&](v1::Fact was, v1::Fact is) {
        if (was == v1::FACT_YES) {
          EXPECT_NE(is, v1::FACT_NO) << command << " cut at " << cut;
        }
      };
      never_no(whole.is_mac(), facts.is_mac());
      never_no(whole.has_thunderbolt(), facts.has_thunderbolt());
      never_no(whole.rdma_enabled(), facts.rdma_enabled());
      never_no(whole.rdma_driver_kext(), facts.rdma_driver_kext());
      never_no(whole.rdma_family_kext(), facts.rdma_family_kext());
      never_no(whole.internet_sharing(), facts.internet_sharing());
      if (facts.rdma_devices_listed() == v1::FACT_YES) {
        EXPECT_EQ(facts.rdma_devices_size(), whole.rdma_devices_size()) << command << " " << cut;
      }
    }
  }
}

TEST(MacLinks, WithoutJsonTheFormForPeopleIsRead) {
  auto runner = ReplayCommandRunner::Open(tests::MakeCluster("mesh-2") + "/oak");
  ASSERT_TRUE(runner.ok());
  LinkInputs inputs;
  inputs.node_id = NodeId("000000000000000000000000000000aa");
  const v1::LinkFacts json = CollectMacLinks(*runner, inputs);
  CommandResult silent;
  silent.outcome = CommandOutcome::kTimedOut;
  runner->Set(CommandLine(ThunderboltCommand()), silent);
  const v1::LinkFacts text = CollectMacLinks(*runner, inputs);
  EXPECT_EQ(text.has_thunderbolt(), v1::FACT_YES);
  EXPECT_EQ(PortAt(text, 2).peers(0).domain_uuid(), PortAt(json, 2).peers(0).domain_uuid());
  EXPECT_EQ(PortAt(text, 2).rdma_device(), PortAt(json, 2).rdma_device());
  ASSERT_EQ(text.unknown_size(), 1);
  EXPECT_EQ(text.unknown(0).code(), "COMMAND_TIMED_OUT");
}

TEST(MacLinks, AFirmwareThatIsNotToldIsUnknownWithItsReason) {
  auto runner = ReplayCommandRunner::Open(tests::MakeCluster("mesh-2") + "/oak");
  ASSERT_TRUE(runner.ok());
  LinkInputs inputs;
  inputs.node_id = NodeId("000000000000000000000000000000aa");
  CommandResult cut = runner->answers().at("system_profiler SPHardwareDataType -json");
  cut.out.resize(cut.out.size() / 2);
  runner->Set("system_profiler SPHardwareDataType -json", cut);
  const v1::LinkFacts facts = CollectMacLinks(*runner, inputs);
  EXPECT_EQ(facts.system_firmware(), "");
  ASSERT_EQ(facts.unknown_size(), 1);
  EXPECT_EQ(facts.unknown(0).code(), "OUTPUT_UNREADABLE");
  EXPECT_THAT(facts.unknown(0).message(),
              HasSubstr("system_firmware: system_profiler SPHardwareDataType -json: "));
}

TEST(MacLinks, OutputsForReportsNameTheirCommandAndAreBounded) {
  const auto cluster = ClusterFacts("mesh-4");
  for (const auto& [name, facts] : cluster) {
    EXPECT_GT(facts.outputs_size(), 10);
    for (const v1::ProbeOutput& output : facts.outputs()) {
      EXPECT_FALSE(output.command().empty());
      EXPECT_LE(output.text().size(), 4096u);
      EXPECT_THAT(output.text(), ::testing::Not(HasSubstr("IOPlatformSerialNumber")));
      EXPECT_THAT(output.text(), ::testing::Not(HasSubstr("serial_number")));
    }
  }
}

TEST(MacLinks, TheSameMachineIsTheSameFactsAndAnotherBoardIsAnotherMachine) {
  const std::string folder = tests::MakeCluster("mesh-2");
  const v1::LinkFacts first = tests::FactsOf(folder, "oak");
  EXPECT_TRUE(SameLinkFacts(first, tests::FactsOf(folder, "oak")));
  EXPECT_NE(first.hardware_id(), tests::FactsOf(folder, "elm").hardware_id());
}

}  // namespace
}  // namespace macrame::discovery
