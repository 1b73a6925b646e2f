#include "agentd/cores/gang_reconciler.h"

#include <algorithm>
#include <set>
#include <utility>

#include "absl/strings/str_cat.h"
#include "agentd/cores/gang_round.h"
#include "proto/reasons.h"

namespace macrame::agentd {
namespace {

// What a gang is launched anew for when it changes.
std::string WantedOf(v1::Deployment deployment) {
  deployment.clear_replicas();
  deployment.clear_priority();
  deployment.clear_may_evict();
  return deployment.SerializeAsString();
}

}  // namespace

GangReconciler::GangReconciler(GangReconcilerOptions options) : options_(options) {}

void GangReconciler::BeginLeading(const FencePair& fence, MonotonicTime now) {
  StopLeading();
  leading_since_ = now;
  term_ = fence.term;
}

void GangReconciler::StopLeading() {
  for (const auto& [name, gang] : gangs_) {
    if (IsServing(gang) && !gang.removing) kept_.insert(name);
  }
  leading_since_.reset();
  orphan_since_.clear();
  own_failures_.clear();
  gangs_.clear();
  endings_.clear();
}

bool GangReconciler::InGrace(MonotonicTime now) const {
  return now - *leading_since_ < options_.adoption_grace;
}

GangReconciler::Round GangReconciler::MakeRound(const ClusterView& view, MonotonicTime now) const {
  Round round{view, now, {}, {}, {}, {}, {}, false, {}};
  std::map<NodeId, size_t> running;
  for (const NodeView& node : view.nodes) round.nodes[node.id] = &node;
  for (const v1::RankStatus& rank : view.ranks) {
    const NodeView* node = round.Node(NodeId(rank.node_id()));
    if (node == nullptr || !IsReachable(*node)) continue;
    round.ranks[rank.deployment()].push_back(&rank);
    if (!IsOver(rank.phase())) ++running[node->id];
  }
  for (const v1::GangRecord& record : view.gangs) round.records[record.deployment()] = &record;
  for (const v1::Deployment& wanted : view.deployments) round.deployments[wanted.name()] = &wanted;
  for (const auto& [id, node] : round.nodes) {
    if (!TakesRanks(*node)) continue;
    absl::StrAppend(&round.placement, id.value(), ":", node->inventory_revision, ":", running[id],
                    node->tenant.empty() ? "" : ":", node->tenant, " ");
  }
  return round;
}

GangEffects GangReconciler::Reconcile(const ClusterView& view, MonotonicTime now) {
  if (!leading_since_.has_value()) return {};
  Round round = MakeRound(view, now);
  TakeDeployments(round);
  kept_.clear();  // from here on gangs_ says it
  TakeApart();
  for (const auto& [name, gang] : gangs_) {
    round.busy |=
        !gang.removing && (gang.stage == Stage::kPlanning || gang.stage == Stage::kWriting ||
                           gang.stage == Stage::kLaunching);
  }
  for (const std::string& name : InOrder(round)) {
    Gang& gang = gangs_[name];
    for (const v1::RankStatus* rank : round.RanksOf(name)) {
      gang.epoch_seen = std::max(gang.epoch_seen, rank->epoch());
    }
    if (gang.removing && StepRemoving(round, name, gang)) {
      gangs_.erase(name);
      continue;
    }
    if (!gang.removing) {
      JudgeRivals(round, name, gang);
      CorrectBlame(round, name, gang);
      Step(round, name, gang);
    }
    Tell(round.effects, name, gang);
  }
  EndOrphans(round);
  return std::move(round.effects);
}

// The highest priority first, then who asked first: the order in which they are given memory.
std::vector<std::string> GangReconciler::InOrder(const Round& round) const {
  std::vector<std::tuple<int64_t, uint64_t, std::string>> order;
  for (const auto& [name, gang] : gangs_) {
    const auto wanted = round.deployments.find(name);
    const bool known = wanted != round.deployments.end();
    order.emplace_back(known ? -int64_t{wanted->second->priority()} : 0,
                       known ? wanted->second->created_unix_ms() : 0, name);
  }
  std::sort(order.begin(), order.end());
  std::vector<std::string> names;
  for (auto& [priority, created, name] : order) names.push_back(std::move(name));
  return names;
}

// --- what is wanted ------------------------------------------------------------------------------

void GangReconciler::TakeDeployments(Round& round) {
  for (const auto& [name, deployment] : round.deployments) {
    std::string wanted = WantedOf(*deployment);
    const auto [it, is_new] = gangs_.try_emplace(name);
    Gang& gang = it->second;
    const auto record = round.records.find(name);
    const bool merged = record != round.records.end() && IdOf(*record->second) != IdOf(gang.record);
    if (is_new) {
      gang.wanted = std::move(wanted);
      Adopt(round, name, gang);
      if (!IsFor(gang.record, gang.wanted)) TakeChange(round, name, gang, gang.wanted);
    } else if (!gang.removing && gang.wanted != wanted && merged &&
               record->second->wanted_hash() == HashOf(wanted)) {
      // A merge brought the changed deployment and the gang that was launched for it.
      gang.wanted = std::move(wanted);
      gang.refused.Clear();
      AdoptMerged(round, name, gang);
    } else if (gang.removing || gang.wanted != wanted) {
      TakeChange(round, name, gang, std::move(wanted));
    } else {
      AdoptMerged(round, name, gang);
    }
    TakePriority(round, *deployment, gang);
  }
  for (const auto& [name, record] : round.records) {
    if (round.deployments.contains(name) || gangs_.contains(name)) continue;
    Adopt(round, name, gangs_[name]);
  }
  for (auto& [name, gang] : gangs_) {
    if (gang.removing || round.deployments.contains(name)) continue;
    gang.removing = true;
    gang.failure =
        MakeReason(reasons::kModelNotLoaded, absl::StrCat("deployment '", name, "' was removed"));
    gang.gave_way.reset();
    BeginEnding(round, name, gang);
  }
}

// One that waits is planned anew at once when it matters more now, or may evict.
void GangReconciler::TakePriority(const Round& round, const v1::Deployment& deployment,
                                  Gang& gang) {
  if (gang.priority == deployment.priority() && gang.may_evict == deployment.may_evict()) return;
  const bool may_more =
      deployment.priority() > gang.priority || (deployment.may_evict() && !gang.may_evict);
  gang.priority = deployment.priority();
  gang.may_evict = deployment.may_evict();
  gang.planned_on.clear();
  if (IsEvicting(deployment.name(), gang, round.now)) return;
  gang.refused.Clear();
  if (may_more) gang.evicted_at.reset();
}

// The record can change under a coordinator only by a merge with another half, whose write won:
// then it is the other half's gang that is in force.
void GangReconciler::AdoptMerged(const Round& round, const std::string& name, Gang& gang) {
  const auto found = round.records.find(name);
  const bool writing = gang.stage == Stage::kWriting || gang.stage == Stage::kLaunching;
  if (found == round.records.end() || writing) return;
  const v1::GangRecord& record = *found->second;
  bool same = record.epoch() == gang.record.epoch() &&
              record.plan().assignments_size() == gang.record.plan().assignments_size();
  for (int i = 0; same && i < record.plan().assignments_size(); ++i) {
    same = record.plan().assignments(i).node_id() == gang.record.plan().assignments(i).node_id();
  }
  if (same) return;
  gang.progress.clear();
  gang.planned.reset();
  gang.is_moving = false;
  gang.lowest_phase = v1::RANK_PHASE_UNSPECIFIED;
  Adopt(round, name, gang);
}

// A gang that another coordinator launched, or none yet. Whether its ranks are there shows in time.
void GangReconciler::Adopt(const Round& round, const std::string& name, Gang& gang) {
  gang.since = gang.lowest_phase_since = round.now;
  const auto removed = round.view.removed_epochs.find(name);
  if (removed != round.view.removed_epochs.end()) {
    gang.epoch_seen = std::max(gang.epoch_seen, removed->second);
  }
  const auto record = round.records.find(name);
  if (record == round.records.end()) return;
  gang.record = *record->second;
  gang.epoch_seen = std::max(gang.epoch_seen, gang.record.epoch());
  gang.failures = std::max(gang.failures, gang.record.attempts());
  gang.failure = gang.record.last_failure();
  gang.stage = gang.record.plan().assignments().empty() ? Stage::kPending : Stage::kStarting;
  gang.has_served |= gang.record.ready_unix_ms() != 0;
  gang.has_given_up = gang.stage == Stage::kPending && GivesUp(gang);
  if (gang.has_given_up) gang.refused = gang.failure;
  if (gang.record.has_unreachable()) NoteRival(gang, gang.record.unreachable());
}

void GangReconciler::TakeChange(Round& round, const std::string& name, Gang& gang,
                                std::string wanted) {
  gang.wanted = std::move(wanted);
  gang.refused.Clear();
  gang.planned_on.clear();
  gang.has_served = gang.has_given_up = false;
  gang.accused.clear();
  gang.elsewhere_until.reset();
  gang.restoring = {};
  gang.restore_try = {};
  if (!IsEvicting(name, gang, round.now)) gang.evicted_at.reset();
  const bool ran =
      gang.is_moving || (gang.stage != Stage::kPending && gang.stage != Stage::kPlanning);
  if (gang.removing || ran) {
    gang.gave_way.reset();
    gang.failure =
        MakeReason(reasons::kSnapshotStale,
                   absl::StrCat("deployment '", name, "' was changed and is launched anew"));
    gang.failures = 0;
    if (!gang.removing) BeginEnding(round, name, gang);
    gang.removing = false;
    gang.retry_at = round.now;
  } else {
    gang.planned.reset();
    Enter(gang, Stage::kPending, round.now);
  }
}

// True when nothing of it is left.
bool GangReconciler::StepRemoving(Round& round, const std::string& name, Gang& gang) {
  EndEverywhere(round, name, gang);
  const bool ended = AllEnded(round, name, gang) || round.now - gang.since >= options_.ending_limit;
  if (!ended || InGrace(round.now)) return false;
  if (!round.records.contains(name)) return true;
  if (gang.stage == Stage::kEnding || round.now >= gang.retry_at) {
    gang.stage = Stage::kBackingOff;  // the record is asked to go again, should it stay
    gang.retry_at = round.now + options_.end_retry;
    round.effects.emplace_back(RemoveGang{name, gang.epoch_seen});
  }
  return false;
}

// --- stages --------------------------------------------------------------------------------------

void GangReconciler::Enter(Gang& gang, Stage stage, MonotonicTime now) {
  gang.stage = stage;
  gang.since = now;
}

void GangReconciler::Step(Round& round, const std::string& name, Gang& gang) {
  switch (gang.stage) {
    case Stage::kPending:
      return StepPending(round, name, gang);
    case Stage::kPlanning:
      return StepPlanning(round, name, gang);
    case Stage::kWriting:
      if (round.now - gang.since < options_.write_limit) return;
      return Fail(round, name, gang,
                  MakeReason(reasons::kNotAcknowledged,
                             absl::StrCat("the record of epoch ", gang.record.epoch(), " of '",
                                          name, "' was not on disk on a majority in time")));
    case Stage::kLaunching:
      return StepLaunching(round, name, gang);
    case Stage::kStarting:
    case Stage::kReady:
      return StepRunning(round, name, gang);
    case Stage::kEnding:
      return StepEnding(round, name, gang);
    case Stage::kBackingOff:
      if (round.now < gang.retry_at) return;
      if (GivesUp(gang) && !TriesElsewhere(round, name, gang)) return GiveUp(round, name, gang);
      Enter(gang, Stage::kPending, round.now);
      gang.refused.Clear();
      gang.planned_on.clear();
      return StepPending(round, name, gang);
  }
}

void GangReconciler::StepPending(Round& round, const std::string& name, Gang& gang) {
  if (gang.has_given_up || IsGivingWay(round, name, gang)) return;
  // Those that it preempts end first, and nobody who matters less takes their memory meanwhile.
  round.busy = round.busy || AwaitsVictim(name);
  if (round.busy || InGrace(round.now) || !HasYielded(round, gang)) return;
  const bool same = !gang.refused.code().empty() && gang.planned_on == round.placement;
  const bool evicting = IsEvicting(name, gang, round.now);
  // What it held itself before it gave way is seen to be free as late as what others held.
  const bool hurries = evicting || (gang.gave_way.has_value() &&
                                    round.now - gang.gave_way->since < 2 * gang.gave_way->limit);
  const Duration pause = hurries ? options_.replan_after_eviction : options_.replan_interval;
  if (same && round.now - gang.since < pause) return;
  const bool may_again =
      !gang.evicted_at.has_value() || round.now - *gang.evicted_at >= options_.eviction_pause;
  AskForPlan(round, name, gang, may_again && round.deployments.at(name)->may_evict());
}

void GangReconciler::AskForPlan(Round& round, const std::string& name, Gang& gang, bool may_evict) {
  gang.planned_on = round.placement;
  gang.planned.reset();
  Enter(gang, Stage::kPlanning, round.now);
  round.busy = true;
  std::set<NodeId> unusable;
  for (const auto& [node, fault] : gang.accused) unusable.insert(node);
  round.effects.emplace_back(PlanDeployment{*round.deployments.at(name), may_evict, InForce(),
                                            RefusesUnevenSlices(gang.record), LeftOut(round.now),
                                            std::move(unusable), gang.restoring.is_asked});
}

std::set<std::string> GangReconciler::InForce() const {
  std::set<std::string> names;
  for (const auto& [name, gang] : gangs_) {
    const bool holds = gang.stage == Stage::kWriting || gang.stage == Stage::kLaunching ||
                       gang.stage == Stage::kStarting || gang.stage == Stage::kReady;
    if (holds && !gang.removing) names.insert(name);
  }
  return names;
}

// Back to pending: it does not fit now. Not a failure of the gang, so no back-off.
void GangReconciler::Refuse(Round& round, const std::string& name, Gang& gang, v1::Reason why) {
  if (gang.restoring.is_asked) return StayShort(round, name, gang, std::move(why));
  if (gang.is_moving) return StayOrGiveWay(round, name, gang, std::move(why));
  const bool may_change =
      why.code() == reasons::kMemoryShort || why.code() == reasons::kSnapshotStale;
  if (gang.elsewhere_until.has_value() && !gang.has_served &&
      (!may_change || round.now >= *gang.elsewhere_until)) {
    gang.failure = gang.accused.begin()->second;
    return GiveUp(round, name, gang);
  }
  // Right after an eviction free memory is not seen everywhere yet: still under way.
  const bool awaits = IsEvicting(name, gang, round.now) &&
                      gang.refused.code() == reasons::kAwaitsRoom &&
                      why.code() == reasons::kMemoryShort;
  const bool is_known =
      gang.refused.code() == why.code() && gang.refused.message() == why.message();
  if (!awaits) gang.refused = std::move(why);
  gang.planned.reset();
  Enter(gang, Stage::kPending, round.now);
  if (is_known) return;  // planned again, to the same end: that is said once
  round.effects.emplace_back(
      Notify{name, v1::DEPLOYMENT_STATE_PENDING, gang.record.epoch(), gang.refused});
}

void GangReconciler::StepPlanning(Round& round, const std::string& name, Gang& gang) {
  if (!gang.planned.has_value()) {
    if (round.now - gang.since < options_.plan_limit) return;
    return Refuse(
        round, name, gang,
        MakeReason(reasons::kInternal, absl::StrCat("planning '", name, "' gave no answer in ",
                                                    Seconds(options_.plan_limit), " s")));
  }
  const v1::PlanResult result = *std::exchange(gang.planned, std::nullopt);
  if (result.evicted_size() > 0) return Evict(round, name, gang, result);
  if (!result.has_plan() || result.plan().assignments().empty()) {
    v1::Reason why = result.failure();
    if (why.code().empty())
      why = MakeReason(reasons::kInternal, "the planner gave neither plan nor reason");
    return Refuse(round, name, gang, std::move(why));
  }
  for (const v1::Assignment& assignment : result.plan().assignments()) {
    const NodeView* node = round.Node(NodeId(assignment.node_id()));
    if (node != nullptr && TakesRanks(*node) && !MustLeave(round, name, *node)) continue;
    return Refuse(round, name, gang,
                  MakeReason(reasons::kSnapshotStale,
                             absl::StrCat("the node of ", Place(assignment), " went while '", name,
                                          "' was planned"),
                             assignment.node_id()));
  }
  if (gang.restoring.is_asked && !IsWorthIt(round, name, gang, result)) {
    return StayShort(round, name, gang, {});
  }
  if (gang.restoring.is_asked) {
    std::set<NodeId> nodes;
    for (const v1::Assignment& assignment : result.plan().assignments()) {
      nodes.insert(NodeId(assignment.node_id()));
    }
    NoteRestore(nodes, gang, round.now);
  }
  if (gang.is_moving) GiveWay(round, name, gang);
  gang.restoring = {};
  NoteLesserBackend(name, gang, result.plan());
  gang.fell_back = false;
  v1::GangRecord record;
  record.set_deployment(name);
  gang.epoch_seen = std::max(gang.epoch_seen, term_.value() * kEpochsPerTerm) + 1;
  record.set_epoch(gang.epoch_seen);
  *record.mutable_plan() = result.plan();
  record.set_attempts(gang.record.attempts() + 1);
  *record.mutable_last_failure() = gang.failure;
  *record.mutable_fallbacks() = gang.record.fallbacks();
  record.set_fast_synch_suspended(gang.record.fast_synch_suspended());
  record.set_entry_node_id(result.plan().assignments(0).node_id());
  record.set_wanted_hash(HashOf(gang.wanted));
  if (gang.record.ready_unix_ms() != 0 && IsAway(round, gang.record)) {
    *record.mutable_unreachable() = gang.record;
    record.mutable_unreachable()->clear_unreachable();
    NoteRival(gang, record.unreachable());
  } else if (gang.record.has_unreachable() &&
             gang.rivals.contains(IdOf(gang.record.unreachable()))) {
    *record.mutable_unreachable() = gang.record.unreachable();
  }
  gang.record = record;
  gang.progress.clear();
  gang.lowest_phase = v1::RANK_PHASE_UNSPECIFIED;
  gang.launch_due = false;
  Enter(gang, Stage::kWriting, round.now);
  round.effects.emplace_back(WriteGang{std::move(record)});
}

void GangReconciler::StepLaunching(Round& round, const std::string& name, Gang& gang) {
  if (auto loss = FindLoss(round, name, gang.record); loss.has_value()) {
    if (AwaitsCause(round, name, *loss, gang)) return;
    return Fail(round, name, gang, *std::move(loss));
  }
  if (std::exchange(gang.launch_due, false)) {
    round.effects.emplace_back(ReserveAndLaunch{*round.deployments.at(name), gang.record.plan(),
                                                gang.record.epoch(),
                                                gang.record.fast_synch_suspended()});
  } else if (round.now - gang.since >= options_.launch_limit) {
    Fail(round, name, gang,
         MakeReason(reasons::kRankStalled,
                    absl::StrCat("launching the ranks of '", name, "' took more than ",
                                 Seconds(options_.launch_limit), " s")));
  }
}

void GangReconciler::StepRunning(Round& round, const std::string& name, Gang& gang) {
  NoteProgress(round, name, gang);
  const auto broken = round.view.broken_transports.find(name);
  const bool is_broken = broken != round.view.broken_transports.end();
  auto failure = FindLoss(round, name, gang.record);
  if (!failure.has_value() || TellsOfAnother(*failure)) {
    if (auto missing = FindMissing(round, name, gang)) failure = std::move(missing);
  }
  const bool awaits_cause = failure.has_value() && AwaitsCause(round, name, *failure, gang);
  if (awaits_cause) {
    if (!is_broken) return;
    failure.reset();
  } else {
    if (!failure.has_value()) failure = FindOverdue(round, name, gang);
    if (!failure.has_value()) failure = FindMismatch(round, name, gang);
  }
  if (failure.has_value()) return Fail(round, name, gang, *std::move(failure));
  if (is_broken) {
    NoteFallback(name, gang, broken->second, "goes on without");
    return Fail(round, name, gang, broken->second);
  }
  const NodeView* leaving = LeavingNode(round, name, gang);
  if (leaving != nullptr && LeaveNode(round, name, gang, *leaving)) return;
  if (gang.stage == Stage::kReady) {
    if (round.now - gang.since >= options_.stable_after) gang.failures = 0;
    Restore(round, name, gang);
  } else if (gang.lowest_phase == v1::RANK_PHASE_READY) {
    BecomeReady(round, name, gang);
  }
}

void GangReconciler::BecomeReady(Round& round, const std::string& name, Gang& gang) {
  Enter(gang, Stage::kReady, round.now);
  gang.has_served = true;
  if (!gang.restore_try.added.empty()) gang.restore_try = {};
  gang.evicted_at.reset();
  if (gang.record.attempts() != 0 || gang.record.ready_unix_ms() == 0) {
    gang.record.set_attempts(0);
    if (gang.record.ready_unix_ms() == 0) gang.record.set_ready_unix_ms(round.view.unix_ms);
    round.effects.emplace_back(WriteGang{gang.record});
  }
  Tell(round.effects, name, gang);
}

void GangReconciler::StepEnding(Round& round, const std::string& name, Gang& gang) {
  EndEverywhere(round, name, gang);
  if (IsGivingWay(round, name, gang)) return;
  if (!AllEnded(round, name, gang) && round.now - gang.since < options_.ending_limit) return;
  Enter(gang, Stage::kBackingOff, round.now);
  // Its record stays for long, and must not look like a gang that runs.
  if (gang.yields_to.empty() || gang.record.plan().assignments().empty()) return;
  gang.record.clear_plan();
  gang.record.clear_entry_node_id();
  gang.record.set_attempts(0);
  round.effects.emplace_back(WriteGang{gang.record});
}

}  // namespace macrame::agentd
