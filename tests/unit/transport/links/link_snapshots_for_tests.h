#pragma once

// Whole snapshots: Macs joined by cables of a list of pairs, with a LAN or without.

#include <cstdint>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "tests/unit/transport/links/link_facts_for_tests.h"
#include "transport/links/ipv4.h"

namespace macrame::transport {

// mac-0, mac-1, …; `cables` are pairs of their numbers.
inline v1::LinkSnapshot Macs(int count, const std::vector<std::pair<int, int>>& cables,
                             bool has_lan = true) {
  std::vector<v1::NodeLinks> nodes;
  std::vector<uint32_t> sockets(static_cast<size_t>(count), 1);
  for (int i = 0; i < count; ++i) nodes.push_back(GoodMac(absl::StrCat("mac-", i)));
  int number = 0;
  for (const auto& [a, b] : cables) Cable(nodes[a], sockets[a]++, nodes[b], sockets[b]++, ++number);
  v1::LinkSnapshot snapshot;
  for (int i = 0; i < count; ++i) {
    if (has_lan) AddLan(nodes[i], absl::StrCat("192.0.2.", i + 1));
    *snapshot.add_nodes() = nodes[i];
  }
  return snapshot;
}

inline std::set<std::string> CodesIn(const google::protobuf::RepeatedPtrField<v1::Reason>& list) {
  std::set<std::string> codes;
  for (const v1::Reason& reason : list) codes.insert(reason.code());
  return codes;
}

// An interface's only address, with the route and the GID that follow from it.
inline void GiveAddress(const std::string& interface_name, const std::string& ip,
                        uint32_t prefix_length, v1::LinkFacts& facts) {
  for (v1::LinkInterface& interface : *facts.mutable_interfaces()) {
    if (interface.name() != interface_name) continue;
    interface.clear_addresses();
    v1::NodeAddress& address = *interface.add_addresses();
    address.set_ip(ip);
    address.set_prefix_length(prefix_length);
  }
  for (v1::RdmaDevice& device : *facts.mutable_rdma_devices()) {
    if (device.interface_name() != interface_name) continue;
    device.clear_gids();
    v1::RdmaGid& gid = *device.add_gids();
    gid.set_index(1);
    gid.set_ipv4(ip);
  }
  const Ipv4Subnet subnet = SubnetOf(ParseIpv4(ip).value(), prefix_length);
  v1::NetworkRoute& route = *facts.add_routes();
  route.set_destination(absl::StrCat(Ipv4Text(subnet.network), "/", prefix_length));
  route.set_interface_name(interface_name);
}

inline v1::LinkFacts& FactsOf(v1::LinkSnapshot& snapshot, int node) {
  return *snapshot.mutable_nodes(node)->mutable_facts();
}

}  // namespace macrame::transport
