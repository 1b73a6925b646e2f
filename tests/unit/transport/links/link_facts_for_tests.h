#pragma once

// Facts of simulated Macs: everything right, so that each test breaks one thing.

#include <string>

#include "absl/strings/str_cat.h"
#include "macrame/v1/link.pb.h"

namespace macrame::transport {

inline v1::NodeLinks GoodMac(const std::string& id) {
  v1::NodeLinks node;
  node.set_node_id(id);
  v1::LinkFacts& facts = *node.mutable_facts();
  facts.set_node_id(id);
  facts.set_hostname(id);
  facts.set_is_mac(v1::FACT_YES);
  facts.set_os_version("26.4");
  facts.set_os_build("25E100");
  facts.set_hardware_id("board of " + id);
  facts.set_mlx_version("0.32.4");
  facts.set_has_thunderbolt(v1::FACT_YES);
  facts.set_rdma_enabled(v1::FACT_YES);
  facts.set_rdma_devices_listed(v1::FACT_YES);
  facts.set_kernel_refuses_rdma(v1::FACT_NO);
  facts.set_sleep_minutes(0);
  facts.set_protection_domains(0);
  return node;
}

inline void AddLan(v1::NodeLinks& node, const std::string& ip) {
  v1::LinkInterface& lan = *node.mutable_facts()->add_interfaces();
  lan.set_name("en0");
  lan.set_kind(v1::INTERFACE_KIND_ETHERNET);
  lan.set_is_up(v1::FACT_YES);
  v1::NodeAddress& address = *lan.add_addresses();
  address.set_ip(ip);
  address.set_prefix_length(24);
}

// A socket with its interface, device, address and route; its domain is "ID/SOCKET".
inline v1::ThunderboltPort& AddPort(v1::NodeLinks& node, uint32_t socket, const std::string& ip) {
  v1::LinkFacts& facts = *node.mutable_facts();
  const std::string name = absl::StrCat("en", socket + 1);
  v1::LinkInterface& interface = *facts.add_interfaces();
  interface.set_name(name);
  interface.set_kind(v1::INTERFACE_KIND_THUNDERBOLT);
  interface.set_is_up(v1::FACT_YES);
  interface.set_hardware_port(absl::StrCat("Thunderbolt ", socket));
  v1::NodeAddress& address = *interface.add_addresses();
  address.set_ip(ip);
  address.set_prefix_length(30);
  v1::RdmaDevice& device = *facts.add_rdma_devices();
  device.set_name("rdma_" + name);
  device.set_interface_name(name);
  device.set_port_state(v1::RDMA_PORT_STATE_ACTIVE);
  device.set_gids_known(true);
  v1::RdmaGid& gid = *device.add_gids();
  gid.set_index(1);
  gid.set_ipv4(ip);
  v1::NetworkRoute& route = *facts.add_routes();
  const size_t dot = ip.rfind('.');
  const int last = std::stoi(ip.substr(dot + 1));
  route.set_destination(absl::StrCat(ip.substr(0, dot), ".", last / 4 * 4, "/30"));
  route.set_interface_name(name);
  v1::ThunderboltPort& port = *facts.add_ports();
  port.set_socket(socket);
  port.set_domain_uuid(absl::StrCat(node.node_id(), "/", socket));
  port.set_interface_name(name);
  port.set_rdma_device(device.name());
  port.set_connected(v1::FACT_YES);
  port.set_speed_gbps(80);
  port.set_is_thunderbolt5(v1::FACT_YES);
  return port;
}

inline void Cable(v1::NodeLinks& a, uint32_t a_socket, v1::NodeLinks& b, uint32_t b_socket,
                  int number) {
  const std::string base = absl::StrCat("10.77.", number, ".");
  v1::ThunderboltPeer& far = *AddPort(a, a_socket, base + "1").add_peers();
  far.set_domain_uuid(absl::StrCat(b.node_id(), "/", b_socket));
  far.set_device_name(b.node_id());
  far.set_advertises_rdma(v1::FACT_YES);
  v1::ThunderboltPeer& near = *AddPort(b, b_socket, base + "2").add_peers();
  near.set_domain_uuid(absl::StrCat(a.node_id(), "/", a_socket));
  near.set_device_name(a.node_id());
  near.set_advertises_rdma(v1::FACT_YES);
}

inline v1::LinkSnapshot GoodPair() {
  v1::NodeLinks a = GoodMac("mini-a"), b = GoodMac("mini-b");
  Cable(a, 1, b, 2, 5);
  AddLan(a, "192.0.2.1");
  AddLan(b, "192.0.2.2");
  v1::LinkSnapshot snapshot;
  *snapshot.add_nodes() = a;
  *snapshot.add_nodes() = b;
  return snapshot;
}

}  // namespace macrame::transport
