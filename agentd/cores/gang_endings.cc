// How a gang that failed, or is not wanted any more, is stopped everywhere, and what the next one
// does otherwise.

#include <algorithm>
#include <set>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "agentd/cores/gang_reconciler.h"
#include "agentd/cores/gang_round.h"
#include "proto/backends.h"
#include "proto/reasons.h"

namespace macrame::agentd {
namespace {

constexpr int kFallbacksKept = 8;

// Failures before the group is there that another backend may not have.
bool IsOfTransport(std::string_view code) {
  static constexpr std::string_view kCodes[] = {reasons::kConnectFailed,
                                                reasons::kInitStalled,
                                                reasons::kPhaseDeadline,
                                                reasons::kGroupMismatch,
                                                reasons::kPortDown,
                                                reasons::kNoVerbsDevice,
                                                reasons::kNoIpv4Gid,
                                                reasons::kNoProtectionDomain,
                                                reasons::kPeerLost,
                                                reasons::kVerbsLibraryMissing,
                                                reasons::kTransportUnavailable,
                                                reasons::kRendezvousUnreachable,
                                                reasons::kCollectiveFailed,
                                                reasons::kRingNonNeighbour,
                                                reasons::kRankExited};
  return std::find(std::begin(kCodes), std::end(kCodes), code) != std::end(kCodes);
}

}  // namespace

bool IsFaultOfModel(std::string_view code) {
  static constexpr std::string_view kCodes[] = {
      reasons::kTokenizerInvalid,         reasons::kModelConfigInvalid,
      reasons::kModelArchitectureUnknown, reasons::kModelFormatUnsupported,
      reasons::kDraftVocabularyDiffers,   reasons::kDraftModelUnusable,
      reasons::kKvBitsUnsupported,        reasons::kDeviceDiffers};
  return std::find(std::begin(kCodes), std::end(kCodes), code) != std::end(kCodes);
}

namespace {

// Of files as they are on one node, or of its device; the others of IsFaultOfModel are of the whole
// model.
bool IsFaultOfFiles(std::string_view code) {
  return code == reasons::kTokenizerInvalid || code == reasons::kModelConfigInvalid ||
         code == reasons::kModelFormatUnsupported || code == reasons::kDeviceDiffers;
}

}  // namespace

// What served once may have files that are good elsewhere: it is brought back wherever that works.
bool GangReconciler::GivesUp(const Gang& gang) const {
  return !gang.has_served && !gang.removing && IsFaultOfModel(gang.failure.code());
}

void GangReconciler::Accuse(const Round& round, const std::string& name, Gang& gang) {
  if (gang.has_served || !IsFaultOfFiles(gang.failure.code())) return;
  if (!gang.failure.node_id().empty()) {
    gang.accused.emplace(NodeId(gang.failure.node_id()), gang.failure);
  }
  for (const v1::Assignment& assignment : gang.record.plan().assignments()) {
    const v1::RankStatus* rank = round.RankOf(name, gang.record.epoch(), assignment);
    if (rank == nullptr || !IsFaultOfFiles(rank->failure().code())) continue;
    gang.accused.emplace(NodeId(assignment.node_id()), rank->failure());
  }
}

bool GangReconciler::TriesElsewhere(const Round& round, const std::string& name, Gang& gang) {
  Accuse(round, name, gang);  // a launch that was refused is known by its failure alone
  if (gang.accused.size() != 1 || gang.elsewhere_until.has_value()) return false;
  const NodeId node = gang.accused.begin()->first;
  const bool has_others =
      std::any_of(round.view.nodes.begin(), round.view.nodes.end(),
                  [&](const NodeView& other) { return other.id != node && TakesRanks(other); });
  if (!has_others) return false;
  gang.elsewhere_until = round.now + options_.elsewhere_limit;
  const NodeView* view = round.Node(node);
  const bool is_device = gang.failure.code() == reasons::kDeviceDiffers;
  gang.failure = MakeReason(
      reasons::kNodeFilesUnusable,
      absl::StrCat(
          "'", name, "' is planned without ", view == nullptr ? "a node" : view->hostname,
          is_device ? ", whose GPU computes it wrongly: " : ", whose files of it can't be used: ",
          gang.failure.code(), ": ", gang.failure.message()),
      node.value());
  KeepFallback(gang, gang.failure);
  return true;
}

// Said in the record too, so that the next coordinator does not begin anew.
void GangReconciler::GiveUp(Round& round, const std::string& name, Gang& gang) {
  gang.has_given_up = true;
  gang.refused = gang.failure;
  gang.refused.set_remedy(absl::StrCat(
      gang.failure.remedy(), gang.failure.remedy().empty() ? "" : "; then ",
      "'clusterctl model load ", name, "' launches it again, until then it is not tried"));
  gang.failure = gang.refused;
  gang.record.clear_plan();
  gang.record.clear_entry_node_id();
  gang.record.set_attempts(0);
  *gang.record.mutable_last_failure() = gang.failure;
  Enter(gang, Stage::kPending, round.now);
  round.effects.emplace_back(WriteGang{gang.record});
}

void GangReconciler::Fail(Round& round, const std::string& name, Gang& gang, v1::Reason why) {
  // What served and then lost one node after another did not fail for one reason many times.
  if (gang.stage == Stage::kStarting) NoteOwnFailure(why, round.now);
  LeaveOutRestored(gang, round.now);
  const bool is_new = gang.stage == Stage::kReady && (why.code() != gang.failure.code() ||
                                                      why.node_id() != gang.failure.node_id());
  gang.failure = std::move(why);
  gang.blame.reset();
  if (TellsOfAnother(gang.failure)) {
    gang.blame =
        Gang::Blame{gang.record, round.now, gang.stage == Stage::kStarting, gang.failure.message()};
  }
  Accuse(round, name, gang);
  gang.failures = is_new ? 1 : gang.failures + 1;
  gang.retry_at = round.now + Backoff(gang.failures);
  if (!RefuseUnevenSlices(round, name, gang) && !SuspendFastSynch(round, name, gang)) {
    FallBack(round, name, gang);
  }
  // Cut off, not dead, perhaps: then it may come back whole before another one is ready.
  if (IsAway(round, gang.record)) NoteRival(gang, gang.record);
  BeginEnding(round, name, gang);
}

void GangReconciler::NoteOwnFailure(const v1::Reason& why, MonotonicTime now) {
  const NodeId node(why.node_id());
  // Of a lost node the membership knows more, and transports have their own remedies.
  const bool is_gone = why.code() == reasons::kGangLostNode || why.code() == reasons::kNodeLeft;
  if (node.value().empty() || is_gone || IsOfTransport(why.code())) return;
  OwnFailures& failures = own_failures_[node];
  std::erase_if(failures.at, [&](MonotonicTime at) { return now - at > options_.left_out_window; });
  failures.at.push_back(now);
  if (failures.at.size() < options_.own_failures_max) return;
  failures.at.clear();
  failures.left_out_until = now + options_.left_out_for;
}

std::set<NodeId> GangReconciler::LeftOut(MonotonicTime now) const {
  std::set<NodeId> nodes;
  for (const auto& [node, failures] : own_failures_) {
    if (now < failures.left_out_until) nodes.insert(node);
  }
  return nodes;
}

bool RefusesUnevenSlices(const v1::GangRecord& gang) {
  return std::any_of(gang.fallbacks().begin(), gang.fallbacks().end(),
                     [](const v1::Reason& one) { return one.code() == reasons::kUnevenRefused; });
}

// Slices of unequal width that don't make up the model: the next plan has equal ones, or no tensor
// split at all. True: that is what comes
// next.
bool GangReconciler::RefuseUnevenSlices(const Round& round, const std::string& name, Gang& gang) {
  if (gang.failure.code() != reasons::kSplitDiffers) return false;
  KeepFallback(gang, MakeReason(reasons::kUnevenRefused,
                                absl::StrCat("'", name, "' is planned without slices of unequal ",
                                             "width: ", gang.failure.message()),
                                gang.failure.node_id()));
  if (gang.failures <= 1) gang.retry_at = round.now;
  return true;
}

// A stall over jaccl once the GPU takes part may be MLX's fast way of waiting for the wire, which
// is known to hang (mlx issues 3142 and 3830): the first one is answered by the slow way, on the
// same backend. True: that is what comes next.
bool GangReconciler::SuspendFastSynch(const Round& round, const std::string& name, Gang& gang) {
  const v1::Plan& plan = gang.record.plan();
  if (BackendNamed(plan.backend()) != Backend::kJaccl || gang.record.fast_synch_suspended())
    return false;
  const bool is_stall = gang.failure.code() == reasons::kRankStalled;
  const bool stood_still = gang.failure.code() == reasons::kInitStalled ||
                           gang.failure.code() == reasons::kPhaseDeadline;
  bool used_fast = false, computed = false;
  for (const v1::Assignment& assignment : plan.assignments()) {
    const v1::RankStatus* rank = round.RankOf(name, gang.record.epoch(), assignment);
    used_fast = used_fast || (rank != nullptr && rank->fast_synch_by_default());
    const auto progress = gang.progress.find(assignment.rank());
    computed = computed || (progress != gang.progress.end() &&
                            (progress->second.phase > v1::RANK_PHASE_CONNECTING ||
                             progress->second.detail == "first_collective"));
  }
  if (!used_fast || !(is_stall || (stood_still && computed))) return false;
  gang.record.set_fast_synch_suspended(true);
  v1::Reason suspended = MakeReason(
      reasons::kFastSynchSuspended,
      absl::StrCat("'", name, "' stalled over jaccl with MLX_METAL_FAST_SYNCH=1 and is launched ",
                   "without it: ", gang.failure.code(), ": ", gang.failure.message()),
      gang.failure.node_id());
  suspended.set_evidence(gang.failure.evidence());
  KeepFallback(gang, std::move(suspended));
  if (gang.failures <= 1) gang.retry_at = round.now;
  return true;
}

// What keeps the group from being formed, unless it plainly is something else.
void GangReconciler::FallBack(Round& round, const std::string& name, Gang& gang) {
  const v1::Plan& plan = gang.record.plan();
  const bool forming =
      gang.stage == Stage::kStarting && gang.lowest_phase <= v1::RANK_PHASE_CONNECTING;
  const bool has_lesser = IsRdma(BackendNamed(plan.backend()));
  // One that was ready once (attempts 0) and was adopted from an earlier coordinator looks alike.
  const bool was_ready = gang.record.attempts() == 0;
  // An adopted gang of which no rank was ever seen did not fail at forming a group.
  const bool was_seen = !gang.progress.empty();
  if (!forming || !has_lesser || was_ready || !was_seen || !IsOfTransport(gang.failure.code())) {
    return;
  }
  NoteFallback(name, gang, gang.failure, "could not be formed over");
  if (gang.failures <= 1) gang.retry_at = round.now;  // the next backend, at once
  round.effects.emplace_back(RefuseTransport{name, plan, gang.failure});
}

void GangReconciler::NoteFallback(const std::string& name, Gang& gang, const v1::Reason& why,
                                  std::string_view how) {
  v1::Reason fallback =
      MakeReason(reasons::kTransportFallback,
                 absl::StrCat("'", name, "' ", absl::string_view(how.data(), how.size()), " ",
                              gang.record.plan().backend(), ": ", why.code(), ": ", why.message()),
                 why.node_id());
  fallback.set_evidence(why.evidence());
  gang.fell_back = true;
  KeepFallback(gang, std::move(fallback));
}

// A coordinator that ended before it could write why, or ranks that ended for another reason a
// moment before the probes saw the fault: the plan itself says what the former backend lacks.
void GangReconciler::NoteLesserBackend(const std::string& name, Gang& gang, const v1::Plan& next) {
  const v1::Plan& last = gang.record.plan();
  const bool is_lesser = IsRdma(BackendNamed(last.backend())) && next.assignments_size() > 1 &&
                         !IsRdma(BackendNamed(next.backend()));
  if (gang.fell_back || !is_lesser) return;
  const std::string same = absl::StrCat(last.backend(), " ", last.backend_topology());
  const v1::Reason* why = nullptr;
  for (const v1::Rejection& rejection : next.rejections()) {
    const bool is_same = rejection.subject() == same;
    const bool is_alike = absl::StartsWith(rejection.subject(), absl::StrCat(last.backend(), " "));
    if (is_same || (is_alike && why == nullptr)) why = &rejection.reason();
    if (is_same) break;
  }
  // Without one it was not asked for any more.
  if (why != nullptr) NoteFallback(name, gang, *why, "goes on without");
}

void GangReconciler::KeepFallback(Gang& gang, v1::Reason fallback) {
  auto& kept = *gang.record.mutable_fallbacks();
  if (kept.size() >= kFallbacksKept) {
    // Plans go by this one; the oldest of the others is only told.
    kept.DeleteSubrange(kept[0].code() == reasons::kUnevenRefused ? 1 : 0, 1);
  }
  *gang.record.add_fallbacks() = std::move(fallback);
}

void GangReconciler::BeginEnding(Round& round, const std::string& name, Gang& gang) {
  Enter(gang, Stage::kEnding, round.now);
  gang.planned.reset();
  gang.launch_due = false;
  gang.is_moving = false;
  gang.restoring = {};
  std::erase_if(endings_, [&](const auto& item) { return item.first.second == name; });
  EndEverywhere(round, name, gang);
}

void GangReconciler::EndEverywhere(Round& round, const std::string& name, Gang& gang) {
  // The epoch before may have answers to finish.
  const uint64_t from = IsGivingWay(round, name, gang) ? gang.gave_way->epoch + 1 : 0;
  if (from > gang.epoch_seen) return;
  std::set<NodeId> running;
  for (const v1::RankStatus* rank : round.RanksOf(name)) {
    const bool is_meant = !IsOver(rank->phase()) && rank->epoch() >= from;
    if (is_meant && !IsOfRival(gang, *rank)) running.insert(NodeId(rank->node_id()));
  }
  std::set<NodeId> nodes = running;
  for (const v1::Assignment& assignment : gang.record.plan().assignments()) {
    nodes.insert(NodeId(assignment.node_id()));
  }
  for (const NodeId& node : nodes) {
    const auto ending = endings_.find({node, name});
    const bool done = ending != endings_.end() && ending->second.answered &&
                      ending->second.up_to_epoch >= gang.epoch_seen &&
                      ending->second.from_epoch <= from && !running.contains(node);
    if (!done) EndOn(round, {node, name, gang.epoch_seen, gang.failure, from});
  }
}

void GangReconciler::EndOn(Round& round, StopRanks order) {
  const NodeView* view = round.Node(order.node);
  if (view == nullptr || !IsReachable(*view) || !view->orderable || order.up_to_epoch == 0) return;
  const auto [it, is_new] = endings_.try_emplace({order.node, order.deployment});
  Ending& ending = it->second;
  const bool covers =
      !is_new && ending.up_to_epoch >= order.up_to_epoch && ending.from_epoch <= order.from_epoch;
  if (covers && round.now - ending.sent_at < options_.end_retry) return;
  if (is_new) ending.from_epoch = order.from_epoch;
  ending = {std::max(ending.up_to_epoch, order.up_to_epoch), round.now, covers && ending.answered,
            std::min(ending.from_epoch, order.from_epoch)};
  round.effects.emplace_back(std::move(order));
}

bool GangReconciler::AllEnded(const Round& round, const std::string& name, const Gang& gang) const {
  for (const v1::RankStatus* rank : round.RanksOf(name)) {
    if (!IsOver(rank->phase())) return false;
  }
  for (const v1::Assignment& assignment : gang.record.plan().assignments()) {
    const NodeView* node = round.Node(NodeId(assignment.node_id()));
    // Who takes no orders (its disk is full) and reports no rank has nothing to end.
    if (node == nullptr || !IsReachable(*node) || !node->orderable) continue;
    const auto ending = endings_.find({node->id, name});
    const bool done = ending != endings_.end() && ending->second.answered &&
                      ending->second.up_to_epoch >= gang.record.epoch() &&
                      ending->second.from_epoch == 0;
    if (!done) return false;
  }
  return true;
}

// Ranks that belong to no gang in force: of removed deployments, of older or unknown epochs, on
// nodes that the record does not name, or launched by an order that was overtaken.
void GangReconciler::EndOrphans(Round& round) {
  if (InGrace(round.now)) return;
  for (const auto& [name, ranks] : round.ranks) {
    const auto found = gangs_.find(name);
    Gang* gang = found == gangs_.end() ? nullptr : &found->second;
    if (gang != nullptr && (gang->removing || gang->stage == Stage::kEnding)) continue;
    std::vector<const v1::RankStatus*> stay, orphans;
    for (const v1::RankStatus* rank : ranks) {
      if (IsOver(rank->phase())) continue;
      (MayStay(round, name, gang, *rank) ? stay : orphans).push_back(rank);
    }
    for (const v1::RankStatus* rank : orphans) EndOrphan(round, name, *rank, stay);
  }
}

// `gang`: of its deployment, null for none.
bool GangReconciler::MayStay(const Round& round, const std::string& name, Gang* gang,
                             const v1::RankStatus& rank) {
  if (gang == nullptr) return IsDraining(round, rank);
  // Not judged yet: some of its nodes are still on their way back.
  if (IsOfRival(*gang, rank) || IsInForce(*gang, rank)) return true;
  const bool gave_way = gang->gave_way.has_value() && gang->gave_way->epoch == rank.epoch();
  return gave_way ? IsGivingWay(round, name, *gang) : IsDraining(round, rank);
}

bool GangReconciler::IsInForce(const Gang& gang, const v1::RankStatus& rank) {
  const bool runs =
      gang.stage == Stage::kLaunching || gang.stage == Stage::kStarting || IsServing(gang);
  if (!runs || rank.epoch() != gang.record.epoch()) return false;
  const auto& parts = gang.record.plan().assignments();
  return std::any_of(parts.begin(), parts.end(), [&](const v1::Assignment& part) {
    return part.rank() == rank.rank() && part.node_id() == rank.node_id();
  });
}

void GangReconciler::EndOrphan(Round& round, const std::string& name, const v1::RankStatus& rank,
                               const std::vector<const v1::RankStatus*>& stay) {
  // An order names a span of epochs: those below it that stay are left out of it.
  uint64_t from = 0;
  for (const v1::RankStatus* kept : stay) {
    const bool is_below = kept->node_id() == rank.node_id() && kept->epoch() < rank.epoch();
    if (is_below) from = std::max(from, kept->epoch() + 1);
  }
  EndOn(round, {NodeId(rank.node_id()), name, rank.epoch(),
                MakeReason(reasons::kStaleTerm,
                           absl::StrCat("rank ", rank.rank(), " of '", name, "', epoch ",
                                        rank.epoch(), ", belongs to no gang in force"),
                           rank.node_id()),
                from});
}

Duration GangReconciler::Backoff(uint32_t failures) const {
  if (failures <= 1) return options_.first_backoff;
  const uint32_t doublings = std::min<uint32_t>(failures - 2, 20);
  return std::min<Duration>(std::chrono::seconds(int64_t{1} << doublings), options_.backoff_max);
}

}  // namespace macrame::agentd
