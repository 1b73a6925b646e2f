#pragma once

// Who holds the memory that a deployment needs, and which of the others would have to go for it.
// Pure.

#include <cstdint>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "agentd/cores/gang_reconciler.h"
#include "macrame/v1/plan.pb.h"

namespace macrame::agentd {

// The deployment that may preempt others.
struct PreemptionInput {
  std::string deployment;  // as the desired state calls it; empty: none of those there
  int32_t priority = 0;
  bool may_evict = false;
  std::set<std::string> in_force;  // gangs that hold memory (GangReconciler::InForce)
  uint32_t replicas = 1;           // of it in all
  // Deployments that nobody uses, the least recently used first: they go before any other.
  std::vector<std::string> unused = {};
};

// Takes from the nodes of `request` what the gangs in force hold there by their records and the
// nodes' reports, which come every half second, do not show yet. Where less than that is free, what
// models may take there in all is no more than what they hold and what is free.
void CountPromises(const PreemptionInput& wanted, const ClusterView& state,
                   v1::PlanRequest* request);

// What to say instead of `refused`, the planner's MEMORY_SHORT for `request`. A plan with the
// deployments in `evicted` that have to go first: of `unused` as few of the last used as can be,
// else, with `may_evict`, some of a lower priority. Else the same refusal, and its remedy says
// which deployments' going would make it fit, whatever their priority, and, when some may go, which
// priority it would need. Unchanged when no going of others helps. `state`: deployments and gangs
// in force.
v1::PlanResult Preempt(const v1::PlanRequest& request, const PreemptionInput& wanted,
                       const ClusterView& state, v1::PlanResult refused);

// Nodes of a deployment's other replicas that are in force: one that dies takes one replica with
// it.
std::set<std::string> NodesOfOtherReplicas(const ClusterView& state, const PreemptionInput& wanted);

// Ids of the nodes that no rule for nodes keeps from taking a rank.
std::set<std::string> UsableNodes(const v1::PlanRequest& request);

// Replicas that are asked for of one deployment.
struct ReplicasWanted {
  std::string deployment;
  uint32_t replicas = 1;
  uint32_t ranks = 1;              // of each, as asked for now
  uint32_t ranks_before = 1;       // of each, as the deployment that goes on was asked for
  std::set<std::string> usable;    // nodes that can take a rank when no replica is in the way
  std::set<std::string> in_force;  // gangs that go on, of all deployments
};

// Why they can't all be served, to be told before anything is ended for them; nullopt: they can, as
// far as nodes can be counted.
std::optional<v1::Reason> RefuseReplicas(const ReplicasWanted& wanted, const ClusterView& state);

// Says of the nodes in `holders` what keeps them: another replica, not that they are not alive.
void NameHolders(const std::string& deployment, const std::set<std::string>& holders,
                 v1::PlanResult* result);

// Instead of `result`, the planner's for `request`, a plan that leaves nodes for the replicas that
// are still to come, where one is to be had: with as many ranks as are each one's share of the
// nodes, or fewer. A number of ranks that was asked for stays.
v1::PlanResult PlanForAllReplicas(const v1::PlanRequest& request, const PreemptionInput& wanted,
                                  v1::PlanResult result);

}  // namespace macrame::agentd
