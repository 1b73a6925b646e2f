#include "agentd/cores/making_room.h"

#include <algorithm>
#include <limits>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "planner/placement.h"
#include "proto/bytes.h"

namespace macrame::agentd {

v1::PlanResult MakeRoom(const v1::PlanRequest& request, const RoomWanted& wanted,
                        const ClusterView& state, v1::PlanResult refused) {
  planner::PlacementRequest placement;
  placement.cluster = request;
  placement.may_evict = true;
  // What could be unloaded by hand, unless what may go by itself is asked for.
  const int32_t priority = wanted.may_evict ? wanted.priority : std::numeric_limits<int32_t>::max();
  for (const v1::GangRecord& gang : state.gangs) {
    const auto deployment = std::find_if(
        state.deployments.begin(), state.deployments.end(),
        [&](const v1::Deployment& known) { return known.name() == gang.deployment(); });
    const bool is_own =
        DeploymentOfReplica(gang.deployment()) == DeploymentOfReplica(wanted.deployment);
    if (deployment == state.deployments.end() || is_own) continue;
    planner::DeploymentWish running;
    running.name = gang.deployment();
    running.priority = deployment->priority();
    running.in_force = gang.plan();
    placement.deployments.push_back(std::move(running));
    // The nodes as if it did not run.
    for (const auto& [node_id, bytes] : planner::BytesByNode(gang.plan())) {
      for (v1::PlannerNode& node : *placement.cluster.mutable_nodes()) {
        if (node.node_id() != node_id) continue;
        node.set_memory_reserved_bytes(
            (Bytes(node.memory_reserved_bytes()) - Bytes(bytes)).count());
        if (node.memory_available_bytes() > 0) {
          node.set_memory_available_bytes(node.memory_available_bytes() + bytes);
        }
      }
    }
  }
  if (placement.deployments.empty()) return refused;
  planner::DeploymentWish wish;
  wish.name = wanted.deployment.empty() ? request.model().name() : wanted.deployment;
  wish.model = request.model();
  wish.wishes = request.wishes();
  wish.priority = priority;
  placement.deployments.push_back(std::move(wish));
  planner::PlacementResult placed = planner::PlaceAll(placement);
  planner::PlacedDeployment& own = placed.deployments.back();
  if (!own.plan.has_plan() || own.evicted.empty()) return refused;
  if (wanted.may_evict) {
    own.plan.mutable_evicted()->Assign(own.evicted.begin(), own.evicted.end());
    return std::move(own.plan);
  }
  std::string& remedy = *refused.mutable_failure()->mutable_remedy();
  absl::StrAppend(&remedy, remedy.empty() ? "" : "; ", "or unload ",
                  absl::StrJoin(own.evicted, ", "), ": then it fits");
  return refused;
}

std::set<std::string> NodesOfOtherReplicas(const ClusterView& state, const std::string& name) {
  std::set<std::string> nodes;
  if (name.empty()) return nodes;
  for (const v1::GangRecord& gang : state.gangs) {
    const bool is_other = gang.deployment() != name &&
                          DeploymentOfReplica(gang.deployment()) == DeploymentOfReplica(name);
    if (!is_other) continue;
    for (const v1::Assignment& part : gang.plan().assignments()) nodes.insert(part.node_id());
  }
  return nodes;
}

}  // namespace macrame::agentd
