#include "agentd/cores/load_decision.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "agentd/cores/preemption.h"
#include "proto/reasons.h"

namespace macrame::agentd {
namespace {

// Who asks for nothing in particular is content with how it is served already.
bool IsServed(const PlannedLoad& load) {
  if (load.present == nullptr) return false;
  const std::string placement = load.request.placement().SerializeAsString();
  return load.present->model_fingerprint() == load.model.fingerprint() &&
         (placement.empty() || load.present->placement().SerializeAsString() == placement);
}

bool AsksForNothingElse(const v1::LoadModelRequest& request, const v1::Deployment& present) {
  return (request.replicas() == 0 || request.replicas() == std::max(1u, present.replicas())) &&
         (!request.has_priority() || request.priority() == present.priority()) &&
         (!request.has_may_evict() || request.may_evict() == present.may_evict());
}

absl::Status NoPlan(const v1::PlanResult& result) {
  v1::Reason reason = result.failure();
  for (const v1::Rejection& rejection : result.rejections()) {
    absl::StrAppend(reason.mutable_evidence(), reason.evidence().empty() ? "" : "\n",
                    rejection.subject(), ": ", rejection.reason().message());
  }
  return ReasonStatus(absl::StatusCode::kFailedPrecondition, reason);
}

// What speaks against the number of replicas, before anything is changed. `goes_on`: the deployment
// that is served as it is; null: it is launched anew.
absl::Status CheckReplicas(const PlannedLoad& load, const v1::Deployment* goes_on,
                           const ClusterView& state) {
  // Fewer, or as many as are wanted already, need nothing more.
  if (goes_on != nullptr && load.request.replicas() <= std::max(1u, goes_on->replicas())) {
    return absl::OkStatus();
  }
  ReplicasWanted wanted;
  wanted.deployment = load.name;
  wanted.replicas = load.request.replicas();
  wanted.ranks = std::max(1u, load.request.placement().world_size());
  wanted.usable = load.usable;
  if (goes_on != nullptr) {
    wanted.ranks_before = std::max(1u, goes_on->placement().world_size());
    wanted.in_force = load.in_force;
  } else if (load.result.has_plan() && load.result.evicted().empty()) {
    // No narrower one was found that leaves nodes for the other replicas.
    wanted.ranks = std::max(1u, load.result.plan().world_size());
  }
  const auto refusal = RefuseReplicas(wanted, state);
  if (!refusal.has_value()) return absl::OkStatus();
  return ReasonStatus(absl::StatusCode::kFailedPrecondition, *refusal);
}

}  // namespace

std::string DeploymentNameOf(const v1::LoadModelRequest& request,
                             const v1::ModelDescription& model) {
  if (!request.deployment_name().empty()) return request.deployment_name();
  return absl::StrReplaceAll(model.name(), {{"#", "-"}});
}

v1::PlacementOptions WithKeptOptions(const v1::PlacementOptions& named,
                                     const v1::Deployment* present) {
  if (present == nullptr || named.ByteSizeLong() == 0) return named;
  v1::PlacementOptions kept = present->placement();
  // Nodes that are named go before those that were, and before a number of ranks that they lack.
  if (named.node_ids_size() > 0) {
    kept.clear_node_ids();
    kept.clear_excluded_node_ids();
    const bool has_too_few = kept.world_size() > static_cast<uint32_t>(named.node_ids_size());
    if (has_too_few) kept.clear_world_size();
  }
  if (named.excluded_node_ids_size() > 0) kept.clear_excluded_node_ids();
  kept.MergeFrom(named);
  return kept;
}

LoadDecision DecideLoad(const PlannedLoad& load, const ClusterView& state) {
  const v1::LoadModelRequest& request = load.request;
  LoadDecision decision;
  const bool is_served = IsServed(load);
  const bool begins_anew = is_served && load.given_up;
  if (is_served && !begins_anew && AsksForNothingElse(request, *load.present)) return decision;
  if (!is_served && !load.result.has_plan()) {
    decision.refused = NoPlan(load.result);
    return decision;
  }
  decision.refused = CheckReplicas(load, is_served ? load.present : nullptr, state);
  if (!decision.refused.ok()) return decision;
  v1::Deployment& wanted = decision.wanted.emplace();
  if (is_served) {
    wanted = *load.present;
  } else {
    wanted.set_name(load.name);
    wanted.set_model_name(load.model.name());
    wanted.set_model_fingerprint(load.model.fingerprint());
    wanted.set_model_path(load.model_path);
    *wanted.mutable_placement() = request.placement();
  }
  if (!is_served || begins_anew) {
    wanted.set_created_unix_ms(load.now_unix_ms);
    if (load.gang != nullptr) decision.after_epoch = load.gang->epoch();
  }
  // Of one that is served as it is, only these change: what runs of it goes on.
  if (request.replicas() > 0) wanted.set_replicas(request.replicas());
  if (request.has_priority()) wanted.set_priority(request.priority());
  if (request.has_may_evict()) wanted.set_may_evict(request.may_evict());
  return decision;
}

UnusedStep NextStep(const UnusedQuestion& question) {
  const bool needs_memory = question.is_short || question.frees_some;
  if (!question.may_unload || question.is_wanted || !needs_memory) return UnusedStep::kLoad;
  if (!question.is_short) {
    return question.asked_if_ever ? UnusedStep::kAwait : UnusedStep::kUnload;
  }
  if (question.is_being_freed) return UnusedStep::kPlanAgain;
  const bool is_hopeless = question.asked_if_ever || !question.may_wait;
  return is_hopeless ? UnusedStep::kLoad : UnusedStep::kPlanIfEver;
}

}  // namespace macrame::agentd
