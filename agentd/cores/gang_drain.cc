// How gangs leave a node that is about to stop, is drained, or was dedicated to another tenant. The
// next gang is launched beside the one that serves where the other nodes have room for both: then
// nobody waits but for the new one to come up. Where they have not, the gang takes no requests any
// more (its record has no entry node), ends when it has answered those that it has, and is planned
// then. Either way it has drain_limit, or as long as the order to drain says.

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "agentd/cores/gang_reconciler.h"
#include "agentd/cores/gang_round.h"
#include "proto/reasons.h"

namespace macrame::agentd {

// It was dedicated to another tenant: the gang must not stay, wherever else it may go.
bool GangReconciler::MustLeave(const Round& round, const std::string& name, const NodeView& node) {
  const auto wanted = round.deployments.find(name);
  return wanted != round.deployments.end() && !IsFor(node, *wanted->second);
}

// The first node that a gang is to leave, one that it must leave before others; null: none.
const NodeView* GangReconciler::LeavingNode(const Round& round, const std::string& name,
                                            const Gang& gang) const {
  const NodeView* leaving = nullptr;
  for (const v1::Assignment& assignment : gang.record.plan().assignments()) {
    const NodeView* node = round.Node(NodeId(assignment.node_id()));
    if (node == nullptr || !IsReachable(*node)) continue;
    if (MustLeave(round, name, *node)) return node;
    if (node->draining && leaving == nullptr) leaving = node;
  }
  return leaving;
}

// True: it is on its way.
bool GangReconciler::LeaveNode(Round& round, const std::string& name, Gang& gang,
                               const NodeView& leaving) {
  if (InGrace(round.now)) return false;
  if (gang.stage == Stage::kStarting) {
    const bool has_served = gang.record.ready_unix_ms() != 0;
    if (has_served || gang.lowest_phase == v1::RANK_PHASE_READY) return false;
    gang.failure = MakeReason(reasons::kNodeLeft,
                              absl::StrCat("'", name, "' was being brought up with a rank on ",
                                           leaving.hostname, ", which ", LeavingWords(leaving)),
                              leaving.id.value());
    gang.retry_at = round.now;
    BeginEnding(round, name, gang);
    return true;
  }
  // Where nothing else is left it serves until the node stops.
  const bool stays = round.placement.empty() && !MustLeave(round, name, leaving);
  const bool waits = round.busy || stays || round.now - gang.since < options_.replan_after_eviction;
  if (waits) return false;
  gang.is_moving = true;
  AskForPlan(round, name, gang, /*may_evict=*/false);
  return true;
}

// The epoch in force is to finish its answers, and takes no further ones.
void GangReconciler::GiveWay(const Round& round, const std::string& name, Gang& gang) const {
  gang.is_moving = false;
  gang.gave_way = Gang::GaveWay{gang.record.epoch(), round.now, round.now, options_.drain_limit};
  const NodeView* leaving = LeavingNode(round, name, gang);
  if (leaving == nullptr) return;
  gang.gave_way->limit = leaving->answers_have.value_or(options_.drain_limit);
  const std::string why = leaving->answers_have ? "was drained"
                          : leaving->draining   ? "was about to stop"
                                                : std::string(kDedicatedWords);
  gang.failure =
      MakeReason(reasons::kNodeLeft,
                 absl::StrCat("'", name, "' moved away from ", leaving->hostname, ", which ", why),
                 leaving->id.value());
}

// There is no plan beside the gang that serves.
void GangReconciler::StayOrGiveWay(Round& round, const std::string& name, Gang& gang,
                                   v1::Reason why) {
  const NodeView* leaving = LeavingNode(round, name, gang);
  // Only room is made by giving way. Other causes pass (the nodes changed while it was planned), or
  // stay whatever this gang does: then it serves until the node stops, unless it may not.
  const bool may_pass = why.code() == reasons::kSnapshotStale || why.code() == reasons::kInternal;
  const bool stays = leaving == nullptr || may_pass ||
                     (why.code() != reasons::kMemoryShort && !MustLeave(round, name, *leaving));
  if (stays) {
    gang.is_moving = false;
    gang.planned.reset();
    return Enter(gang, Stage::kReady, round.now);
  }
  GiveWay(round, name, gang);
  // Gateways see by it that answers have time (entry_table.h).
  const v1::Reason moved = gang.failure;
  why.set_message(absl::StrCat("'", name, "' can't be launched beside itself without ",
                               leaving->hostname, ", which ", LeavingWords(*leaving),
                               ", and moves when its ", "answers are finished: ", why.message()));
  Refuse(round, name, gang, std::move(why));
  gang.record.clear_plan();
  gang.record.clear_entry_node_id();
  gang.record.set_attempts(0);
  *gang.record.mutable_last_failure() = moved;
  round.effects.emplace_back(WriteGang{gang.record});
}

// Requests under way when the record changed reach it a moment later, and what ranks report of them
// is a moment old.
bool GangReconciler::IsGivingWay(const Round& round, const std::string& name, Gang& gang) const {
  if (!gang.gave_way.has_value()) return false;
  Gang::GaveWay& gave_way = *gang.gave_way;
  if (round.now - gave_way.since >= gave_way.limit) return false;
  bool runs = false, is_busy = false;
  for (const v1::RankStatus* rank : round.RanksOf(name)) {
    if (rank->epoch() != gave_way.epoch || IsOver(rank->phase())) continue;
    runs = true;
    is_busy |= rank->requests_running() + rank->requests_queued() > 0;
  }
  if (is_busy) gave_way.busy_at = round.now;
  return runs && round.now - gave_way.busy_at < options_.drain_quiet;
}

}  // namespace macrame::agentd
