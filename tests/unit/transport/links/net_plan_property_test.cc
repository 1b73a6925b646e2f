// Plans of addresses for clusters made from seeds: what every plan keeps, and what it comes to once
// it was carried out.

#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <map>
#include <random>
#include <set>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "tests/unit/transport/links/link_snapshots_for_tests.h"
#include "transport/links/ipv4.h"
#include "transport/links/judge.h"
#include "transport/links/net_plan.h"

namespace macrame::transport {
namespace {

// Cables of which some have addresses, in a house with networks of all kinds.
v1::LinkSnapshot RandomHouse(std::mt19937& random) {
  const int count = 2 + static_cast<int>(random() % 4);
  std::vector<std::pair<int, int>> cables;
  for (uint32_t left = 1 + random() % 6; left > 0; --left) {
    const int a = static_cast<int>(random() % static_cast<uint32_t>(count));
    const int b = static_cast<int>(random() % static_cast<uint32_t>(count));
    if (a != b) cables.emplace_back(a, b);
  }
  v1::LinkSnapshot snapshot = Macs(count, cables);
  for (int i = 0; i < count; ++i) {
    v1::LinkFacts& facts = FactsOf(snapshot, i);
    for (v1::LinkInterface& one : *facts.mutable_interfaces()) {
      if (one.kind() == v1::INTERFACE_KIND_THUNDERBOLT && random() % 2 == 0) one.clear_addresses();
    }
    if (random() % 3 == 0) {
      v1::LinkInterface& office = *facts.add_interfaces();
      office.set_name("utun4");
      office.set_kind(v1::INTERFACE_KIND_VPN);
      v1::NodeAddress& address = *office.add_addresses();
      static const std::vector<std::string> kIps = {"10.77.3.9", "10.200.0.1", "172.29.70.1",
                                                    "198.18.9.9", "100.64.0.4"};
      address.set_ip(kIps[random() % kIps.size()]);
      address.set_prefix_length(16 + random() % 17);
    }
    if (random() % 3 == 0) {
      v1::NetworkRoute& route = *facts.add_routes();
      route.set_destination(random() % 2 == 0 ? "10.177.8/22" : "default");
      route.set_interface_name("en0");
      route.set_gateway("192.0.2.254");
    }
    if (random() % 3 == 0) facts.set_bridge_service("Thunderbolt Bridge");
  }
  return snapshot;
}

std::vector<Ipv4Subnet> HeldBy(const v1::LinkSnapshot& snapshot) {
  std::vector<Ipv4Subnet> held;
  for (const v1::NodeLinks& node : snapshot.nodes()) {
    for (const v1::LinkInterface& one : node.facts().interfaces()) {
      for (const v1::NodeAddress& address : one.addresses()) {
        held.push_back(SubnetOf(ParseIpv4(address.ip()).value(), address.prefix_length()));
      }
    }
  }
  return held;
}

// What the system has when somebody has done as the plan says.
void CarryOut(const v1::NetPlan& plan, v1::LinkSnapshot& snapshot) {
  for (const v1::NetLinkAddress& planned : plan.addresses()) {
    for (v1::NodeLinks& node : *snapshot.mutable_nodes()) {
      if (node.node_id() != planned.node_id()) continue;
      GiveAddress(planned.interface_name(), planned.ip(), planned.prefix_length(),
                  *node.mutable_facts());
    }
  }
}

// Two ends in one subnet of their own, with the block's addresses, that nobody has.
void ExpectSound(const v1::NetPlan& plan, const std::vector<Ipv4Subnet>& held) {
  std::map<uint32_t, std::vector<const v1::NetLinkAddress*>> by_subnet;
  std::map<std::string, int> ends_of;
  for (const v1::NetLinkAddress& address : plan.addresses()) ++ends_of[address.link()];
  const bool takes_some = std::any_of(ends_of.begin(), ends_of.end(),
                                      [](const auto& link) { return link.second == 2; });
  ASSERT_EQ(plan.block().empty(), !takes_some);
  for (const v1::NetLinkAddress& address : plan.addresses()) {
    const uint32_t ip = ParseIpv4(address.ip()).value();
    EXPECT_EQ(address.prefix_length(), 30u);
    EXPECT_TRUE(ip % 4 == 1 || ip % 4 == 2) << address.ip() << " is no host's";
    if (ends_of[address.link()] == 1) {  // the other end has its address already
      EXPECT_EQ(std::count(held.begin(), held.end(), SubnetOf(ip, 30)), 1) << address.ip();
      continue;
    }
    EXPECT_TRUE(ParseDestination(plan.block()).value().Contains(ip))
        << address.ip() << " " << plan.block();
    for (const Ipv4Subnet& other : held) {
      EXPECT_FALSE(other.Overlaps(SubnetOf(ip, 30)))
          << address.ip() << " is in " << Ipv4Text(other.network) << "/" << other.prefix_length;
    }
    by_subnet[ip / 4].push_back(&address);
  }
  for (const auto& [subnet, ends] : by_subnet) {
    ASSERT_EQ(ends.size(), 2u);
    EXPECT_EQ(ends[0]->link(), ends[1]->link());
    EXPECT_NE(ends[0]->node_id(), ends[1]->node_id());
    EXPECT_NE(ends[0]->ip(), ends[1]->ip());
  }
}

// Each address is set once, by a service of its own that was made before; each bridge is turned off
// before anything is made on its machine.
void ExpectCommandsInOrder(const v1::NetPlan& plan) {
  std::set<std::string> made, touched, set;
  for (const v1::NetCommand& command : plan.commands()) {
    const std::vector<std::string> parts = absl::StrSplit(command.command(), '"');
    ASSERT_GE(parts.size(), 3u) << command.command();
    const std::string service = absl::StrCat(command.node_id(), "/", parts[1]);
    if (command.command().find("-setnetworkserviceenabled") != std::string::npos) {
      EXPECT_TRUE(touched.insert(command.node_id()).second) << "the bridge comes first, and once";
    } else if (command.command().find("-createnetworkservice") != std::string::npos) {
      EXPECT_TRUE(made.insert(service).second) << command.command();
    } else {
      EXPECT_TRUE(made.contains(service)) << command.command();
      EXPECT_TRUE(set.insert(service).second) << command.command();
    }
    touched.insert(command.node_id());
  }
  EXPECT_EQ(set, made);
  EXPECT_EQ(set.size(), static_cast<size_t>(plan.addresses_size()));
}

// Tries `check` with 500 houses and their plans, and that nothing is left to do behind it.
void ForEachPlan(const std::function<void(const v1::NetPlan& plan, std::mt19937& random,
                                          v1::LinkSnapshot& snapshot)>& check) {
  int planned = 0;
  for (uint32_t seed = 0; seed < 500; ++seed) {
    SCOPED_TRACE(seed);
    std::mt19937 random(seed);
    v1::LinkSnapshot snapshot = RandomHouse(random);
    const auto plan = PlanAddresses(snapshot, JudgeLinks(snapshot), "");
    if (!plan.ok()) continue;
    planned += plan->addresses_size() > 0;
    check(*plan, random, snapshot);
    const auto again = PlanAddresses(snapshot, JudgeLinks(snapshot), "");
    ASSERT_TRUE(again.ok()) << again.status();
    EXPECT_EQ(again->addresses_size(), 0) << again->ShortDebugString();
  }
  EXPECT_GT(planned, 200);
}

TEST(NetPlanProperty, EveryPlanIsSoundAndLeavesNothingToDo) {
  ForEachPlan([](const v1::NetPlan& plan, std::mt19937&, v1::LinkSnapshot& snapshot) {
    ExpectSound(plan, HeldBy(snapshot));
    ExpectCommandsInOrder(plan);
    CarryOut(plan, snapshot);
    const v1::ClusterLinks after = JudgeLinks(snapshot);
    for (const v1::LinkVerdict& link : after.links()) {
      EXPECT_EQ(link.rdma_usable(), v1::FACT_YES) << link.ShortDebugString();
    }
  });
}

// By node and interface.
std::map<std::string, std::string> AddressesOf(const v1::NetPlan& plan) {
  std::map<std::string, std::string> addresses;
  for (const v1::NetLinkAddress& address : plan.addresses()) {
    addresses[absl::StrCat(address.node_id(), " ", address.interface_name())] = address.ip();
  }
  return addresses;
}

// As people do it: each machine's part by itself, of a plan that is asked for there and then.
TEST(NetPlanProperty, OneMachineAfterTheOtherComesToTheSame) {
  ForEachPlan([](const v1::NetPlan& first, std::mt19937& random, v1::LinkSnapshot& snapshot) {
    std::vector<std::string> nodes;
    for (const v1::NodeLinks& node : snapshot.nodes()) nodes.push_back(node.node_id());
    std::shuffle(nodes.begin(), nodes.end(), random);
    v1::NetPlan given;
    for (const std::string& node : nodes) {
      const auto plan = PlanAddresses(snapshot, JudgeLinks(snapshot), "");
      ASSERT_TRUE(plan.ok()) << plan.status();
      v1::NetPlan own;
      for (const v1::NetLinkAddress& address : plan->addresses()) {
        if (address.node_id() == node) *own.add_addresses() = address;
      }
      CarryOut(own, snapshot);
      given.MergeFrom(own);
    }
    EXPECT_EQ(AddressesOf(given), AddressesOf(first));
  });
}

TEST(NetPlanProperty, ABlockOfExactlyTheRightSizeIsEnough) {
  for (int cables = 1; cables <= 4; ++cables) {
    const std::vector<std::pair<int, int>> joined(static_cast<size_t>(cables), {0, 1});
    v1::LinkSnapshot snapshot = Macs(2, joined);
    for (int i = 0; i < 2; ++i) {
      for (v1::LinkInterface& one : *FactsOf(snapshot, i).mutable_interfaces()) {
        if (one.kind() == v1::INTERFACE_KIND_THUNDERBOLT) one.clear_addresses();
      }
      FactsOf(snapshot, i).clear_routes();
    }
    const uint32_t needed = cables == 1 ? 30 : cables == 2 ? 29 : 28;
    const v1::ClusterLinks links = JudgeLinks(snapshot);
    const auto plan = PlanAddresses(snapshot, links, absl::StrCat("10.5.0.0/", needed));
    ASSERT_TRUE(plan.ok()) << plan.status();
    EXPECT_EQ(plan->addresses_size(), 2 * cables);
    ExpectSound(*plan, HeldBy(snapshot));
    if (needed == 30) continue;
    const auto smaller = PlanAddresses(snapshot, links, absl::StrCat("10.5.0.0/", needed + 1));
    EXPECT_EQ(smaller.status().code(), absl::StatusCode::kInvalidArgument);
  }
}

// A length of 0 is one that could not be found out: one such address is not the whole Internet.
TEST(NetPlan, AnAddressWhoseSubnetIsNotKnownTakesOnlyItself) {
  v1::LinkSnapshot snapshot = Macs(2, {{0, 1}});
  for (int i = 0; i < 2; ++i) {
    FactsOf(snapshot, i).mutable_interfaces(0)->clear_addresses();
    FactsOf(snapshot, i).clear_routes();
  }
  v1::LinkInterface& odd = *FactsOf(snapshot, 0).add_interfaces();
  odd.set_name("en9");
  odd.add_addresses()->set_ip("192.168.7.7");
  const auto plan = PlanAddresses(snapshot, JudgeLinks(snapshot), "");
  ASSERT_TRUE(plan.ok()) << plan.status();
  EXPECT_EQ(plan->block(), "10.77.0.0/20");
  const auto taken = PlanAddresses(snapshot, JudgeLinks(snapshot), "192.168.0.0/16");
  EXPECT_EQ(taken.status().code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_NE(std::string(taken.status().message()).find("192.168.7.7 on en9 of mac-0"),
            std::string::npos);
}

TEST(Paths, AddressesWhoseSubnetsAreNotKnownAreNoWayUntilSomethingPassed) {
  v1::LinkSnapshot snapshot = Macs(2, {}, /*has_lan=*/false);
  const char* const kIps[] = {"10.1.0.1", "192.168.9.9"};
  for (int i = 0; i < 2; ++i) {
    AddLan(*snapshot.mutable_nodes(i), kIps[i]);
    FactsOf(snapshot, i).mutable_interfaces(0)->mutable_addresses(0)->set_prefix_length(0);
  }
  EXPECT_EQ(PathBetween(JudgeLinks(snapshot), "mac-0", "mac-1"), nullptr);
  v1::LinkMeasurement& measured = *snapshot.mutable_nodes(0)->add_measurements();
  measured.set_to_node_id("mac-1");
  measured.set_from_ip(kIps[0]);
  measured.set_to_ip(kIps[1]);
  measured.set_bandwidth_bytes_per_second(1e8);
  const v1::ClusterLinks links = JudgeLinks(snapshot);
  ASSERT_NE(PathBetween(links, "mac-0", "mac-1"), nullptr);
  EXPECT_EQ(PathBetween(links, "mac-0", "mac-1")->to_ip(), kIps[1]);
}

}  // namespace
}  // namespace macrame::transport
