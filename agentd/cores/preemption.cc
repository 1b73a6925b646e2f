#include "agentd/cores/preemption.h"

#include <algorithm>
#include <limits>
#include <map>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "planner/constraints.h"
#include "planner/placement.h"
#include "planner/planner.h"
#include "proto/reasons.h"
#include "proto/replicas.h"

namespace macrame::agentd {

void CountPromises(const PreemptionInput& wanted, const ClusterView& state,
                   v1::PlanRequest* request) {
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
    const uint64_t free = node.memory_available_bytes();
    if (free > 0 && free <= unseen) {
      // More is promised than is free: what goes gives back only what it could have had.
      node.set_memory_usable_bytes(
          std::min(node.memory_usable_bytes(), node.memory_reserved_bytes() + free));
    }
    node.set_memory_reserved_bytes(found->second);
    if (free > 0) node.set_memory_available_bytes(free > unseen ? free - unseen : 1);
  }
}

namespace {

v1::PlanResult WithEvicted(planner::PlacedDeployment placed) {
  placed.plan.mutable_evicted()->Assign(placed.evicted.begin(), placed.evicted.end());
  return std::move(placed.plan);
}

// A plan for which only deployments of `unused` go: of the least recently used ones, as many as are
// needed.
std::optional<v1::PlanResult> PlaceByUnloading(const v1::PlanRequest& request,
                                               std::vector<planner::WantedDeployment> running,
                                               planner::WantedDeployment further,
                                               const std::vector<std::string>& unused) {
  constexpr int32_t kGoes = -1, kWanted = 0, kStays = 1;
  further.priority = kWanted;
  // With the first `count` of them gone; `evicted` empty: it does not fit.
  const auto place = [&](size_t count) {
    const auto end = unused.begin() + static_cast<std::ptrdiff_t>(count);
    for (planner::WantedDeployment& one : running) {
      const bool may_go = std::find(unused.begin(), end, DeploymentOfReplica(one.name)) != end;
      one.priority = may_go ? kGoes : kStays;
    }
    return planner::PlaceByEvicting(request, running, further);
  };
  if (unused.empty()) return std::nullopt;
  planner::PlacedDeployment placed = place(unused.size());
  if (placed.evicted.empty()) return std::nullopt;
  size_t too_few = 0, enough = unused.size();
  while (enough - too_few > 1) {
    const size_t half = too_few + (enough - too_few) / 2;
    planner::PlacedDeployment fewer = place(half);
    if (fewer.evicted.empty()) {
      too_few = half;
    } else {
      enough = half;
      placed = std::move(fewer);
    }
  }
  return WithEvicted(std::move(placed));
}

}  // namespace

v1::PlanResult Preempt(const v1::PlanRequest& request, const PreemptionInput& wanted,
                       const ClusterView& state, v1::PlanResult refused) {
  std::vector<planner::WantedDeployment> running;
  for (const v1::GangRecord& gang : state.gangs) {
    const auto deployment = std::find_if(
        state.deployments.begin(), state.deployments.end(),
        [&](const v1::Deployment& known) { return known.name() == gang.deployment(); });
    const bool is_own =
        DeploymentOfReplica(gang.deployment()) == DeploymentOfReplica(wanted.deployment);
    const bool holds = wanted.in_force.contains(gang.deployment());
    if (deployment == state.deployments.end() || is_own || !holds) continue;
    planner::WantedDeployment one;
    one.name = gang.deployment();
    one.priority = deployment->priority();
    one.in_force = gang.plan();
    running.push_back(std::move(one));
  }
  if (running.empty()) return refused;
  planner::WantedDeployment further;
  further.name = wanted.deployment.empty() ? request.model().name() : wanted.deployment;
  further.model = request.model();
  further.placement = request.placement();
  if (auto placed = PlaceByUnloading(request, running, further, wanted.unused)) {
    return *std::move(placed);
  }
  if (wanted.may_evict) {
    further.priority = wanted.priority;
    planner::PlacedDeployment placed = planner::PlaceByEvicting(request, running, further);
    if (!placed.evicted.empty()) return WithEvicted(std::move(placed));
  }
  // What could be unloaded by hand.
  further.priority = std::numeric_limits<int32_t>::max();
  const std::vector<std::string> names =
      planner::PlaceByEvicting(request, running, std::move(further)).evicted;
  if (names.empty()) return refused;
  planner::AddUnloadRemedy(names, refused.mutable_failure());
  if (!wanted.may_evict) return refused;
  int highest = std::numeric_limits<int>::min();
  for (const planner::WantedDeployment& one : running) {
    const bool goes = std::find(names.begin(), names.end(), one.name) != names.end();
    if (goes) highest = std::max(highest, one.priority);
  }
  absl::StrAppend(refused.mutable_failure()->mutable_remedy(),
                  "; or load it with a --priority above ", highest, ": then it takes ",
                  names.size() == 1 ? "its" : "their", " place");
  return refused;
}

std::set<std::string> NodesOfOtherReplicas(const ClusterView& state,
                                           const PreemptionInput& wanted) {
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

std::set<std::string> UsableNodes(const v1::PlanRequest& request) {
  std::set<std::string> usable;
  const auto constraints = planner::NodeConstraints();
  for (const v1::PlannerNode& node : request.nodes()) {
    const bool refused = std::any_of(
        constraints.begin(), constraints.end(),
        [&](const auto& constraint) { return constraint.refuse(node, request).has_value(); });
    if (!refused) usable.insert(node.node_id());
  }
  return usable;
}

std::optional<v1::Reason> RefuseReplicas(const ReplicasWanted& wanted, const ClusterView& state) {
  const size_t usable = wanted.usable.size();
  const uint64_t needed = uint64_t{wanted.replicas} * wanted.ranks;
  if (wanted.replicas <= 1) return std::nullopt;
  if (needed > usable) {
    const std::string ranks =
        wanted.ranks > 1 ? absl::StrCat(" over ", wanted.ranks, " ranks") : std::string();
    v1::Reason reason = MakeReason(
        reasons::kTooFewNodes, absl::StrCat(wanted.replicas, " replicas", ranks, " need ", needed,
                                            " nodes, ", usable, " can be used"));
    reason.set_remedy(wanted.ranks > 1 ? "ask for fewer replicas or ranks, or add nodes"
                                       : "ask for fewer replicas, or add nodes");
    return reason;
  }
  uint32_t to_come = wanted.replicas;
  std::set<std::string> left = wanted.usable;
  for (uint32_t index = 0; index < wanted.replicas; ++index) {
    const std::string name = ReplicaName(wanted.deployment, index);
    const auto gang = std::find_if(state.gangs.begin(), state.gangs.end(),
                                   [&](const auto& one) { return one.deployment() == name; });
    if (gang == state.gangs.end() || !wanted.in_force.contains(name)) continue;
    --to_come;
    for (const v1::Assignment& part : gang->plan().assignments()) left.erase(part.node_id());
  }
  const uint32_t ranks = std::max(wanted.ranks, wanted.ranks_before);
  if (uint64_t{to_come} * ranks <= left.size()) return std::nullopt;
  const std::string held = left.empty() ? absl::StrCat("all ", usable)
                                        : absl::StrCat(usable - left.size(), " of ", usable);
  const std::string rest = left.empty() ? std::string("none") : absl::StrCat(left.size());
  const std::string width =
      ranks > 1 && !left.empty() ? absl::StrCat(" of ", ranks, " ranks") : std::string();
  const std::string more = absl::StrCat(
      to_come == 1 ? std::string("another replica") : absl::StrCat(to_come, " more replicas"),
      width);
  v1::Reason reason =
      MakeReason(reasons::kTooFewNodes,
                 absl::StrCat("'", wanted.deployment, "' serves from ", held, " nodes, so ", rest,
                              left.size() > 1 ? " are" : " is", " left for ", more));
  reason.set_remedy(absl::StrCat("load it again with '--ranks ", usable / wanted.replicas,
                                 " --replicas ", wanted.replicas, "'"));
  return reason;
}

void NameHolders(const std::string& deployment, const std::set<std::string>& holders,
                 v1::PlanResult* result) {
  size_t others = 0;
  for (v1::Rejection& rejection : *result->mutable_rejections()) {
    v1::Reason& reason = *rejection.mutable_reason();
    if (holders.contains(reason.node_id())) {
      reason.set_code(reasons::kNodeExcluded);
    } else if (reason.code() != reasons::kNodeExcluded && !reason.node_id().empty()) {
      ++others;
    }
  }
  if (result->failure().code() != reasons::kNodeNotAlive || holders.empty()) return;
  const std::string name = DeploymentOfReplica(deployment);
  *result->mutable_failure() =
      MakeReason(reasons::kTooFewNodes,
                 others == 0 ? absl::StrCat("every node that can be used serves '", name,
                                            "' already, and a replica needs nodes of its own")
                             : result->failure().message());
  result->mutable_failure()->set_remedy(
      absl::StrCat("add nodes, or load '", name, "' with fewer ranks or replicas"));
}

v1::PlanResult PlanForAllReplicas(const v1::PlanRequest& request, const PreemptionInput& wanted,
                                  v1::PlanResult result) {
  uint32_t to_come = std::max(1u, wanted.replicas);
  for (const std::string& name : wanted.in_force) {
    const bool is_other = !wanted.deployment.empty() && name != wanted.deployment &&
                          DeploymentOfReplica(name) == DeploymentOfReplica(wanted.deployment);
    if (is_other && to_come > 1) --to_come;
  }
  const auto nodes = static_cast<uint32_t>(UsableNodes(request).size());
  const uint32_t share = std::max(1u, nodes / to_come);
  const bool enough = to_come == 1 || request.placement().world_size() > 0 || !result.has_plan() ||
                      result.plan().world_size() <= share;
  if (enough) return result;
  v1::PlanRequest fewer = request;
  for (uint32_t ranks = share; ranks >= 1; --ranks) {
    fewer.mutable_placement()->set_world_size(ranks);
    v1::PlanResult narrower = planner::PlanModel(fewer);
    if (narrower.has_plan()) return narrower;
  }
  return result;
}

}  // namespace macrame::agentd
