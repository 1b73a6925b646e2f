// Which verbs devices reach each other, on random Linux machines, against what was put there.

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <random>
#include <set>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "transport/links/diagnosis.h"
#include "transport/links/judge.h"

namespace macrame::transport {
namespace {

// One end in a subnet: what its device is worth.
enum class End { kGood, kNoDevice, kDown, kNoGid, kStateUnknown, kGidsUnknown };
// By machine and subnet.
using Machines = std::vector<std::map<int, End>>;

void AddEnd(v1::LinkFacts& facts, int machine, int subnet, End end) {
  v1::LinkInterface& interface = *facts.add_interfaces();
  interface.set_name(absl::StrCat("eth", subnet));
  interface.set_kind(v1::INTERFACE_KIND_ETHERNET);
  interface.set_is_up(v1::FACT_YES);
  interface.set_speed_mbps(1000u * static_cast<uint32_t>(10 * (machine + 1)));
  v1::NodeAddress& address = *interface.add_addresses();
  address.set_ip(absl::StrCat("10.", subnet, ".0.", machine + 1));
  address.set_prefix_length(24);
  if (end == End::kNoDevice) return;
  v1::RdmaDevice& device = *facts.add_rdma_devices();
  device.set_name(absl::StrCat("mlx", machine, "_", subnet));
  device.set_interface_name(interface.name());
  device.set_port_state(end == End::kDown           ? v1::RDMA_PORT_STATE_DOWN
                        : end == End::kStateUnknown ? v1::RDMA_PORT_STATE_UNKNOWN
                                                    : v1::RDMA_PORT_STATE_ACTIVE);
  device.set_gids_known(end != End::kGidsUnknown);
  device.add_gids()->set_gid("fe80::1");
  if (end == End::kNoGid || end == End::kGidsUnknown) return;
  v1::RdmaGid& gid = *device.add_gids();
  gid.set_index(3);
  gid.set_ipv4(address.ip());
}

v1::LinkSnapshot SnapshotOf(const Machines& machines) {
  v1::LinkSnapshot snapshot;
  for (size_t i = 0; i < machines.size(); ++i) {
    v1::NodeLinks& node = *snapshot.add_nodes();
    node.set_node_id(absl::StrCat("box-", i));
    v1::LinkFacts& facts = *node.mutable_facts();
    facts.set_node_id(node.node_id());
    facts.set_hostname(node.node_id());
    facts.set_is_mac(v1::FACT_NO);
    facts.set_rdma_devices_listed(v1::FACT_YES);
    for (const auto& [subnet, end] : machines[i]) {
      AddEnd(facts, static_cast<int>(i), subnet, end);
    }
  }
  return snapshot;
}

Machines RandomMachines(std::mt19937& random) {
  Machines machines(2 + random() % 4);
  for (auto& machine : machines) {
    for (int subnet = 1; subnet <= 3; ++subnet) {
      if (random() % 3 == 0) continue;
      const bool is_good = random() % 2 == 0;
      machine[subnet] = is_good ? End::kGood : static_cast<End>(random() % 6);
    }
  }
  return machines;
}

v1::Fact WorthOf(End a, End b) {
  const auto is = [&](std::initializer_list<End> kinds) {
    return std::find(kinds.begin(), kinds.end(), a) != kinds.end() ||
           std::find(kinds.begin(), kinds.end(), b) != kinds.end();
  };
  if (is({End::kNoDevice, End::kDown, End::kNoGid})) return v1::FACT_NO;
  return is({End::kStateUnknown, End::kGidsUnknown}) ? v1::FACT_UNKNOWN : v1::FACT_YES;
}

// "box-0 box-1 eth2" → what the link is worth.
std::map<std::string, v1::Fact> Expected(const Machines& machines) {
  std::map<std::string, v1::Fact> links;
  for (size_t a = 0; a < machines.size(); ++a) {
    for (size_t b = a + 1; b < machines.size(); ++b) {
      for (const auto& [subnet, end] : machines[a]) {
        const auto other = machines[b].find(subnet);
        if (other == machines[b].end()) continue;
        if (end == End::kNoDevice && other->second == End::kNoDevice) continue;
        links[absl::StrCat("box-", a, " box-", b, " eth", subnet)] = WorthOf(end, other->second);
      }
    }
  }
  return links;
}

TEST(VerbsProperty, EveryPairThatSharesASubnetIsJudgedByItsEnds) {
  for (uint32_t seed = 0; seed < 500; ++seed) {
    SCOPED_TRACE(seed);
    std::mt19937 random(seed);
    const Machines machines = RandomMachines(random);
    const v1::ClusterLinks links = JudgeLinks(SnapshotOf(machines));
    std::map<std::string, v1::Fact> found;
    for (const v1::LinkVerdict& link : links.links()) {
      EXPECT_EQ(link.kind(), v1::LINK_KIND_VERBS);
      EXPECT_EQ(link.reasons().empty(), link.rdma_usable() == v1::FACT_YES);
      EXPECT_EQ(link.lowest_failing_layer().empty(), link.rdma_usable() != v1::FACT_NO);
      for (const v1::Reason& reason : link.reasons()) {
        EXPECT_TRUE(reason.message().find("box-") != std::string::npos ||
                    reason.message().find("mlx") != std::string::npos)
            << "whose it is: " << reason.message();
      }
      EXPECT_TRUE(found
                      .emplace(absl::StrCat(link.a().node_id(), " ", link.b().node_id(), " ",
                                            link.a().interface_name()),
                               link.rdma_usable())
                      .second)
          << "said twice";
      EXPECT_EQ(link.a().interface_name(), link.b().interface_name());
      if (link.rdma_usable() == v1::FACT_YES) {
        EXPECT_EQ(link.a().gid_index(), 3u);
        EXPECT_EQ(link.b().gid_index(), 3u);
      }
    }
    EXPECT_EQ(found, Expected(machines));
  }
}

// Whether some order of the machines has a good link between each and the next, round to the first.
bool HasRing(size_t count, const std::set<std::string>& joined) {
  std::vector<size_t> order;
  for (size_t i = 0; i < count; ++i) order.push_back(i);
  do {
    bool holds = true;
    for (size_t i = 0; i < count && holds; ++i) {
      const auto [low, high] = std::minmax(order[i], order[(i + 1) % count]);
      holds = joined.contains(absl::StrCat("box-", low, " box-", high));
    }
    if (holds) return true;
  } while (std::next_permutation(order.begin() + 1, order.end()));
  return false;
}

TEST(VerbsProperty, TheGroupRunsOverVerbsExactlyWhereGoodLinksMakeAMeshOrARing) {
  int over_verbs = 0;
  for (uint32_t seed = 0; seed < 500; ++seed) {
    SCOPED_TRACE(seed);
    std::mt19937 random(seed);
    Machines machines = RandomMachines(random);
    // A LAN for all of them, to meet at.
    for (auto& machine : machines) machine[9] = End::kNoDevice;
    std::set<std::string> joined;
    for (const auto& [link, worth] : Expected(machines)) {
      if (worth == v1::FACT_YES) joined.insert(link.substr(0, link.rfind(' ')));
    }
    const size_t count = machines.size();
    const bool all = joined.size() == count * (count - 1) / 2;
    const v1::ClusterLinks links = JudgeLinks(SnapshotOf(machines));
    EXPECT_EQ(links.group().verdict() == "verbs", all || HasRing(count, joined))
        << links.group().verdict();
    over_verbs += all;
    if (!all) continue;
    // Device by device both ends of a cell are in one subnet.
    for (int a = 0; a < links.group().device_matrix_size(); ++a) {
      for (int b = 0; b < links.group().device_matrix_size(); ++b) {
        const v1::DeviceCell& there = links.group().device_matrix(a).cells(b);
        const v1::DeviceCell& back = links.group().device_matrix(b).cells(a);
        ASSERT_EQ(there.devices_size(), back.devices_size());
        ASSERT_EQ(there.devices().empty(), a == b);
        for (int k = 0; k < there.devices_size(); ++k) {
          const auto subnet = [](const std::string& device) {
            return device.substr(device.find('_'));
          };
          EXPECT_EQ(subnet(there.devices(k)), subnet(back.devices(k)));
        }
      }
    }
  }
  EXPECT_GT(over_verbs, 20);
}

TEST(VerbsProperty, AMacHasNoVerbsInCommonWithOthers) {
  Machines machines(3, {{1, End::kGood}});
  v1::LinkSnapshot snapshot = SnapshotOf(machines);
  snapshot.mutable_nodes(1)->mutable_facts()->set_is_mac(v1::FACT_YES);
  const v1::ClusterLinks links = JudgeLinks(snapshot);
  for (const v1::LinkVerdict& link : links.links()) {
    EXPECT_NE(link.a().node_id(), "box-1");
    EXPECT_NE(link.b().node_id(), "box-1");
  }
  EXPECT_EQ(links.group().verdict(), "ring-only");
  const std::string said = Diagnose(snapshot, links, {}, {}).conclusion();
  EXPECT_NE(said.find("Macs and other machines have no RDMA in common"), std::string::npos) << said;
}

TEST(VerbsProperty, ADeviceWithoutAnAddressIsSaidOnceAndJoinsNobody) {
  Machines machines(2, {{1, End::kGood}});
  v1::LinkSnapshot snapshot = SnapshotOf(machines);
  snapshot.mutable_nodes(0)->mutable_facts()->mutable_interfaces(0)->clear_addresses();
  const v1::ClusterLinks links = JudgeLinks(snapshot);
  ASSERT_EQ(links.links_size(), 1);
  EXPECT_EQ(links.links(0).a().node_id(), "box-0");
  EXPECT_EQ(links.links(0).b().node_id(), "");
  EXPECT_EQ(links.links(0).rdma_usable(), v1::FACT_NO);
  EXPECT_EQ(links.links(0).lowest_failing_layer(), "address");
  EXPECT_NE(links.links(0).reasons(0).message().find("eth1 of box-0 has no IPv4 address"),
            std::string::npos);
}

TEST(VerbsProperty, TheSlowerInterfaceIsTheLinksSpeed) {
  const v1::ClusterLinks links = JudgeLinks(SnapshotOf(Machines(3, {{1, End::kGood}})));
  ASSERT_EQ(links.links_size(), 3);
  for (const v1::LinkVerdict& link : links.links()) {
    EXPECT_EQ(link.speed_gbps(), link.a().node_id() == "box-0" ? 10u : 20u);
  }
}

}  // namespace
}  // namespace macrame::transport
