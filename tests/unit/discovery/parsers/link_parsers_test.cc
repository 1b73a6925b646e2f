#include "discovery/parsers/link_parsers.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/unit/discovery/fake_cluster.h"

namespace macrame::discovery {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;
using ::testing::Pair;
using ::testing::UnorderedElementsAre;

// One bus of socket 1 with what is plugged into it.
std::string Bus(const std::string& items, const std::string& speed = "80 Gb/s") {
  return R"({"SPThunderboltDataType": [{"domain_uuid_key": "A", "_items": [)" + items +
         R"(], "receptacle_1_tag": {"receptacle_id_key": "1", "current_speed_key": ")" + speed +
         R"(", "receptacle_status_key": "receptacle_connected"}}]})";
}

v1::ThunderboltPort OnlyPort(const std::string& json) {
  const ThunderboltBuses buses = ParseThunderboltBuses(json);
  EXPECT_TRUE(buses.read);
  EXPECT_EQ(buses.ports.size(), 1u);
  return buses.ports.empty() ? v1::ThunderboltPort() : buses.ports[0];
}

TEST(ThunderboltBuses, NoBusesAreAnAnswerAndNoOutputIsNone) {
  EXPECT_TRUE(ParseThunderboltBuses(R"({"SPThunderboltDataType": []})").read);
  EXPECT_FALSE(ParseThunderboltBuses("").read);
  EXPECT_FALSE(ParseThunderboltBuses("{}").read);
  EXPECT_FALSE(ParseThunderboltBuses(R"({"SPThunderboltDataType": [)").read);
  EXPECT_FALSE(ParseThunderboltBuses(R"({"SPThunderboltDataType": "newer"})").read);
}

TEST(ThunderboltBuses, HubsAndDisksAreNoPeers) {
  const v1::ThunderboltPort port = OnlyPort(Bus(
      R"({"_name": "Hub", "mode_key": "usb_four", "_items": [{"_name": "Disk"}]},
         {"_name": "mini", "domain_uuid_key": "B", "services_title": [{"protocol_id_key": 1}]})"));
  ASSERT_EQ(port.peers_size(), 1);
  EXPECT_EQ(port.peers(0).domain_uuid(), "B");
  EXPECT_EQ(port.peers(0).devices_between(), 0u);
  EXPECT_EQ(port.peers(0).advertises_rdma(), v1::FACT_NO);
}

TEST(ThunderboltBuses, PeersBehindTwoDocksCountThem) {
  const v1::ThunderboltPort port = OnlyPort(Bus(
      R"({"_name": "Dock", "_items": [{"_name": "Hub", "_items": [{"domain_uuid_key": "B"}]}]})",
      "40 Gb/s"));
  ASSERT_EQ(port.peers_size(), 1);
  EXPECT_EQ(port.peers(0).devices_between(), 2u);
  EXPECT_EQ(port.peers(0).advertises_rdma(), v1::FACT_UNKNOWN);
}

TEST(ThunderboltBuses, TheProtocolsNumberCountsNotItsName) {
  const auto rdma = [](const std::string& service) {
    return OnlyPort(Bus(R"({"domain_uuid_key": "B", "services_title": [)" + service + "]}"))
        .peers(0)
        .advertises_rdma();
  };
  EXPECT_EQ(rdma(R"({"_name": "x", "protocol_id_key": 64087})"), v1::FACT_YES);
  EXPECT_EQ(rdma(R"({"_name": "x", "protocol_id_key": "64087"})"), v1::FACT_YES);
  EXPECT_EQ(rdma(R"({"_name": "unknown_xd_service", "protocol_id_key": 64088})"), v1::FACT_NO);
  EXPECT_EQ(rdma(R"({"_name": "unknown_xd_service"})"), v1::FACT_UNKNOWN);
}

TEST(ThunderboltBuses, SpeedsOfLinksAndOfControllersAreToldApart) {
  EXPECT_EQ(OnlyPort(Bus("", "Up to 120 Gb/s")).is_thunderbolt5(), v1::FACT_YES);
  EXPECT_EQ(OnlyPort(Bus("", "Up to 40 Gb/s")).is_thunderbolt5(), v1::FACT_NO);
  EXPECT_EQ(OnlyPort(Bus("", "40 Gb/s")).is_thunderbolt5(), v1::FACT_UNKNOWN);
  EXPECT_EQ(OnlyPort(Bus("", "120 Gb/s")).is_asymmetric(), true);
  EXPECT_EQ(OnlyPort(Bus("", "Bis zu 120 Gbit/s")).is_thunderbolt5(), v1::FACT_UNKNOWN);
  EXPECT_EQ(OnlyPort(Bus("", "Up to 99999999999999999999 Gb/s")).is_thunderbolt5(),
            v1::FACT_UNKNOWN);
}

TEST(ThunderboltText, SaysTheSameAsTheJson) {
  const std::string folder = tests::MakeCluster("mesh-3");
  for (const std::string machine : {"oak", "elm", "fir"}) {
    auto runner = ReplayCommandRunner::Open(folder + "/" + machine);
    ASSERT_TRUE(runner.ok());
    const auto json = ParseThunderboltBuses(runner->Run(ThunderboltCommand()).out);
    const auto text = ParseThunderboltText(runner->Run(ThunderboltTextCommand()).out);
    ASSERT_EQ(json.ports.size(), text.ports.size());
    for (size_t i = 0; i < json.ports.size(); ++i) {
      const v1::ThunderboltPort &a = json.ports[i], &b = text.ports[i];
      EXPECT_EQ(a.socket(), b.socket());
      EXPECT_EQ(a.domain_uuid(), b.domain_uuid());
      EXPECT_EQ(a.speed_text(), b.speed_text());
      EXPECT_EQ(a.connected(), b.connected());
      ASSERT_EQ(a.peers_size(), b.peers_size());
      if (a.peers_size() == 0) continue;
      EXPECT_EQ(a.peers(0).domain_uuid(), b.peers(0).domain_uuid());
      EXPECT_EQ(a.peers(0).advertises_rdma(), b.peers(0).advertises_rdma());
    }
  }
}

TEST(ThunderboltSockets, TheDriversBitDecides) {
  const auto sockets = ParseThunderboltSockets(
      "+-o IOThunderboltPort@1  <class IOThunderboltPortType5>\n    {\n"
      "      \"Adapter Type\" = 1\n      \"Socket ID\" = \"2\"\n"
      "      \"Supported Link Speed\" = 14\n      \"Current Link Speed\" = 2\n"
      "      \"Current Link Width\" = 2\n    }\n"
      "+-o IOThunderboltPort@1  <class IOThunderboltPort>\n    {\n"
      "      \"Socket ID\" = \"1\"\n      \"Supported Link Speed\" = 12\n    }\n"
      "+-o IOThunderboltPort@5  <class IOThunderboltPort>\n    {\n"
      "      \"Adapter Type\" = 2\n      \"Socket ID\" = \"3\"\n"
      "      \"Supported Link Speed\" = 14\n    }\n");
  ASSERT_EQ(sockets.size(), 2u);
  EXPECT_EQ(sockets.at(2).is_thunderbolt5, v1::FACT_YES);
  EXPECT_EQ(sockets.at(2).speed_gbps, 80u);
  EXPECT_EQ(sockets.at(1).is_thunderbolt5, v1::FACT_NO);
}

TEST(HardwarePorts, ADeviceMayBeMissingAndTheAddressLinesTrimmed) {
  EXPECT_THAT(ParseHardwarePortNames("Hardware Port: Thunderbolt 1\nDevice: en3\n"
                                     "Hardware Port: VPN\nDevice: \n\nHardware Port: Wi-Fi\n"
                                     "Device: en0\nEthernet Address: N/A\n"),
              UnorderedElementsAre(Pair("en3", "Thunderbolt 1"), Pair("en0", "Wi-Fi")));
}

TEST(ServiceOrder, AStarIsOffAndNamesMayHoldBrackets) {
  const auto services = ParseServiceOrder(
      "An asterisk (*) denotes that a network service is disabled.\n"
      "(1) Desk (left)\n(Hardware Port: USB 10/100/1000 LAN, Device: en10)\n\n"
      "(*) Thunderbolt Bridge\n(Hardware Port: Thunderbolt Bridge, Device: bridge0)\n\n"
      "(2) Tunnel\n(Hardware Port: com.example.tunnel, Device: )\n");
  ASSERT_EQ(services.size(), 3u);
  EXPECT_EQ(services[0].name, "Desk (left)");
  EXPECT_TRUE(services[0].is_enabled);
  EXPECT_EQ(services[1].hardware_port, "Thunderbolt Bridge");
  EXPECT_FALSE(services[1].is_enabled);
  EXPECT_EQ(services[2].device, "");
}

TEST(Ifconfig, FlagsAddressesAndMembersAreRead) {
  const IfconfigAnswer answer = ParseIfconfig(
      "en2: flags=8963<UP,BROADCAST,SMART,RUNNING,PROMISC,SIMPLEX,MULTICAST> mtu 9000\n"
      "\tinet 10.9.0.1 netmask 0xfffffffc broadcast 10.9.0.3\n"
      "\tinet 10.9.1.1 netmask 0xff00ff00\n\tstatus: active\n"
      "en3: flags=8822<BROADCAST,SMART,SIMPLEX,MULTICAST> mtu 1500\n\tstatus: inactive\n"
      "bridge100: flags=8a63<UP,BROADCAST,SMART,RUNNING,ALLMULTI,SIMPLEX,MULTICAST> mtu 1500\n"
      "\tmember: en2 flags=3<LEARNING,DISCOVER>\n\tmember: vmenet0 flags=3<LEARNING,DISCOVER>\n"
      "\tstatus: actif\n");
  ASSERT_EQ(answer.interfaces.size(), 3u);
  const v1::LinkInterface& first = answer.interfaces[0];
  EXPECT_TRUE(first.is_promiscuous());
  EXPECT_EQ(first.mtu(), 9000u);
  ASSERT_EQ(first.addresses_size(), 1) << "a mask with holes is none";
  EXPECT_EQ(first.addresses(0).prefix_length(), 30u);
  EXPECT_EQ(first.bridge(), "bridge100");
  EXPECT_EQ(answer.interfaces[1].is_up(), v1::FACT_NO);
  EXPECT_EQ(answer.interfaces[1].has_carrier(), v1::FACT_NO);
  EXPECT_EQ(answer.interfaces[2].has_carrier(), v1::FACT_UNKNOWN) << "translated";
  ASSERT_EQ(answer.bridges.size(), 1u);
  EXPECT_THAT(answer.bridges[0].members(), ElementsAre("en2", "vmenet0"));
}

TEST(Routes, ScopedOnesDecideNothingAndRejectsAreMarked) {
  const RoutingTable table = ParseRoutes(
      "Routing tables\n\nInternet:\nDestination  Gateway  Flags  Netif Expire\n"
      "default 192.0.2.1 UGScg en0\ndefault link#9 UCSIg bridge0 !\n"
      "10.9/30 link#5 UCS en2 !\n10.8 127.0.0.1 UGSR lo0\n");
  EXPECT_TRUE(table.read);
  ASSERT_EQ(table.routes.size(), 3u);
  EXPECT_EQ(table.routes[0].gateway(), "192.0.2.1");
  EXPECT_EQ(table.routes[1].gateway(), "");
  EXPECT_FALSE(table.routes[1].is_reject()) << "the exclamation mark is an expiry";
  EXPECT_TRUE(table.routes[2].is_reject());
  EXPECT_FALSE(ParseRoutes("netstat: sysctl failed\n").read);
}

TEST(IbvDevices, AnEmptyListIsAnAnswerAndNoHeadingIsNone) {
  const auto none = ParseIbvDevices("    device          node GUID\n    ------   ---------\n");
  ASSERT_TRUE(none);
  EXPECT_THAT(*none, IsEmpty());
  EXPECT_FALSE(ParseIbvDevices(""));
  EXPECT_FALSE(ParseIbvDevices("dyld: symbol not found\n"));
  const auto two = ParseIbvDevices(
      "    device\t node GUID\n    ------\t-----\n    rdma_en4\te2c5797d9c8fac05\n"
      "rdma_en2   e0c5797d9c8fac05\n    rdma_en9 short\n");
  ASSERT_EQ(two->size(), 2u);
  EXPECT_EQ((*two)[0].interface_name(), "en4");
}

TEST(IbvDevinfo, GidsInEveryFormAndPortsInEveryState) {
  const auto devices = ParseIbvDevinfo(
      "hca_id:\trdma_en4\n\ttransport:\t\tThunderbolt (100)\n\t\tport:\t1\n"
      "\t\t\tstate:\t\tPORT_ACTIVE (4)\n\t\t\tgid_tbl_len:\t1024\n\t\t\tactive_width:\t4X (2)\n"
      "\t\t\tGID[  0]:\t\tfe80:0000:0000:0000:0000:0000:0000:0002\n"
      "\t\t\tGID[  1]:\t\t0000:0000:0000:0000:0000:ffff:0a09:0001\n"
      "\t\t\tGID[  2]:\t\t::ffff:10.9.0.5, RoCE v2\n"
      "hca_id:\trdma_en5\n\t\tport:\t1\n\t\t\tstate:\t\tPORT_DOWN (1)\n"
      "hca_id:\trdma_en6\n\t\tport:\t1\n\t\t\tstate:\t\tPORT_NOVEL (9)\n");
  ASSERT_EQ(devices.size(), 3u);
  ASSERT_EQ(devices[0].gids_size(), 3);
  EXPECT_EQ(devices[0].gids(0).ipv4(), "");
  EXPECT_EQ(devices[0].gids(1).ipv4(), "10.9.0.1");
  EXPECT_EQ(devices[0].gids(2).ipv4(), "10.9.0.5");
  EXPECT_EQ(devices[0].active_width(), 4u);
  EXPECT_FALSE(devices[1].gids_known());
  EXPECT_EQ(devices[1].port_state(), v1::RDMA_PORT_STATE_DOWN);
  EXPECT_EQ(devices[2].port_state(), v1::RDMA_PORT_STATE_UNKNOWN);
  EXPECT_THAT(ParseIbvDevinfo("No IB devices found\n"), IsEmpty());
}

TEST(RdmaCtl, OnlyTheExactWordIsAnAnswer) {
  EXPECT_EQ(ParseRdmaCtl("enabled\n"), v1::FACT_YES);
  EXPECT_EQ(ParseRdmaCtl(" disabled \n"), v1::FACT_NO);
  EXPECT_EQ(ParseRdmaCtl("not enabled\n"), v1::FACT_UNKNOWN);
  EXPECT_EQ(ParseRdmaCtl("Enabled\n"), v1::FACT_UNKNOWN);
  EXPECT_EQ(ParseRdmaCtl("enable"), v1::FACT_UNKNOWN);
  EXPECT_EQ(ParseRdmaCtl(""), v1::FACT_UNKNOWN);
}

TEST(Kernel, KextsCountsAndLogLines) {
  EXPECT_EQ(ParseKextLoaded("", "com.apple.iokit.IORDMAFamily"), v1::FACT_UNKNOWN);
  EXPECT_EQ(ParseKextLoaded("Index Refs Address Size Wired Name\n", "com.apple.iokit.IORDMAFamily"),
            v1::FACT_NO);
  EXPECT_THAT(ParseClassCounts("A = 3\nB = none\nC = 0\n"),
              UnorderedElementsAre(Pair("A", 3), Pair("C", 0)));
  EXPECT_FALSE(ParseKernelLog("").read);
  const KernelLog quiet = ParseKernelLog("Timestamp    Ty Process[PID:TID]\n");
  EXPECT_TRUE(quiet.read);
  EXPECT_EQ(quiet.refuses_rdma, v1::FACT_UNKNOWN);
  const KernelLog failed = ParseKernelLog(
      "Timestamp  Ty Process[PID:TID]\n"
      "2026-11-02 09:30:51.119 E kernel[0:4f1] (AppleThunderboltRDMA) Failed INIT->RTR\n"
      "2026-11-02 09:30:51.120 Df kernel[0:4f1] (AppleThunderboltRDMA) port is up\n");
  ASSERT_EQ(failed.lines.size(), 1u);
  EXPECT_EQ(failed.lines[0].code(), "QUEUE_PAIR_FAILED");
}

TEST(Power, SleepIsInMinutesOrNotTold) {
  EXPECT_EQ(ParsePowerSettings(" sleep   1 (sleep prevented by powerd)\n").sleep_minutes, 1u);
  EXPECT_EQ(ParsePowerSettings(" displaysleep 10\n").sleep_minutes, std::nullopt);
  EXPECT_EQ(ParsePowerSettings(" lowpowermode 1\n").low_power_mode, v1::FACT_YES);
  EXPECT_EQ(ParsePowerSettings(" powermode 2\n").low_power_mode, v1::FACT_NO);
}

TEST(Sharing, AListOrNothing) {
  EXPECT_THAT(*ParseSharingDevices("[\"bridge0\", \"en2\", 7]"), ElementsAre("bridge0", "en2"));
  EXPECT_FALSE(ParseSharingDevices("No value at that key path"));
}

}  // namespace
}  // namespace macrame::discovery
