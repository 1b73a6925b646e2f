#pragma once

// Who holds the memory that a deployment needs, and which of the others would have to go for it.
// Pure.

#include <cstdint>
#include <set>
#include <string>

#include "agentd/cores/gang_reconciler.h"
#include "macrame/v1/plan.pb.h"

namespace macrame::agentd {

// For whom room is made.
struct RoomWanted {
  std::string deployment;  // as the desired state calls it; empty: none of those there
  int32_t priority = 0;
  bool may_evict = false;
  std::set<std::string> in_force;  // gangs that hold memory (GangReconciler::InForce)
  uint32_t replicas = 1;           // whole copies of it in all
};

// Takes from the nodes of `request` what the gangs in force hold there by their records and the
// nodes' reports, which come every half second, do not show yet.
void CountPromises(const RoomWanted& wanted, const ClusterView& state, v1::PlanRequest* request);

// What to say instead of `refused`, the planner's MEMORY_SHORT for `request`. `may_evict`: a plan
// with the deployments in `evicted` that have to go first, all of a lower priority. Else the same
// refusal, and its remedy says which deployments' going would make it fit, whatever their priority.
// Unchanged when no going of others helps. `state`: deployments and gangs in force.
v1::PlanResult MakeRoom(const v1::PlanRequest& request, const RoomWanted& wanted,
                        const ClusterView& state, v1::PlanResult refused);

// Nodes of a deployment's other replicas that are in force: one that dies takes one replica with
// it.
std::set<std::string> NodesOfOtherReplicas(const ClusterView& state, const RoomWanted& wanted);

// Instead of `result`, the planner's for `request`, a plan that leaves nodes for the replicas that
// are still to come, where one is to be had: with as many ranks as are each one's share of the
// nodes, or fewer. A wish for ranks stays.
v1::PlanResult LeaveRoom(const v1::PlanRequest& request, const RoomWanted& wanted,
                         v1::PlanResult result);

}  // namespace macrame::agentd
