// What is said of a deployment to people, and how it is read from the desired state.

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "agentd/cores/gang_reconciler.h"
#include "agentd/cores/state_keys.h"
#include "proto/replicas.h"

namespace macrame::agentd {
std::string DeploymentKey(const std::string& name) { return absl::StrCat(kDeploymentPrefix, name); }
std::string GangKey(const std::string& name) { return absl::StrCat(kGangPrefix, name); }

void FillFromState(const DesiredState& state, ClusterView& view) {
  view.deployments.clear();
  view.gangs.clear();
  view.removed_epochs.clear();
  for (const auto& [name, wanted] : state.deployments()) {
    v1::Deployment deployment = wanted;
    const uint32_t replicas = std::clamp(deployment.replicas(), 1u, kReplicasMax);
    for (uint32_t index = 0; index < replicas; ++index) {
      deployment.set_name(ReplicaName(name, index));
      view.deployments.push_back(deployment);
    }
  }
  for (const auto& [replica, record] : state.gangs()) view.gangs.push_back(record);
  for (const auto& [replica, epoch] : state.removed_epochs()) view.removed_epochs[replica] = epoch;
}

v1::DeploymentStatus DeriveStatus(const v1::Deployment& deployment, const v1::GangRecord* record,
                                  const std::vector<v1::RankStatus>& ranks) {
  v1::DeploymentStatus status;
  *status.mutable_deployment() = deployment;
  status.set_state(v1::DEPLOYMENT_STATE_PENDING);
  if (record == nullptr) return status;
  status.set_epoch(record->epoch());
  *status.mutable_plan() = record->plan();
  if (record->has_last_failure() && !record->last_failure().code().empty()) {
    *status.mutable_failure() = record->last_failure();
  }
  *status.mutable_fallbacks() = record->fallbacks();
  status.set_attempts(record->attempts());
  status.set_entry_node_id(record->entry_node_id());
  bool ready = !record->plan().assignments().empty();
  for (const v1::Assignment& assignment : record->plan().assignments()) {
    const auto rank = std::find_if(ranks.begin(), ranks.end(), [&](const v1::RankStatus& known) {
      return known.deployment() == deployment.name() && known.epoch() == record->epoch() &&
             known.rank() == assignment.rank() && known.node_id() == assignment.node_id();
    });
    ready &= rank != ranks.end() && rank->phase() == v1::RANK_PHASE_READY;
    if (rank == ranks.end()) continue;
    *status.add_ranks() = *rank;
    status.set_tokens_per_second(status.tokens_per_second() + rank->tokens_per_second());
  }
  status.set_state(ready ? v1::DEPLOYMENT_STATE_READY : v1::DEPLOYMENT_STATE_LAUNCHING);
  const v1::Reason degraded = DegradedBy(deployment, record->plan());
  if (ready && !degraded.code().empty()) *status.mutable_degraded() = degraded;
  return status;
}

v1::DeploymentState GangReconciler::StateOf(const Gang& gang) {
  if (gang.removing) return v1::DEPLOYMENT_STATE_REMOVING;
  if (gang.is_moving) return v1::DEPLOYMENT_STATE_READY;
  switch (gang.stage) {
    case Stage::kPending:
    case Stage::kPlanning:
      return v1::DEPLOYMENT_STATE_PENDING;
    case Stage::kWriting:
    case Stage::kLaunching:
    case Stage::kStarting:
      return v1::DEPLOYMENT_STATE_LAUNCHING;
    case Stage::kReady:
      return v1::DEPLOYMENT_STATE_READY;
    case Stage::kEnding:
    case Stage::kBackingOff:
      return v1::DEPLOYMENT_STATE_BACKING_OFF;
  }
  return v1::DEPLOYMENT_STATE_UNSPECIFIED;
}

// One Notify a change of state or epoch.
void GangReconciler::Tell(GangEffects& effects, const std::string& name, Gang& gang) const {
  const v1::DeploymentState state = StateOf(gang);
  if (state == gang.told && gang.record.epoch() == gang.told_epoch) return;
  gang.told = state;
  gang.told_epoch = gang.record.epoch();
  Notify notify{name, state, gang.record.epoch(), {}};
  if (state == v1::DEPLOYMENT_STATE_BACKING_OFF) notify.reason = gang.failure;
  effects.emplace_back(std::move(notify));
}

std::optional<v1::DeploymentStatus> GangReconciler::Status(const std::string& deployment,
                                                           const ClusterView& view,
                                                           MonotonicTime now) const {
  const auto wanted =
      std::find_if(view.deployments.begin(), view.deployments.end(),
                   [&](const v1::Deployment& known) { return known.name() == deployment; });
  const auto known = gangs_.find(deployment);
  if (wanted == view.deployments.end() && known == gangs_.end()) return std::nullopt;
  const auto record = std::find_if(
      view.gangs.begin(), view.gangs.end(),
      [&](const v1::GangRecord& candidate) { return candidate.deployment() == deployment; });
  v1::Deployment named;
  named.set_name(deployment);
  v1::DeploymentStatus status =
      DeriveStatus(wanted == view.deployments.end() ? named : *wanted,
                   record == view.gangs.end() ? nullptr : &*record, view.ranks);
  if (known == gangs_.end()) return status;
  const Gang& gang = known->second;
  status.set_state(StateOf(gang));
  status.set_attempts(gang.failures);
  status.clear_failure();
  if (!gang.failure.code().empty()) *status.mutable_failure() = gang.failure;
  status.clear_degraded();
  if (wanted != view.deployments.end() && IsServing(gang)) {
    v1::Reason degraded = DegradedOf(*wanted, gang, view);
    if (!degraded.code().empty()) *status.mutable_degraded() = std::move(degraded);
  }
  const bool pending = StateOf(gang) == v1::DEPLOYMENT_STATE_PENDING;
  if (pending && !gang.refused.code().empty()) *status.mutable_failure() = gang.refused;
  const bool waits = gang.stage == Stage::kEnding || gang.stage == Stage::kBackingOff;
  if (waits && !gang.removing && !GivesUp(gang) && gang.retry_at > now) {
    status.set_retry_in_ms(static_cast<uint32_t>(
        std::chrono::duration_cast<std::chrono::milliseconds>(gang.retry_at - now).count()));
  }
  return status;
}

std::vector<v1::DeploymentStatus> GangReconciler::Statuses(const ClusterView& view,
                                                           MonotonicTime now) const {
  std::vector<v1::DeploymentStatus> statuses;
  for (const v1::Deployment& deployment : view.deployments) {
    statuses.push_back(*Status(deployment.name(), view, now));
  }
  for (const auto& [name, gang] : gangs_) {
    if (gang.removing) statuses.push_back(*Status(name, view, now));
  }
  return statuses;
}

}  // namespace macrame::agentd
