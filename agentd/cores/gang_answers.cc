// What the shell answers to the reconciler's orders. It only changes what the next Reconcile sees.

#include <utility>

#include "agentd/cores/gang_reconciler.h"
#include "proto/reasons.h"

namespace macrame::agentd {

void GangReconciler::OnPlanned(const std::string& deployment, const v1::PlanResult& result,
                               MonotonicTime) {
  const auto it = gangs_.find(deployment);
  if (it == gangs_.end() || it->second.stage != Stage::kPlanning) return;
  it->second.planned = result;
}

void GangReconciler::OnGangWritten(const std::string& deployment, uint64_t epoch,
                                   const absl::Status& status, MonotonicTime now) {
  const auto it = gangs_.find(deployment);
  if (it == gangs_.end() || it->second.stage != Stage::kWriting ||
      it->second.record.epoch() != epoch) {
    return;
  }
  // A refusal is left to the limit: the record may still have reached some, so its epoch is spent.
  if (!status.ok()) return;
  it->second.launch_due = true;
  Enter(it->second, Stage::kLaunching, now);
}

void GangReconciler::OnLaunched(const std::string& deployment, uint64_t epoch,
                                const absl::Status& status, MonotonicTime now) {
  const auto it = gangs_.find(deployment);
  if (it == gangs_.end() || it->second.stage != Stage::kLaunching ||
      it->second.record.epoch() != epoch) {
    return;
  }
  Gang& gang = it->second;
  if (status.ok()) {
    gang.lowest_phase_since = now;
    return Enter(gang, Stage::kStarting, now);
  }
  gang.failure = ReasonOf(status);
  NoteOwnFailure(gang.failure, now);
  LeaveOutRestored(gang, now);
  ++gang.failures;
  gang.retry_at = now + Backoff(gang.failures);
  std::erase_if(endings_, [&](const auto& item) { return item.first.second == deployment; });
  Enter(gang, Stage::kEnding, now);
}

void GangReconciler::OnEnded(const StopRanks& order, const absl::Status& status) {
  const auto it = endings_.find({order.node, order.deployment});
  if (it == endings_.end() || !status.ok()) return;
  const Ending& ending = it->second;
  if (ending.up_to_epoch > order.up_to_epoch || ending.from_epoch < order.from_epoch) return;
  it->second.answered = true;
}

}  // namespace macrame::agentd
