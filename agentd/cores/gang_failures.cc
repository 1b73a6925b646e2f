// What went wrong with a gang: a lost node, a rank that stopped or was never reported, a phase that
// passed its limit, a group that came up otherwise than planned.

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "agentd/cores/gang_reconciler.h"
#include "agentd/cores/gang_round.h"
#include "proto/phase_words.h"
#include "proto/rank_words.h"
#include "proto/reasons.h"

namespace macrame::agentd {
namespace {

// How near to the cause what a rank says is: of those that complain of another, of one that ended
// and of one that says what it lacks, the last is named.
int Nearness(const v1::Reason& reason) {
  const std::string& code = reason.code();
  if (code == reasons::kRankKilled) return 3;
  if (TellsOfAnother(reason)) return 0;
  return code == reasons::kRankExited ? 1 : 2;
}

}  // namespace

void GangReconciler::NoteProgress(const Round& round, const std::string& name, Gang& gang) const {
  v1::RankPhase lowest = v1::RANK_PHASE_READY;
  bool any_on_its_way = false;
  for (const v1::Assignment& assignment : gang.record.plan().assignments()) {
    const v1::RankStatus* rank = round.RankOf(name, gang.record.epoch(), assignment);
    if (rank == nullptr) {
      lowest = v1::RANK_PHASE_UNSPECIFIED;
      continue;
    }
    // A rank that is over says nothing of how far the gang got.
    if (rank->phase() < v1::RANK_PHASE_STOPPING) {
      lowest = std::min(lowest, rank->phase());
      any_on_its_way = true;
    }
    const auto [it, is_new] = gang.progress.try_emplace(assignment.rank());
    RankProgress& known = it->second;
    const bool moved = known.phase != rank->phase() || known.bytes_loaded != rank->bytes_loaded() ||
                       known.progress != rank->progress() || known.detail != rank->phase_detail();
    if (is_new || moved) {
      known = {rank->phase(), rank->bytes_loaded(), rank->progress(), rank->phase_detail(),
               round.now};
    }
  }
  if (gang.lowest_phase != lowest && (any_on_its_way || lowest == v1::RANK_PHASE_UNSPECIFIED)) {
    gang.lowest_phase = lowest;
    gang.lowest_phase_since = round.now;
  }
}

// A node that is gone, else a rank that ended. One loss makes the other ranks fail too, in ways
// that say less: what was killed is named before what complained.
std::optional<v1::Reason> GangReconciler::FindLoss(const Round& round, const std::string& name,
                                                   const v1::GangRecord& record,
                                                   bool has_ended) const {
  for (const v1::Assignment& assignment : record.plan().assignments()) {
    const NodeView* node = round.Node(NodeId(assignment.node_id()));
    if (node == nullptr ? InGrace(round.now) : IsReachable(*node)) continue;
    return MakeReason(reasons::kGangLostNode,
                      absl::StrCat("'", name, "' lost the node of ", Place(assignment)),
                      assignment.node_id());
  }
  std::optional<v1::Reason> found;
  for (const v1::Assignment& assignment : record.plan().assignments()) {
    const v1::RankStatus* rank = round.RankOf(name, record.epoch(), assignment);
    if (rank == nullptr || rank->phase() < v1::RANK_PHASE_STOPPING) continue;
    v1::Reason why = rank->failure();
    // Who was told to stop may see its neighbours, which went first, as stalled.
    const bool is_sure = rank->phase() == v1::RANK_PHASE_FAILED && !rank->has_stalled();
    if (has_ended && (why.code().empty() || !is_sure)) continue;
    if (why.code().empty()) {
      why = MakeReason(reasons::kRankExited, absl::StrCat(Place(assignment), " of '", name, "' is ",
                                                          PhaseWord(rank->phase())));
    }
    if (TellsOfAnother(why)) {
      why.set_message(absl::StrCat(Place(assignment), " of '", name, "': ", why.message()));
    }
    why.set_node_id(assignment.node_id());
    for (const v1::Assignment& other : record.plan().assignments()) {
      // It tells of another: whoever waited says so, the one that stalled can't.
      if (rank->has_stalled() && other.rank() == rank->stalled().rank()) {
        why.set_node_id(other.node_id());
      }
    }
    if (!found.has_value() || Nearness(*found) < Nearness(why)) found = std::move(why);
  }
  return found;
}

// A rank notices at once that its neighbour is gone; why that one ended comes with the next
// heartbeat of its own node. A group that can't be formed has another backend waiting for it, and
// is corrected afterwards alone.
bool GangReconciler::AwaitsCause(const Round& round, const std::string& name,
                                 const v1::Reason& failure, Gang& gang) const {
  if (!TellsOfAnother(failure) || failure.code() == reasons::kConnectFailed) return false;
  const auto& assignments = gang.record.plan().assignments();
  const bool have_all_ended =
      std::all_of(assignments.begin(), assignments.end(), [&](const v1::Assignment& assignment) {
        const v1::RankStatus* rank = round.RankOf(name, gang.record.epoch(), assignment);
        return rank != nullptr && IsOver(rank->phase());
      });
  if (have_all_ended) return false;
  if (!gang.doubt.has_value() || gang.doubt->epoch != gang.record.epoch()) {
    gang.doubt = Gang::Doubt{gang.record.epoch(), round.now};
  }
  return round.now - gang.doubt->since < options_.cause_wait;
}

void GangReconciler::CorrectBlame(Round& round, const std::string& name, Gang& gang) {
  if (!gang.blame.has_value()) return;
  const Gang::Blame& blame = *gang.blame;
  const bool is_over = round.now - blame.since >= options_.cause_kept || IsServing(gang) ||
                       gang.failure.message() != blame.told;
  if (is_over) return gang.blame.reset();
  std::optional<v1::Reason> cause = FindLoss(round, name, blame.record, /*has_ended=*/true);
  if (!cause.has_value() || TellsOfAnother(*cause)) return;
  if (blame.was_starting) NoteOwnFailure(*cause, round.now);
  gang.failure = *cause;
  *gang.record.mutable_last_failure() = gang.failure;
  round.effects.emplace_back(Notify{name, StateOf(gang), blame.record.epoch(), *std::move(cause)});
  gang.blame.reset();
}

// A rank that should have been reported by now, or was and is not any more.
std::optional<v1::Reason> GangReconciler::FindMissing(const Round& round, const std::string& name,
                                                      const Gang& gang) const {
  if (InGrace(round.now)) return std::nullopt;
  for (const v1::Assignment& assignment : gang.record.plan().assignments()) {
    const NodeView* node = round.Node(NodeId(assignment.node_id()));
    if (node == nullptr || round.RankOf(name, gang.record.epoch(), assignment) != nullptr) continue;
    const bool was_there = gang.progress.contains(assignment.rank());
    if (!was_there && round.now - gang.since < options_.report_grace) continue;
    return MakeReason(
        reasons::kRankExited,
        absl::StrCat(Place(assignment), " of '", name, "' (epoch ", gang.record.epoch(),
                     was_there ? ") is gone" : ") was never reported"),
        assignment.node_id());
  }
  return std::nullopt;
}

// A group that came up smaller, or on another backend, would answer with nonsense or crawl.
std::optional<v1::Reason> GangReconciler::FindMismatch(const Round& round, const std::string& name,
                                                       const Gang& gang) const {
  const v1::Plan& plan = gang.record.plan();
  for (const v1::Assignment& assignment : plan.assignments()) {
    const v1::RankStatus* rank = round.RankOf(name, gang.record.epoch(), assignment);
    const auto world = static_cast<uint32_t>(plan.assignments_size());
    if (rank == nullptr || rank->group_size() == 0 || world <= 1) continue;
    if (rank->group_size() == world &&
        (plan.backend().empty() || rank->backend() == plan.backend())) {
      continue;
    }
    return MakeReason(
        reasons::kGroupMismatch,
        absl::StrCat(Place(assignment), " of '", name, "' is in a ", rank->backend(), " group of ",
                     rank->group_size(), "; planned were ", world, " ranks over ", plan.backend()),
        assignment.node_id());
  }
  return std::nullopt;
}

// Phases have limits for the gang as a whole, counted from when its last rank came to the phase:
// those ahead wait for it. Loading is limited by standing still, rank by rank.
std::optional<v1::Reason> GangReconciler::FindOverdue(const Round& round, const std::string& name,
                                                      const Gang& gang) const {
  if (gang.stage == Stage::kReady) return std::nullopt;
  const v1::RankPhase phase = gang.lowest_phase;
  Duration limit = options_.staging_limit;
  if (phase == v1::RANK_PHASE_CONNECTING) limit = options_.connecting_limit;
  if (phase == v1::RANK_PHASE_WARMING_UP) limit = options_.warming_up_limit;
  if (phase == v1::RANK_PHASE_LOADING) limit = options_.loading_stall_limit;
  if (phase == v1::RANK_PHASE_READY) return std::nullopt;
  std::string late;
  NodeId node;
  for (const v1::Assignment& assignment : gang.record.plan().assignments()) {
    const auto progress = gang.progress.find(assignment.rank());
    const v1::RankPhase own =
        progress == gang.progress.end() ? v1::RANK_PHASE_UNSPECIFIED : progress->second.phase;
    if (own != phase) continue;
    const MonotonicTime since =
        phase == v1::RANK_PHASE_LOADING ? progress->second.changed_at : gang.lowest_phase_since;
    if (round.now - since < limit) continue;
    if (late.empty()) node = NodeId(assignment.node_id());
    absl::StrAppend(&late, late.empty() ? "" : ", ", Place(assignment));
    if (progress != gang.progress.end() && !progress->second.detail.empty()) {
      absl::StrAppend(&late, " (", progress->second.detail, ")");
    }
  }
  if (late.empty()) return std::nullopt;
  // All are there and none gets on: it is the group that does not form.
  const bool all_met = phase == v1::RANK_PHASE_CONNECTING &&
                       std::all_of(gang.progress.begin(), gang.progress.end(), [](const auto& one) {
                         return !one.second.detail.empty() && one.second.detail != "rendezvous";
                       });
  return MakeReason(all_met ? reasons::kInitStalled : reasons::kPhaseDeadline,
                    absl::StrCat("'", name, "' stood still ", PhaseWord(phase), " for ",
                                 Seconds(limit), " s: ", late),
                    node.value());
}

}  // namespace macrame::agentd
