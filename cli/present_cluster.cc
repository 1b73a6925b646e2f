#include "cli/present_cluster.h"

#include <algorithm>
#include <map>
#include <string>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "cli/format/message_json.h"

namespace macrame::cli {
namespace {

constexpr size_t kIdDigits = 8;

constexpr double kGib = 1ULL << 30;
constexpr double kGiga = 1e9;
constexpr double kBitsPerByte = 8;

bool IsThere(const v1::NodeStatus& node) {
  return node.state() != v1::NODE_STATE_DEAD && node.state() != v1::NODE_STATE_LEFT;
}

// What models may take of a machine; 0: not known.
uint64_t UsableBytes(const v1::Inventory& inventory) {
  const uint64_t own_limit = inventory.memory_models_max_bytes();
  const uint64_t usable = inventory.memory_gpu_usable_bytes();
  return own_limit > 0 && (usable == 0 || own_limit < usable) ? own_limit : usable;
}

// `share`: agents that run on one machine have its memory together.
Json NodeEntry(const v1::NodeStatus& node, const std::string& name, double share) {
  const v1::Inventory& inventory = node.inventory();
  const auto gib = [share](uint64_t bytes) { return static_cast<double>(bytes) / share / kGib; };
  Json entry;
  entry["name"] = name;
  // A processor without a GPU is in no table of chips.
  const bool is_apple = absl::StartsWith(inventory.chip(), "Apple");
  if (is_apple || inventory.gpu_cores() > 0) entry["chip"] = inventory.chip();
  entry["gpu_cores"] = inventory.gpu_cores();
  entry["cpu_cores"] = std::max(1u, inventory.cpu_cores());
  entry["memory_gib"] = gib(inventory.memory_total_bytes());
  const uint64_t usable = std::min(UsableBytes(inventory), inventory.memory_total_bytes());
  if (usable > 0) entry["usable_gib"] = gib(usable);
  const v1::NodeLoad& load = node.load();
  if (load.memory_available_bytes() > 0) {
    const uint64_t awaited = std::min(load.awaited_bytes(), load.memory_available_bytes());
    entry["free_gib"] = gib(load.memory_available_bytes() - awaited);
  }
  entry["reserved_gib"] = static_cast<double>(load.reserved_bytes()) / kGib;
  if (node.has_cordon() || node.draining()) entry["schedulable"] = false;
  if (!node.marks().tenant().empty()) entry["tenant"] = node.marks().tenant();
  return entry;
}

const char* MediumOf(v1::InterfaceKind kind) {
  switch (kind) {
    case v1::INTERFACE_KIND_THUNDERBOLT:
      return "thunderbolt";
    case v1::INTERFACE_KIND_WIFI:
      return "wifi";
    case v1::INTERFACE_KIND_VPN:
      return "vpn";
    case v1::INTERFACE_KIND_LOOPBACK:
      return "loopback";
    default:
      return "ethernet";
  }
}

void AddSockets(const v1::LinkFacts& facts, v1::PresentMachine* machine) {
  for (const v1::ThunderboltPort& port : facts.ports()) {
    if (port.socket() == 0 || port.is_thunderbolt5() == v1::FACT_NO) continue;
    machine->add_sockets(port.socket());
    if (port.is_next_to_ethernet()) machine->add_sockets_to_avoid(port.socket());
  }
}

// An entry for each pair of nodes that a path was found between.
Json LinkEntries(const v1::ClusterLinks& links, const std::map<std::string, std::string>& names) {
  std::map<std::pair<std::string, std::string>, bool> rdma;
  for (const v1::LinkVerdict& link : links.links()) {
    if (link.rdma_usable() != v1::FACT_YES) continue;
    rdma[std::minmax(link.a().node_id(), link.b().node_id())] = true;
  }
  Json entries = Json::array();
  for (const v1::NodePath& path : links.paths()) {
    const auto a = names.find(path.from_node_id()), b = names.find(path.to_node_id());
    // The way back is the same link.
    if (a == names.end() || b == names.end() || path.from_node_id() >= path.to_node_id()) continue;
    Json entry;
    entry["between"] = {a->second, b->second};
    entry["medium"] = MediumOf(path.kind());
    entry["rdma"] = rdma.contains({path.from_node_id(), path.to_node_id()});
    if (path.round_trip_us() > 0) entry["round_trip_us"] = path.round_trip_us();
    if (path.bandwidth_bytes_per_second() > 0) {
      entry["gbit_s"] = path.bandwidth_bytes_per_second() * kBitsPerByte / kGiga;
    }
    entries.push_back(std::move(entry));
  }
  return entries;
}

}  // namespace

std::map<std::string, std::string> PresentNames(const v1::ClusterStatus& status) {
  std::map<std::string, int> used;
  for (const v1::NodeStatus& node : status.nodes()) ++used[node.identity().hostname()];
  std::map<std::string, std::string> names;
  for (const v1::NodeStatus& node : status.nodes()) {
    const std::string &id = node.identity().node_id(), &host = node.identity().hostname();
    names[id] = used[host] > 1 ? absl::StrCat(host, " (", id.substr(0, kIdDigits), ")") : host;
  }
  return names;
}

std::string PresentClusterFile(const v1::ClusterStatus& status, const v1::LinksView& links) {
  std::map<std::string, std::string> names = PresentNames(status);
  std::map<std::string, int> on_machine;
  for (const v1::NodeStatus& node : status.nodes()) {
    if (IsThere(node)) ++on_machine[node.inventory().boot_digest()];
  }
  Json file;
  file["nodes"] = Json::array();
  for (const v1::NodeStatus& node : status.nodes()) {
    const std::string& id = node.identity().node_id();
    // Of a node that has just joined nothing is known yet.
    if (!IsThere(node) || node.inventory().memory_total_bytes() == 0) {
      names.erase(id);
      continue;
    }
    const std::string& machine = node.inventory().boot_digest();
    const int share = machine.empty() ? 1 : on_machine[machine];
    file["nodes"].push_back(NodeEntry(node, names.at(id), share));
  }
  file["links"] = LinkEntries(links.links(), names);
  return ToJsonText(file);  // YAML too
}

void AddPresentCluster(const v1::ClusterStatus& status, const v1::LinksView& links,
                       v1::TopologyQuestion* question) {
  const std::map<std::string, std::string> names = PresentNames(status);
  for (const v1::NodeStatus& node : status.nodes()) {
    if (!IsThere(node)) continue;
    const v1::Inventory& inventory = node.inventory();
    v1::PresentMachine& machine = *question->add_machines();
    machine.set_name(names.at(node.identity().node_id()));
    machine.set_machine_model(inventory.machine_model());
    machine.set_chip(inventory.chip());
    machine.set_gpu_cores(inventory.gpu_cores());
    machine.set_cpu_cores(inventory.cpu_cores());
    machine.set_memory_total_bytes(inventory.memory_total_bytes());
    machine.set_memory_usable_bytes(UsableBytes(inventory));
    for (const v1::NodeLinks& one : links.nodes()) {
      if (one.node_id() == node.identity().node_id()) AddSockets(one.facts(), &machine);
    }
  }
  for (const v1::LinkVerdict& link : links.links().links()) {
    const auto a = names.find(link.a().node_id()), b = names.find(link.b().node_id());
    if (link.kind() != v1::LINK_KIND_THUNDERBOLT || a == names.end() || b == names.end()) continue;
    v1::PresentCable& cable = *question->add_cables();
    cable.set_a(a->second);
    cable.set_a_socket(link.a().socket());
    cable.set_b(b->second);
    cable.set_b_socket(link.b().socket());
    cable.set_rdma(link.rdma_usable() == v1::FACT_YES);
    if (!link.reasons().empty()) cable.set_why_not(link.reasons(0).message());
  }
}

}  // namespace macrame::cli
