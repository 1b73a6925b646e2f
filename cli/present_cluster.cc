#include "cli/present_cluster.h"

#include <map>
#include <string>

#include "absl/strings/str_cat.h"

namespace macrame::cli {
namespace {

constexpr size_t kIdDigits = 8;

// By node id: hostnames, told apart where two are the same.
std::map<std::string, std::string> NamesOf(const v1::ClusterStatus& status) {
  std::map<std::string, int> used;
  for (const v1::NodeStatus& node : status.nodes()) ++used[node.identity().hostname()];
  std::map<std::string, std::string> names;
  for (const v1::NodeStatus& node : status.nodes()) {
    const std::string &id = node.identity().node_id(), &host = node.identity().hostname();
    names[id] = used[host] > 1 ? absl::StrCat(host, " (", id.substr(0, kIdDigits), ")") : host;
  }
  return names;
}

void AddSockets(const v1::LinkFacts& facts, v1::PresentMachine* machine) {
  for (const v1::ThunderboltPort& port : facts.ports()) {
    if (port.socket() == 0 || port.is_thunderbolt5() == v1::FACT_NO) continue;
    machine->add_sockets(port.socket());
    if (port.is_next_to_ethernet()) machine->add_sockets_to_avoid(port.socket());
  }
}

}  // namespace

void AddPresentCluster(const v1::ClusterStatus& status, const v1::LinksView& links,
                       v1::TopologyQuestion* question) {
  const std::map<std::string, std::string> names = NamesOf(status);
  for (const v1::NodeStatus& node : status.nodes()) {
    if (node.state() == v1::NODE_STATE_DEAD || node.state() == v1::NODE_STATE_LEFT) continue;
    const v1::Inventory& inventory = node.inventory();
    v1::PresentMachine& machine = *question->add_machines();
    machine.set_name(names.at(node.identity().node_id()));
    machine.set_machine_model(inventory.machine_model());
    machine.set_chip(inventory.chip());
    machine.set_gpu_cores(inventory.gpu_cores());
    machine.set_cpu_cores(inventory.cpu_cores());
    machine.set_memory_total_bytes(inventory.memory_total_bytes());
    const uint64_t own_limit = inventory.memory_models_max_bytes();
    const uint64_t usable = inventory.memory_gpu_usable_bytes();
    machine.set_memory_usable_bytes(own_limit > 0 && (usable == 0 || own_limit < usable) ? own_limit
                                                                                         : usable);
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
