#include "agentd/cores/machine_share.h"

#include <gtest/gtest.h>

namespace macrame::agentd {
namespace {

constexpr uint64_t kGiB = uint64_t{1} << 30;

v1::NodeStatus Node(const std::string& id, const std::string& boot, uint64_t total, uint64_t free) {
  v1::NodeStatus node;
  node.mutable_identity()->set_node_id(id);
  node.set_state(v1::NODE_STATE_ALIVE);
  node.mutable_inventory()->set_boot_digest(boot);
  node.mutable_inventory()->set_memory_total_bytes(total * kGiB);
  node.mutable_inventory()->set_cpu_cores(8);
  node.mutable_inventory()->set_gpu_cores(40);
  node.mutable_load()->set_memory_available_bytes(free * kGiB);
  node.mutable_load()->set_cpu_busy_ratio(0.5);
  node.mutable_load()->set_requests_running(1);
  return node;
}

TEST(MachineShare, ThreeAgentsOfOneMachineHaveItsMemoryOnce) {
  v1::ClusterStatus status;
  *status.add_nodes() = Node("a", "boot-1", 24, 20);
  *status.add_nodes() = Node("b", "boot-1", 24, 19);
  *status.add_nodes() = Node("c", "boot-1", 24, 20);
  *status.add_nodes() = Node("d", "boot-2", 64, 60);
  const v1::AggregateLoad sum = SumLoad(status);
  EXPECT_EQ(sum.nodes_alive(), 4u);
  EXPECT_EQ(sum.memory_total_bytes(), 88 * kGiB);
  EXPECT_EQ(sum.memory_available_bytes(), 79 * kGiB);
  EXPECT_EQ(sum.gpu_cores(), 80u);
  EXPECT_EQ(sum.requests_running(), 4u) << "work is each agent's own";
  EXPECT_DOUBLE_EQ(sum.cpu_busy_ratio(), 0.5);
}

TEST(MachineShare, NodesThatDoNotTellAreMachinesAndTheDeadHaveNothing) {
  v1::ClusterStatus status;
  *status.add_nodes() = Node("a", "", 24, 20);
  *status.add_nodes() = Node("b", "", 24, 20);
  *status.add_nodes() = Node("c", "", 24, 20);
  status.mutable_nodes(2)->set_state(v1::NODE_STATE_DEAD);
  const v1::AggregateLoad sum = SumLoad(status);
  EXPECT_EQ(sum.memory_total_bytes(), 48 * kGiB);
  EXPECT_EQ(sum.nodes_total(), 3u);
}

v1::PlannerNode Planned(const std::string& id, bool schedulable = true) {
  v1::PlannerNode node;
  node.set_node_id(id);
  node.set_schedulable(schedulable);
  node.set_memory_usable_bytes(24 * kGiB);
  node.set_memory_available_bytes(18 * kGiB);
  return node;
}

TEST(MachineShare, PlansOverAllAgentsOfAMachineFitIt) {
  std::vector<v1::PlannerNode> nodes = {Planned("a"), Planned("b"), Planned("c", false),
                                        Planned("d"), Planned("e")};
  nodes[1].set_memory_limit_is_configured(true);
  nodes[1].set_memory_usable_bytes(4 * kGiB);
  ShareMachines({{"a", "1"}, {"b", "1"}, {"c", "1"}, {"d", "2"}, {"e", ""}}, &nodes);
  EXPECT_EQ(nodes[0].memory_usable_bytes(), 12 * kGiB);
  EXPECT_EQ(nodes[0].memory_available_bytes(), 9 * kGiB);
  EXPECT_EQ(nodes[1].memory_usable_bytes(), 4 * kGiB) << "as it was configured";
  EXPECT_EQ(nodes[1].memory_available_bytes(), 9 * kGiB);
  EXPECT_EQ(nodes[3].memory_usable_bytes(), 24 * kGiB);
  EXPECT_EQ(nodes[4].memory_available_bytes(), 18 * kGiB);
}

}  // namespace
}  // namespace macrame::agentd
