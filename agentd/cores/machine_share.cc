#include "agentd/cores/machine_share.h"

#include <algorithm>
#include <set>

namespace macrame::agentd {

v1::AggregateLoad SumLoad(const v1::ClusterStatus& status) {
  struct Machine {
    uint64_t total = 0, available = 0;
    uint32_t gpu_cores = 0, cpu_cores = 0;
    double busy_ratio = 0;
  };
  v1::AggregateLoad sum;
  std::map<std::string, Machine> machines;
  for (const v1::NodeStatus& node : status.nodes()) {
    if (node.state() == v1::NODE_STATE_LEFT) continue;
    sum.set_nodes_total(sum.nodes_total() + 1);
    if (node.state() != v1::NODE_STATE_ALIVE) continue;
    sum.set_nodes_alive(sum.nodes_alive() + 1);
    const v1::Inventory& inventory = node.inventory();
    const v1::NodeLoad& load = node.load();
    const std::string& digest = inventory.boot_digest();
    Machine& machine = machines[digest.empty() ? "node " + node.identity().node_id() : digest];
    const bool is_first = machine.total == 0;
    // Agents of one machine may be in containers with limits of their own.
    machine.total = std::max(machine.total, inventory.memory_total_bytes());
    // Asked at different moments, the smaller figure is the safer one.
    machine.available = is_first ? load.memory_available_bytes()
                                 : std::min(machine.available, load.memory_available_bytes());
    machine.gpu_cores = std::max(machine.gpu_cores, inventory.gpu_cores());
    machine.cpu_cores = std::max(machine.cpu_cores, inventory.cpu_cores());
    machine.busy_ratio = std::max(machine.busy_ratio, load.cpu_busy_ratio());
    sum.set_tokens_per_second(sum.tokens_per_second() + load.tokens_per_second());
    sum.set_requests_running(sum.requests_running() + load.requests_running());
    sum.set_requests_queued(sum.requests_queued() + load.requests_queued());
  }
  double busy_cores = 0;
  uint32_t cores = 0;
  for (const auto& [digest, machine] : machines) {
    sum.set_memory_total_bytes(sum.memory_total_bytes() + machine.total);
    sum.set_memory_available_bytes(sum.memory_available_bytes() + machine.available);
    sum.set_gpu_cores(sum.gpu_cores() + machine.gpu_cores);
    busy_cores += machine.busy_ratio * machine.cpu_cores;
    cores += machine.cpu_cores;
  }
  if (cores > 0) sum.set_cpu_busy_ratio(busy_cores / cores);
  return sum;
}

void ShareMachines(const std::map<std::string, std::string>& machine_of,
                   std::vector<v1::PlannerNode>* nodes) {
  std::map<std::string, uint64_t> agents;  // that a plan could use, by machine
  const auto machine = [&](const v1::PlannerNode& node) {
    const auto found = machine_of.find(node.node_id());
    return found == machine_of.end() ? std::string() : found->second;
  };
  for (const v1::PlannerNode& node : *nodes) {
    if (node.schedulable()) ++agents[machine(node)];
  }
  for (v1::PlannerNode& node : *nodes) {
    const std::string digest = machine(node);
    const auto found = agents.find(digest);
    if (digest.empty() || found == agents.end() || found->second < 2) continue;
    const uint64_t share = found->second;
    if (!node.memory_limit_is_configured()) {
      node.set_memory_usable_bytes(node.memory_usable_bytes() / share);
    }
    const uint64_t free = node.memory_available_bytes();
    // 0 would mean not known.
    if (free > 0) node.set_memory_available_bytes(std::max<uint64_t>(1, free / share));
  }
}

}  // namespace macrame::agentd
