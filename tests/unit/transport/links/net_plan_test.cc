#include "transport/links/net_plan.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <tuple>

#include "proto/reasons.h"
#include "tests/unit/transport/links/link_snapshots_for_tests.h"
#include "transport/links/ipv4.h"
#include "transport/links/judge.h"

namespace macrame::transport {
namespace {

using testing::HasSubstr;

// Cables whose interfaces have no address yet.
v1::LinkSnapshot Bare(int count, const std::vector<std::pair<int, int>>& cables) {
  v1::LinkSnapshot snapshot = Macs(count, cables);
  for (int i = 0; i < count; ++i) {
    for (auto& one : *FactsOf(snapshot, i).mutable_interfaces()) {
      if (one.kind() == v1::INTERFACE_KIND_THUNDERBOLT) one.clear_addresses();
    }
    FactsOf(snapshot, i).clear_routes();
  }
  return snapshot;
}

absl::StatusOr<v1::NetPlan> Plan(const v1::LinkSnapshot& snapshot, const std::string& block = "") {
  return PlanAddresses(snapshot, JudgeLinks(snapshot), block);
}

std::vector<std::string> CommandsOf(const v1::NetPlan& plan, const std::string& node) {
  std::vector<std::string> commands;
  for (const v1::NetCommand& command : plan.commands()) {
    if (command.node_id() == node) commands.push_back(command.command());
  }
  return commands;
}

TEST(NetPlan, EachCableGetsASubnetOfItsOwn) {
  const auto plan = Plan(Bare(3, {{0, 1}, {1, 2}, {0, 2}}));
  ASSERT_TRUE(plan.ok()) << plan.status();
  EXPECT_EQ(plan->block(), "10.77.0.0/20");
  std::vector<std::string> ips;
  for (const v1::NetLinkAddress& address : plan->addresses()) {
    ips.push_back(absl::StrCat(address.node_id(), " ", address.ip()));
    EXPECT_EQ(address.prefix_length(), 30u);
  }
  EXPECT_THAT(ips, testing::ElementsAre("mac-0 10.77.0.1", "mac-1 10.77.0.2", "mac-0 10.77.0.5",
                                        "mac-2 10.77.0.6", "mac-1 10.77.0.9", "mac-2 10.77.0.10"));
  // What creates something has a command that undoes it.
  for (const v1::NetCommand& command : plan->commands()) {
    EXPECT_EQ(command.undo().empty(), command.command().find("-setmanual") != std::string::npos)
        << command.command();
    EXPECT_TRUE(command.survives_restart());
    EXPECT_FALSE(command.why().empty());
  }
  EXPECT_EQ(CommandsOf(*plan, "mac-0").size(), 4u);
}

TEST(NetPlan, AddressesThatWorkAreLeftAlone) {
  const auto plan = Plan(GoodPair());
  ASSERT_TRUE(plan.ok()) << plan.status();
  EXPECT_TRUE(plan->commands().empty());
  EXPECT_TRUE(plan->addresses().empty());
}

TEST(NetPlan, TheBridgeIsTurnedOffFirstAndOnce) {
  v1::LinkSnapshot snapshot = Bare(3, {{0, 1}, {0, 2}});
  FactsOf(snapshot, 0).set_bridge_service("Thunderbolt Bridge");
  const auto plan = Plan(snapshot);
  ASSERT_TRUE(plan.ok()) << plan.status();
  const std::vector<std::string> commands = CommandsOf(*plan, "mac-0");
  ASSERT_EQ(commands.size(), 5u);
  EXPECT_EQ(commands[0], "networksetup -setnetworkserviceenabled \"Thunderbolt Bridge\" off");
  EXPECT_EQ(plan->commands(0).undo(),
            "networksetup -setnetworkserviceenabled \"Thunderbolt Bridge\" on");
}

// People name services as they like, also for a shell's own characters: the line is pasted into
// one, or carried out by 'clusterctl net apply'.
TEST(NetPlan, NamesOfServicesAreNeverMoreThanNames) {
  v1::LinkSnapshot snapshot = Bare(2, {{0, 1}});
  FactsOf(snapshot, 0).set_bridge_service("the \"fast\" one $(reboot) `id` \\");
  for (auto& one : *FactsOf(snapshot, 0).mutable_interfaces()) {
    if (one.name() == "en2") one.set_hardware_port("Port\" ; reboot ; \"");
  }
  const auto plan = Plan(snapshot);
  ASSERT_TRUE(plan.ok()) << plan.status();
  const std::vector<std::string> commands = CommandsOf(*plan, "mac-0");
  EXPECT_EQ(commands[0],
            "networksetup -setnetworkserviceenabled "
            "\"the \\\"fast\\\" one \\$(reboot) \\`id\\` \\\\\" off");
  EXPECT_EQ(commands[1],
            "networksetup -createnetworkservice \"Macrame link en2\" "
            "\"Port\\\" ; reboot ; \\\"\"");
}

// As the node's probe tells them: (name, device, enabled).
void GiveServices(const std::vector<std::tuple<std::string, std::string, bool>>& services,
                  v1::LinkFacts& facts) {
  v1::ProbeOutput& output = *facts.add_outputs();
  output.set_command("networksetup -listnetworkserviceorder");
  std::string text = "An asterisk (*) denotes that a network service is disabled.\n";
  int number = 0;
  for (const auto& [name, device, enabled] : services) {
    absl::StrAppend(&text, "(", enabled ? absl::StrCat(++number) : "*", ") ", name,
                    "\n(Hardware Port: whatever, Device: ", device, ")\n\n");
  }
  output.set_text(text);
}

// A second service on a port gives it a second address, and the GID of the first leaves index 1.
TEST(NetPlan, AServiceThatAPortHasIsTakenInsteadOfASecondOne) {
  v1::LinkSnapshot snapshot = Bare(2, {{0, 1}});
  GiveServices({{"Ethernet", "en0", true}, {"Kabel (alt)", "en2", true}, {"VPN", "", true}},
               FactsOf(snapshot, 0));
  const auto plan = Plan(snapshot);
  ASSERT_TRUE(plan.ok()) << plan.status();
  EXPECT_THAT(
      CommandsOf(*plan, "mac-0"),
      testing::ElementsAre("networksetup -setmanual \"Kabel (alt)\" 10.77.0.1 255.255.255.252"));
  EXPECT_EQ(plan->commands(0).undo(), "networksetup -setdhcp \"Kabel (alt)\"");
  EXPECT_THAT(CommandsOf(*plan, "mac-1"),
              testing::ElementsAre(
                  "networksetup -createnetworkservice \"Macrame link en2\" \"Thunderbolt 1\"",
                  "networksetup -setmanual \"Macrame link en2\" 10.77.0.2 255.255.255.252"));
}

TEST(NetPlan, AServiceThatIsOffIsTurnedOnAndOneTooManyOff) {
  v1::LinkSnapshot snapshot = Bare(2, {{0, 1}});
  GiveServices({{"Thunderbolt 1", "en2", false}}, FactsOf(snapshot, 0));
  GiveServices(
      {{"Thunderbolt 1", "en2", true}, {"Macrame link en2", "en2", true}, {"old", "en2", false}},
      FactsOf(snapshot, 1));
  const auto plan = Plan(snapshot);
  ASSERT_TRUE(plan.ok()) << plan.status();
  EXPECT_THAT(
      CommandsOf(*plan, "mac-0"),
      testing::ElementsAre("networksetup -setnetworkserviceenabled \"Thunderbolt 1\" on",
                           "networksetup -setmanual \"Thunderbolt 1\" 10.77.0.1 255.255.255.252"));
  EXPECT_EQ(plan->commands(0).undo(),
            "networksetup -setnetworkserviceenabled \"Thunderbolt 1\" off");
  EXPECT_THAT(CommandsOf(*plan, "mac-1"),
              testing::ElementsAre(
                  "networksetup -setnetworkserviceenabled \"Thunderbolt 1\" off",
                  "networksetup -setmanual \"Macrame link en2\" 10.77.0.2 255.255.255.252"));
}

// What was set by hand comes back as it was.
TEST(NetPlan, TheAddressThatAServiceHadIsPutBackByUndo) {
  v1::LinkSnapshot snapshot = Bare(2, {{0, 1}});
  GiveServices({{"Cable", "en2", true}}, FactsOf(snapshot, 0));
  GiveAddress("en2", "10.9.8.7", 16, FactsOf(snapshot, 0));
  const auto plan = Plan(snapshot);
  ASSERT_TRUE(plan.ok()) << plan.status();
  ASSERT_EQ(CommandsOf(*plan, "mac-0").size(), 1u);
  EXPECT_EQ(plan->commands(0).undo(), "networksetup -setmanual \"Cable\" 10.9.8.7 255.255.0.0");
}

TEST(NetPlan, ABlockThatIsNoneOrTooSmallIsRefused) {
  const v1::LinkSnapshot snapshot = Bare(3, {{0, 1}, {1, 2}, {0, 2}});
  for (const char* block :
       {"nonsense", "10.77.0.0", "10.77.0.0/", "10.77.0.0/x", "10.77.0.0/33", "10.77.0.0/31",
        "10.0.0.0/7", "0.0.0.0/0", "fd00::/64", "300.1.1.0/24", "10.77.0.0/-1",
        // Of these no machine may have an address.
        "224.0.0.0/20", "239.1.0.0/16", "240.0.0.0/20", "255.255.255.0/24", "127.0.0.0/16",
        "169.254.0.0/16", "0.0.0.0/16",
        // Three cables take twelve addresses.
        "10.77.0.0/29"}) {
    const auto plan = Plan(snapshot, block);
    EXPECT_TRUE(absl::IsInvalidArgument(plan.status())) << block << " " << plan.status();
    EXPECT_EQ(ReasonOf(plan.status()).code(), reasons::kBadRequest) << block;
    EXPECT_THAT(ReasonOf(plan.status()).message(), HasSubstr(block));
  }
  const auto fits = Plan(snapshot, "10.77.0.0/28");
  ASSERT_TRUE(fits.ok()) << fits.status();
  EXPECT_EQ(fits->block(), "10.77.0.0/28");
}

TEST(NetPlan, ABlockInUseIsRefusedWithWhoUsesIt) {
  v1::LinkSnapshot snapshot = Bare(2, {{0, 1}});
  const auto taken = Plan(snapshot, "192.0.0.0/16");
  EXPECT_EQ(ReasonOf(taken.status()).code(), reasons::kAddressCollision);
  EXPECT_THAT(ReasonOf(taken.status()).message(), HasSubstr("192.0.2.1 on en0 of mac-0"));
  v1::NetworkRoute& route = *FactsOf(snapshot, 1).add_routes();
  route.set_destination("10.99/16");
  route.set_interface_name("utun3");
  EXPECT_THAT(ReasonOf(Plan(snapshot, "10.99.8.0/24").status()).message(), HasSubstr("a route"));
}

TEST(NetPlan, WhenEveryUsualBlockIsInUseOneIsAskedFor) {
  v1::LinkSnapshot snapshot = Bare(2, {{0, 1}});
  for (const char* used : {"10.77.1/24", "10.177/16", "198.18/15", "172.29.64/24"}) {
    FactsOf(snapshot, 0).add_routes()->set_destination(used);
  }
  const auto plan = Plan(snapshot);
  EXPECT_EQ(ReasonOf(plan.status()).code(), reasons::kAddressCollision);
  EXPECT_THAT(ReasonOf(plan.status()).message(), HasSubstr("name a block with --block"));
  EXPECT_TRUE(Plan(snapshot, "10.200.0.0/20").ok());
}

// A fourth Mac comes to three whose cables have addresses of the same block.
TEST(NetPlan, ABlockIsFilledFurtherWhenMoreCablesCome) {
  v1::LinkSnapshot snapshot = Bare(4, {{0, 1}, {1, 2}, {2, 3}, {0, 3}});
  GiveAddress("en2", "10.77.0.1", 30, FactsOf(snapshot, 0));
  GiveAddress("en2", "10.77.0.2", 30, FactsOf(snapshot, 1));
  GiveAddress("en3", "10.77.0.5", 30, FactsOf(snapshot, 1));
  GiveAddress("en2", "10.77.0.6", 30, FactsOf(snapshot, 2));
  for (const char* block : {"", "10.77.0.0/20", "10.77.0.0/28"}) {
    const auto plan = Plan(snapshot, block);
    ASSERT_TRUE(plan.ok()) << block << " " << plan.status();
    std::vector<std::string> ips;
    for (const v1::NetLinkAddress& address : plan->addresses()) ips.push_back(address.ip());
    EXPECT_THAT(ips, testing::ElementsAre("10.77.0.9", "10.77.0.10", "10.77.0.13", "10.77.0.14"))
        << block;
  }
  const auto full = Plan(snapshot, "10.77.0.0/29");
  EXPECT_EQ(ReasonOf(full.status()).code(), reasons::kAddressCollision);
  EXPECT_THAT(ReasonOf(full.status()).message(), HasSubstr("has no room for 2 links"));
  EXPECT_THAT(ReasonOf(Plan(snapshot, "10.77.0.0/30").status()).message(),
              HasSubstr("too small for 2 links"));
  // Somebody else's within the block still is in the way.
  FactsOf(snapshot, 2).add_routes()->set_destination("10.77.9/24");
  EXPECT_EQ(Plan(snapshot)->block(), "10.177.0.0/20");
  const auto taken = Plan(snapshot, "10.77.0.0/20");
  EXPECT_EQ(ReasonOf(taken.status()).code(), reasons::kAddressCollision);
  EXPECT_THAT(ReasonOf(taken.status()).message(), HasSubstr("in use: a route"));
}

// Two Macs that are switched off come back with the addresses that they had.
TEST(NetPlan, AddressesOfAbsentMacsStayTheirs) {
  v1::LinkSnapshot snapshot = Bare(4, {{0, 1}, {2, 3}});
  GiveAddress("en2", "10.77.0.1", 30, FactsOf(snapshot, 2));
  GiveAddress("en2", "10.77.0.2", 30, FactsOf(snapshot, 3));
  v1::LinkSnapshot absent;
  for (int i = 0; i < 2; ++i) {
    *absent.add_nodes() = snapshot.nodes(2);
    snapshot.mutable_nodes()->DeleteSubrange(2, 1);
  }
  for (const char* block : {"", "10.77.0.0/20"}) {
    const auto plan = PlanAddresses(snapshot, JudgeLinks(snapshot), block, absent);
    ASSERT_TRUE(plan.ok()) << plan.status();
    ASSERT_EQ(plan->addresses_size(), 2);
    EXPECT_EQ(plan->addresses(0).ip(), "10.77.0.5");
    EXPECT_EQ(plan->addresses(1).ip(), "10.77.0.6");
  }
}

// Such a mask was typed by somebody: the cable is told as the block's user.
TEST(NetPlan, ABlockThatOneCableTookWholeIsInUse) {
  v1::LinkSnapshot snapshot = Bare(3, {{0, 1}, {1, 2}});
  GiveAddress("en2", "10.0.0.1", 8, FactsOf(snapshot, 0));
  GiveAddress("en2", "10.0.0.2", 8, FactsOf(snapshot, 1));
  const auto plan = Plan(snapshot, "10.0.0.0/8");
  EXPECT_EQ(ReasonOf(plan.status()).code(), reasons::kAddressCollision);
  EXPECT_THAT(ReasonOf(plan.status()).message(), HasSubstr("10.0.0.1 on en2 of mac-0"));
}

TEST(NetPlan, AFinishedClusterNeedsNoBlock) {
  v1::LinkSnapshot snapshot = GoodPair();
  for (const char* used : {"10.77.1/24", "10.177/16", "198.18/15", "172.29.64/24"}) {
    FactsOf(snapshot, 0).add_routes()->set_destination(used);
  }
  const auto plan = Plan(snapshot);
  ASSERT_TRUE(plan.ok()) << plan.status();
  EXPECT_TRUE(plan->addresses().empty());
  EXPECT_EQ(plan->block(), "");
}

// ---- addresses

TEST(Ipv4, OnlyFourNumbersAreAnAddress) {
  EXPECT_EQ(ParseIpv4("10.0.0.1"), 0x0a000001u);
  EXPECT_EQ(ParseIpv4("255.255.255.255"), 0xffffffffu);
  for (const char* text :
       {"", "10", "10.0.0", "10.0.0.0.1", "10.0.0.256", "10.0.0.-1", "10..0.1", "10.0.0.1 ",
        " 10.0.0.1", "10.0.0.1%en0", "::1", "a.b.c.d", "1.2.3.0004", "10.0.0.1/24"}) {
    EXPECT_FALSE(ParseIpv4(text).has_value()) << text;
  }
  for (const uint32_t address : {0u, 1u, 0x7f000001u, 0xc0a80101u, 0xffffffffu}) {
    EXPECT_EQ(ParseIpv4(Ipv4Text(address)), address);
  }
}

TEST(Ipv4, DestinationsAsRoutingTablesPrintThem) {
  const std::pair<const char*, Ipv4Subnet> good[] = {{"default", {0, 0}},
                                                     {"127", {0x7f000000, 8}},
                                                     {"10.0.1", {0x0a000100, 24}},
                                                     {"10.0.1.0/30", {0x0a000100, 30}},
                                                     {"10.0.1.7/30", {0x0a000104, 30}},
                                                     {"192.168.1.5", {0xc0a80105, 32}},
                                                     {"0.0.0.0/0", {0, 0}},
                                                     {"10/8", {0x0a000000, 8}}};
  for (const auto& [text, subnet] : good) {
    ASSERT_TRUE(ParseDestination(text).has_value()) << text;
    EXPECT_EQ(*ParseDestination(text), subnet) << text;
  }
  for (const char* text : {"", "link#5", "10.0/33", "10.0/", "10.0/x", "fe80::1", "/8"}) {
    EXPECT_FALSE(ParseDestination(text).has_value()) << text;
  }
}

TEST(Ipv4, SubnetsContainAndOverlap) {
  const Ipv4Subnet small = SubnetOf(0x0a000105, 30), large = SubnetOf(0x0a000105, 16);
  EXPECT_TRUE(large.Overlaps(small) && small.Overlaps(large));
  EXPECT_FALSE(small.Overlaps(SubnetOf(0x0a000109, 30)));
  EXPECT_TRUE(SubnetOf(1, 0).Contains(0xffffffff));
  EXPECT_EQ(SubnetOf(0x0a000105, 99).prefix_length, 32u);
  EXPECT_TRUE(IsLoopback(0x7f000001) && IsLinkLocal(0xa9fe0101));
  EXPECT_TRUE(IsNoHost(0) && IsNoHost(0x00000001) && IsNoHost(0xe0000001) && IsNoHost(0xffffffff));
  EXPECT_FALSE(IsNoHost(0x0a000001) || IsNoHost(0xdfffffff));
}

}  // namespace
}  // namespace macrame::transport
