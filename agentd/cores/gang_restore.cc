// How a gang that came back with fewer ranks than were asked for, because nodes were away, goes
// back to what was asked for: launched beside itself, or, where there is no room for both, after it
// ended. Only a gang without requests does; one that serves is never ended for this.

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "agentd/cores/gang_reconciler.h"
#include "agentd/cores/gang_round.h"
#include "proto/reasons.h"

namespace macrame::agentd {
namespace {

uint32_t RanksOfPlan(const v1::Plan& plan) {
  return static_cast<uint32_t>(plan.assignments_size());
}

bool IsShort(const v1::Deployment& wanted, const v1::Plan& plan) {
  return RanksOfPlan(plan) > 0 && RanksOfPlan(plan) < wanted.placement().world_size();
}

std::string Ranks(uint32_t count) { return absl::StrCat(count, count == 1 ? " rank" : " ranks"); }

}  // namespace

v1::Reason DegradedBy(const v1::Deployment& wanted, const v1::Plan& plan) {
  if (!IsShort(wanted, plan)) return {};
  const uint32_t asked = wanted.placement().world_size();
  v1::Reason reason =
      MakeReason(reasons::kTooFewNodes,
                 absl::StrCat("'", wanted.name(), "' is served by ", Ranks(RanksOfPlan(plan)), ", ",
                              asked, asked == 1 ? " was" : " were", " asked for"));
  reason.clear_remedy();
  return reason;
}

v1::Reason GangReconciler::DegradedOf(const v1::Deployment& wanted, const Gang& gang,
                                      const ClusterView& view) const {
  v1::Reason reason = DegradedBy(wanted, gang.record.plan());
  if (reason.code().empty()) return reason;
  const auto usable = static_cast<uint32_t>(
      std::count_if(view.nodes.begin(), view.nodes.end(),
                    [&](const NodeView& node) { return TakesRanks(node) && IsFor(node, wanted); }));
  const uint32_t asked = wanted.placement().world_size();
  const auto say = [&](const std::string& more) {
    reason.set_message(absl::StrCat(reason.message(), more));
  };
  if (usable < asked) {
    say(absl::StrCat(": ", usable, usable == 1 ? " node" : " nodes",
                     " can be used. It goes back to ", asked, " when more are there"));
    reason.set_remedy(
        absl::StrCat("start agentd on the nodes that are away, or load it again with "
                     "'--ranks ",
                     usable, "'"));
  } else if (!gang.restoring.refused.code().empty()) {
    say(absl::StrCat(" and can't be had now: ", gang.restoring.refused.message()));
    reason.set_remedy(gang.restoring.refused.remedy());
  } else {
    say(absl::StrCat(". It goes back to ", asked, " when the nodes stayed for ",
                     Seconds(options_.restore_after), " s and it had no request for ",
                     Seconds(options_.restore_quiet), " s"));
  }
  return reason;
}

bool GangReconciler::IsBusy(const Round& round, const std::string& name, const Gang& gang) const {
  const auto& ranks = round.RanksOf(name);
  return std::any_of(ranks.begin(), ranks.end(), [&](const v1::RankStatus* rank) {
    return rank->epoch() == gang.record.epoch() &&
           rank->requests_running() + rank->requests_queued() > 0;
  });
}

void GangReconciler::Restore(Round& round, const std::string& name, Gang& gang) {
  const v1::Deployment& wanted = *round.deployments.at(name);
  if (!IsShort(wanted, gang.record.plan())) {
    gang.restoring = {};
    return;
  }
  const uint32_t usable = NoteUsableNodes(round, wanted, gang);
  NoteIdle(round, name, gang);
  if (usable < wanted.placement().world_size() || !IsTimeToRestore(gang, round.now)) return;
  if (round.now < gang.restore_try.next_not_before) return;
  if (round.busy || InGrace(round.now)) return;
  gang.restoring.tried_at = round.now;
  gang.restoring.is_asked = true;
  gang.is_moving = true;  // it serves on while it is planned
  AskForPlan(round, name, gang, /*may_evict=*/false);
}

uint32_t GangReconciler::NoteUsableNodes(const Round& round, const v1::Deployment& wanted,
                                         Gang& gang) {
  std::string nodes;
  uint32_t usable = 0;
  for (const auto& [id, node] : round.nodes) {
    if (!TakesRanks(*node) || !IsFor(*node, wanted)) continue;
    ++usable;
    absl::StrAppend(&nodes, id.value(), " ");
  }
  if (gang.restoring.nodes != nodes) {
    gang.restoring = {};
    gang.restoring.nodes = std::move(nodes);
    gang.restoring.nodes_since = round.now;
  }
  return usable;
}

void GangReconciler::NoteIdle(const Round& round, const std::string& name, Gang& gang) const {
  // Short answers come and go between two looks; their tokens stay counted.
  uint64_t tokens = 0;
  for (const v1::RankStatus* rank : round.RanksOf(name)) {
    if (rank->epoch() == gang.record.epoch()) tokens += rank->tokens_generated_total();
  }
  const bool has_answered = std::exchange(gang.restoring.tokens_seen, tokens) != tokens;
  if (has_answered || IsBusy(round, name, gang)) {
    gang.restoring.idle_since.reset();
  } else if (!gang.restoring.idle_since.has_value()) {
    gang.restoring.idle_since = round.now;
  }
}

bool GangReconciler::IsTimeToRestore(const Gang& gang, MonotonicTime now) const {
  const Gang::Restoring& restoring = gang.restoring;
  const bool is_idle =
      restoring.idle_since.has_value() && now - *restoring.idle_since >= options_.restore_quiet;
  const bool is_stable = now - restoring.nodes_since >= options_.restore_after &&
                         now - gang.since >= options_.restore_quiet;
  const bool waits =
      restoring.tried_at.has_value() && now - *restoring.tried_at < options_.restore_retry;
  return is_idle && is_stable && !waits;
}

// Requests may have come while it was planned.
bool GangReconciler::IsWorthIt(const Round& round, const std::string& name, const Gang& gang,
                               const v1::PlanResult& result) const {
  return !IsBusy(round, name, gang) && RanksOfPlan(result.plan()) > RanksOfPlan(gang.record.plan());
}

void GangReconciler::NoteRestore(const std::set<NodeId>& with, Gang& gang,
                                 MonotonicTime now) const {
  gang.restore_try.added = with;
  for (const v1::Assignment& assignment : gang.record.plan().assignments()) {
    gang.restore_try.added.erase(NodeId(assignment.node_id()));
  }
  gang.restore_try.pause = std::clamp<Duration>(gang.restore_try.pause * 2, options_.restore_retry,
                                                options_.restore_pause_max);
  gang.restore_try.next_not_before = now + gang.restore_try.pause;
}

void GangReconciler::LeaveOutRestored(Gang& gang, MonotonicTime now) {
  for (const NodeId& node : gang.restore_try.added) {
    own_failures_[node].left_out_until = now + options_.left_out_for;
  }
  gang.restore_try.added.clear();
}

// There is no plan beside the gang that serves. Where it is its own memory that lacks, it ends, as
// nobody asks it anything, and is planned when that is free.
void GangReconciler::StayShort(Round& round, const std::string& name, Gang& gang, v1::Reason why) {
  gang.restoring.is_asked = false;
  gang.is_moving = false;
  gang.planned.reset();
  // Once for each set of nodes: if it then has to come back with fewer ranks, it stays so.
  const bool was_ended = gang.ended_for_room == gang.restoring.nodes;
  if (why.code() == reasons::kMemoryShort && !was_ended && !IsBusy(round, name, gang)) {
    gang.ended_for_room = gang.restoring.nodes;
    std::set<NodeId> usable;
    for (const auto& [id, node] : round.nodes) {
      if (TakesRanks(*node)) usable.insert(id);
    }
    NoteRestore(usable, gang, round.now);
    gang.failure =
        MakeReason(reasons::kSnapshotStale,
                   absl::StrCat("'", name,
                                "' had no requests and ended to come back with all ranks that were "
                                "asked for: there was no room beside it"));
    gang.retry_at = round.now;
    return BeginEnding(round, name, gang);
  }
  gang.restoring.refused = std::move(why);
  Enter(gang, Stage::kReady, round.now);
}

}  // namespace macrame::agentd
