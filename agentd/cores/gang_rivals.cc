// Gangs of one deployment that were launched apart: by the coordinator of another half, or here
// while the first one's nodes could not be reached. When they meet, one stays: of two that are
// ready the one that became ready first, else the one that is.

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "agentd/cores/gang_reconciler.h"
#include "agentd/cores/gang_round.h"
#include "proto/reasons.h"

namespace macrame::agentd {
namespace {

constexpr size_t kRivalsMax = 4;
constexpr size_t kApartMax = 64;
constexpr size_t kOrphansMax = 256;

}  // namespace

bool GangReconciler::Keeps(const std::string& deployment) const {
  if (kept_.contains(deployment)) return true;
  const auto it = gangs_.find(deployment);
  return it != gangs_.end() && IsServing(it->second) && !it->second.removing;
}

void GangReconciler::NoteApart(const v1::GangRecord& record) {
  if (apart_.size() < kApartMax) apart_.push_back(record);
}

void GangReconciler::TakeApart() {
  for (const v1::GangRecord& record : std::exchange(apart_, {})) {
    const auto it = gangs_.find(record.deployment());
    if (it == gangs_.end() || IdOf(it->second.record) == IdOf(record)) continue;
    // Of what is wanted now, which the merge may have changed too: the gang here may be of before.
    if (IsFor(record, it->second.wanted)) NoteRival(it->second, record);
  }
}

void GangReconciler::NoteRival(Gang& gang, const v1::GangRecord& record) {
  const bool runs = !record.plan().assignments().empty();
  if (!runs || gang.gone.contains(IdOf(record))) return;
  if (gang.rivals.size() >= kRivalsMax) gang.rivals.erase(gang.rivals.begin());  // the oldest
  gang.epoch_seen = std::max(gang.epoch_seen, record.epoch());
  gang.rivals.try_emplace(IdOf(record), Rival{record, std::nullopt});
}

bool GangReconciler::IsOfRival(const Gang& gang, const v1::RankStatus& rank) {
  return std::any_of(gang.rivals.begin(), gang.rivals.end(), [&](const auto& item) {
    const auto& assignments = item.second.record.plan().assignments();
    return item.first.first == rank.epoch() &&
           std::any_of(assignments.begin(), assignments.end(), [&](const v1::Assignment& one) {
             return one.node_id() == rank.node_id() && one.rank() == rank.rank();
           });
  });
}

// Whether no node of it is within reach: then its ranks may well be running there.
bool GangReconciler::IsAway(const Round& round, const v1::GangRecord& record) {
  return std::none_of(record.plan().assignments().begin(), record.plan().assignments().end(),
                      [&](const v1::Assignment& assignment) {
                        const NodeView* node = round.Node(NodeId(assignment.node_id()));
                        return node != nullptr && IsReachable(*node);
                      });
}

GangReconciler::RivalState GangReconciler::StateOf(const Round& round, const std::string& name,
                                                   Rival& rival) const {
  bool all_ready = true;
  for (const v1::Assignment& assignment : rival.record.plan().assignments()) {
    const NodeView* node = round.Node(NodeId(assignment.node_id()));
    if (node == nullptr || !IsReachable(*node) || !node->orderable) {
      rival.reachable_since.reset();
      return RivalState::kAway;
    }
    const v1::RankStatus* rank = round.RankOf(name, rival.record.epoch(), assignment);
    if (rank != nullptr && IsOver(rank->phase())) return RivalState::kGone;
    all_ready &= rank != nullptr && rank->phase() == v1::RANK_PHASE_READY;
  }
  if (!rival.reachable_since.has_value()) rival.reachable_since = round.now;
  if (all_ready) return RivalState::kReady;
  const bool waited = round.now - *rival.reachable_since >= options_.report_grace;
  return waited ? RivalState::kGone : RivalState::kForming;
}

void GangReconciler::JudgeRivals(Round& round, const std::string& name, Gang& gang) {
  for (auto it = gang.rivals.begin(); it != gang.rivals.end();) {
    // Of what was wanted before: an orphan like any other.
    if (!IsFor(it->second.record, gang.wanted)) {
      it = gang.rivals.erase(it);
      continue;
    }
    const RivalState state = StateOf(round, name, it->second);
    if (state == RivalState::kAway || state == RivalState::kForming) {
      ++it;
      continue;
    }
    v1::GangRecord record = std::move(it->second.record);
    gang.gone.insert(IdOf(record));
    it = gang.rivals.erase(it);
    const uint64_t own = gang.record.ready_unix_ms();
    const bool first = !IsServing(gang) || own == 0 ||
                       (record.ready_unix_ms() != 0 && record.ready_unix_ms() < own);
    if (state == RivalState::kReady && first) TakeRival(round, name, gang, std::move(record));
  }
}

// Its ranks are all there and ready. Those of the gang that was in force belong to none then.
void GangReconciler::TakeRival(Round& round, const std::string& name, Gang& gang,
                               v1::GangRecord record) {
  gang.gone.erase(IdOf(record));
  gang.failure = MakeReason(
      reasons::kGangReunited,
      absl::StrCat("'", name, "', epoch ", record.epoch(), ", is within reach again and was ready ",
                   "before epoch ", gang.record.epoch(), ", which ends"));
  *record.mutable_last_failure() = gang.failure;
  record.clear_unreachable();
  record.set_attempts(0);
  gang.record = std::move(record);
  gang.failures = 0;
  gang.planned.reset();
  gang.refused.Clear();
  gang.launch_due = false;
  gang.is_moving = false;
  gang.progress.clear();
  gang.lowest_phase = v1::RANK_PHASE_READY;
  Enter(gang, Stage::kReady, round.now);
  NoteProgress(round, name, gang);
  round.effects.emplace_back(WriteGang{gang.record});
}

// A rank that belongs nowhere ends when its gang has answered what it is at. Only its entry rank
// knows of requests, so the whole epoch waits.
bool GangReconciler::IsDraining(const Round& round, const v1::RankStatus& rank) {
  if (orphan_since_.size() > kOrphansMax) orphan_since_.clear();
  const auto since =
      orphan_since_.try_emplace({rank.deployment(), rank.epoch()}, round.now).first->second;
  if (round.now - since >= options_.drain_limit) return false;
  const auto& ranks = round.RanksOf(rank.deployment());
  return std::any_of(ranks.begin(), ranks.end(), [&](const v1::RankStatus* other) {
    return other->epoch() == rank.epoch() && !IsOver(other->phase()) &&
           other->requests_running() > 0;
  });
}

}  // namespace macrame::agentd
