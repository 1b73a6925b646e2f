#include "agentd/cores/making_room.h"

#include <algorithm>
#include <limits>
#include <map>
#include <utility>
#include <vector>

#include "planner/placement.h"
#include "planner/planner.h"
#include "proto/replicas.h"

namespace macrame::agentd {

void CountPromises(const RoomWanted& wanted, const ClusterView& state, v1::PlanRequest* request) {
  std::map<std::string, uint64_t> promised;
  for (const v1::GangRecord& gang : state.gangs) {
    if (!wanted.in_force.contains(gang.deployment())) continue;
    for (const v1::Assignment& part : gang.plan().assignments()) {
      promised[part.node_id()] += part.need().total_bytes();
    }
  }
  for (v1::PlannerNode& node : *request->mutable_nodes()) {
    const auto found = promised.find(node.node_id());
    if (found == promised.end() || found->second <= node.memory_reserved_bytes()) continue;
    const uint64_t unseen = found->second - node.memory_reserved_bytes();
    node.set_memory_reserved_bytes(found->second);
    const uint64_t free = node.memory_available_bytes();
    if (free > 0) node.set_memory_available_bytes(free > unseen ? free - unseen : 1);
  }
}

v1::PlanResult MakeRoom(const v1::PlanRequest& request, const RoomWanted& wanted,
                        const ClusterView& state, v1::PlanResult refused) {
  std::vector<planner::DeploymentWish> running;
  for (const v1::GangRecord& gang : state.gangs) {
    const auto deployment = std::find_if(
        state.deployments.begin(), state.deployments.end(),
        [&](const v1::Deployment& known) { return known.name() == gang.deployment(); });
    const bool is_own =
        DeploymentOfReplica(gang.deployment()) == DeploymentOfReplica(wanted.deployment);
    const bool holds = wanted.in_force.contains(gang.deployment());
    if (deployment == state.deployments.end() || is_own || !holds) continue;
    planner::DeploymentWish one;
    one.name = gang.deployment();
    one.priority = deployment->priority();
    one.in_force = gang.plan();
    running.push_back(std::move(one));
  }
  if (running.empty()) return refused;
  planner::DeploymentWish wish;
  wish.name = wanted.deployment.empty() ? request.model().name() : wanted.deployment;
  wish.model = request.model();
  wish.wishes = request.wishes();
  // What could be unloaded by hand, unless what may go by itself is asked for.
  wish.priority = wanted.may_evict ? wanted.priority : std::numeric_limits<int32_t>::max();
  planner::PlacedDeployment placed =
      planner::PlaceByEvicting(request, std::move(running), std::move(wish));
  if (placed.evicted.empty()) return refused;
  if (wanted.may_evict) {
    placed.plan.mutable_evicted()->Assign(placed.evicted.begin(), placed.evicted.end());
    return std::move(placed.plan);
  }
  planner::AddUnloadRemedy(placed.evicted, refused.mutable_failure());
  return refused;
}

std::set<std::string> NodesOfOtherReplicas(const ClusterView& state, const RoomWanted& wanted) {
  std::set<std::string> nodes;
  const std::string& name = wanted.deployment;
  if (name.empty()) return nodes;
  for (const v1::GangRecord& gang : state.gangs) {
    const bool is_other = gang.deployment() != name &&
                          DeploymentOfReplica(gang.deployment()) == DeploymentOfReplica(name) &&
                          wanted.in_force.contains(gang.deployment());
    if (!is_other) continue;
    for (const v1::Assignment& part : gang.plan().assignments()) nodes.insert(part.node_id());
  }
  return nodes;
}

v1::PlanResult LeaveRoom(const v1::PlanRequest& request, const RoomWanted& wanted,
                         v1::PlanResult result) {
  uint32_t to_come = std::max(1u, wanted.replicas);
  for (const std::string& name : wanted.in_force) {
    const bool is_other = !wanted.deployment.empty() && name != wanted.deployment &&
                          DeploymentOfReplica(name) == DeploymentOfReplica(wanted.deployment);
    if (is_other && to_come > 1) --to_come;
  }
  const auto nodes = static_cast<uint32_t>(
      std::count_if(request.nodes().begin(), request.nodes().end(),
                    [](const v1::PlannerNode& node) { return node.schedulable(); }));
  const uint32_t share = std::max(1u, nodes / to_come);
  const bool enough = to_come == 1 || request.wishes().world_size() > 0 || !result.has_plan() ||
                      result.plan().world_size() <= share;
  if (enough) return result;
  v1::PlanRequest fewer = request;
  for (uint32_t ranks = share; ranks >= 1; --ranks) {
    fewer.mutable_wishes()->set_world_size(ranks);
    v1::PlanResult narrower = planner::PlanModel(fewer);
    if (narrower.has_plan()) return narrower;
  }
  return result;
}

}  // namespace macrame::agentd
