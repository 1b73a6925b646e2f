#include "agentd/cores/gang_reconciler.h"

#include <algorithm>
#include <set>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "proto/check.h"
#include "proto/phase_words.h"
#include "proto/reasons.h"

namespace macrame::agentd {
namespace {

constexpr int kFallbacksKept = 8;

bool IsReachable(const NodeView& node) {
  return node.state == v1::NODE_STATE_ALIVE || node.state == v1::NODE_STATE_SUSPECT;
}

bool IsOver(v1::RankPhase phase) {
  return phase == v1::RANK_PHASE_FAILED || phase == v1::RANK_PHASE_STOPPED;
}

// What a rank says when it was another that failed.
bool IsSymptom(std::string_view code) {
  return code == "PEER_LOST" || code == "CONNECT_FAILED" || code == "RANK_EXITED";
}

// Failures before the group is there that another backend may not have.
bool IsOfTransport(std::string_view code) {
  static constexpr std::string_view kCodes[] = {"CONNECT_FAILED",
                                                "INIT_STALLED",
                                                "PHASE_DEADLINE",
                                                "GROUP_MISMATCH",
                                                "PORT_DOWN",
                                                "NO_VERBS_DEVICE",
                                                "NO_IPV4_GID",
                                                "NO_PROTECTION_DOMAIN",
                                                "PEER_LOST",
                                                "VERBS_LIBRARY_MISSING",
                                                "TRANSPORT_UNAVAILABLE",
                                                "RENDEZVOUS_UNREACHABLE",
                                                "COLLECTIVE_FAILED",
                                                "RING_NON_NEIGHBOUR",
                                                "RANK_EXITED"};
  return std::find(std::begin(kCodes), std::end(kCodes), code) != std::end(kCodes);
}

double Seconds(Duration duration) { return std::chrono::duration<double>(duration).count(); }

// What a gang is launched anew for when it changes.
std::string WantedOf(v1::Deployment deployment) {
  deployment.clear_replicas();
  deployment.clear_priority();
  deployment.clear_may_evict();
  return deployment.SerializeAsString();
}

std::string Place(const v1::Assignment& assignment) {
  const std::string host =
      assignment.hostname().empty() ? ShortId(NodeId(assignment.node_id())) : assignment.hostname();
  return absl::StrCat("rank ", assignment.rank(), " on ", host);
}

}  // namespace

// What one Reconcile looks at, by the keys that it is looked up by.
struct GangReconciler::Round {
  const ClusterView& view;
  MonotonicTime now;
  std::map<NodeId, const NodeView*> nodes;
  std::map<std::string, std::vector<const v1::RankStatus*>> ranks;  // of reachable nodes
  std::map<std::string, const v1::GangRecord*> records;
  std::map<std::string, const v1::Deployment*> deployments;
  std::string placement;  // the nodes that a plan could use, with their revisions
  bool busy = false;      // one deployment is between planning and launched
  GangEffects effects;

  const NodeView* Node(const NodeId& id) const {
    const auto it = nodes.find(id);
    return it == nodes.end() ? nullptr : it->second;
  }
  const std::vector<const v1::RankStatus*>& RanksOf(const std::string& name) const {
    static const std::vector<const v1::RankStatus*> kNone;
    const auto it = ranks.find(name);
    return it == ranks.end() ? kNone : it->second;
  }
  const v1::RankStatus* RankOf(const std::string& name, uint64_t epoch,
                               const v1::Assignment& assignment) const {
    for (const v1::RankStatus* rank : RanksOf(name)) {
      if (rank->epoch() == epoch && rank->rank() == assignment.rank() &&
          rank->node_id() == assignment.node_id()) {
        return rank;
      }
    }
    return nullptr;
  }
};

GangReconciler::GangReconciler(GangReconcilerOptions options) : options_(options) {}

void GangReconciler::BeginLeading(const FencePair& fence, MonotonicTime now) {
  StopLeading();
  leading_since_ = now;
  term_ = fence.term;
}

void GangReconciler::StopLeading() {
  leading_since_.reset();
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
    if (node->state != v1::NODE_STATE_ALIVE || !node->orderable) continue;
    absl::StrAppend(&round.placement, id.value(), ":", node->inventory_revision, ":", running[id],
                    " ");
  }
  return round;
}

GangEffects GangReconciler::Reconcile(const ClusterView& view, MonotonicTime now) {
  if (!leading_since_.has_value()) return {};
  Round round = MakeRound(view, now);
  TakeDeployments(round);
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
    if (!gang.removing) Step(round, name, gang);
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
    if (is_new) {
      gang.wanted = std::move(wanted);
      Adopt(round, name, gang);
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
        MakeReason("MODEL_NOT_LOADED", absl::StrCat("deployment '", name, "' was removed"));
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
}

void GangReconciler::TakeChange(Round& round, const std::string& name, Gang& gang,
                                std::string wanted) {
  gang.wanted = std::move(wanted);
  gang.refused.Clear();
  gang.planned_on.clear();
  if (!IsEvicting(name, gang, round.now)) gang.evicted_at.reset();
  const bool ran = gang.stage != Stage::kPending && gang.stage != Stage::kPlanning;
  if (gang.removing || ran) {
    gang.failure = MakeReason(
        "SNAPSHOT_STALE", absl::StrCat("deployment '", name, "' was changed and is launched anew"));
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
                  MakeReason("NOT_ACKNOWLEDGED",
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
      Enter(gang, Stage::kPending, round.now);
      gang.refused.Clear();
      gang.planned_on.clear();
      return StepPending(round, name, gang);
  }
}

void GangReconciler::StepPending(Round& round, const std::string& name, Gang& gang) {
  // Those that make room for it end first, and nobody who matters less takes that room meanwhile.
  round.busy = round.busy || AwaitsVictim(name);
  if (round.busy || InGrace(round.now) || !HasYielded(round, gang)) return;
  const bool same = !gang.refused.code().empty() && gang.planned_on == round.placement;
  const bool evicting = IsEvicting(name, gang, round.now);
  const Duration pause = evicting ? options_.replan_after_eviction : options_.replan_interval;
  if (same && round.now - gang.since < pause) return;
  gang.planned_on = round.placement;
  gang.planned.reset();
  Enter(gang, Stage::kPlanning, round.now);
  round.busy = true;
  const v1::Deployment& deployment = *round.deployments.at(name);
  const bool may_again =
      !gang.evicted_at.has_value() || round.now - *gang.evicted_at >= options_.eviction_pause;
  round.effects.emplace_back(
      PlanDeployment{deployment, deployment.may_evict() && may_again, InForce()});
}

bool GangReconciler::AwaitsVictim(const std::string& name) const {
  return std::any_of(gangs_.begin(), gangs_.end(), [&](const auto& item) {
    return item.second.yields_to == name && item.second.stage == Stage::kEnding;
  });
}

bool GangReconciler::IsEvicting(const std::string& name, const Gang& gang,
                                MonotonicTime now) const {
  if (!gang.evicted_at.has_value()) return false;
  return now - *gang.evicted_at < options_.eviction_limit || AwaitsVictim(name);
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

// What was evicted is planned again once the one that it made room for is ready, or won't be soon.
bool GangReconciler::HasYielded(const Round& round, Gang& gang) const {
  if (gang.yields_to.empty()) return true;
  const auto found = gangs_.find(gang.yields_to);
  bool waits = false;
  if (found != gangs_.end() && !found->second.removing && found->second.evicted_at.has_value()) {
    const Gang& heir = found->second;
    const bool on_its_way = heir.stage == Stage::kPlanning || heir.stage == Stage::kWriting ||
                            heir.stage == Stage::kLaunching || heir.stage == Stage::kStarting;
    waits = on_its_way || IsEvicting(gang.yields_to, heir, round.now);
  }
  if (waits) gang.refused = gang.failure;
  if (!waits) gang.yields_to.clear();
  return !waits;
}

// Ends those that have to go; the plan is made again when they are gone.
void GangReconciler::Evict(Round& round, const std::string& name, Gang& gang,
                           const v1::PlanResult& result) {
  const v1::Deployment& heir = *round.deployments.at(name);
  const int32_t priority = heir.priority();
  std::vector<std::string> gone;
  for (const std::string& other : result.evicted()) {
    const auto victim = gangs_.find(other);
    const auto wanted = round.deployments.find(other);
    if (!heir.may_evict() || victim == gangs_.end() || wanted == round.deployments.end() ||
        victim->second.removing || wanted->second->priority() >= priority) {
      continue;
    }
    victim->second.failure = MakeReason(
        "EVICTED",
        absl::StrCat("'", other, "' makes room for '", name, "', which has priority ", priority));
    victim->second.retry_at = round.now;
    victim->second.yields_to = name;
    victim->second.evicted_at.reset();  // what went for it need not wait for it any more
    BeginEnding(round, other, victim->second);
    gone.push_back(other);
  }
  if (gone.empty()) {
    return Refuse(round, name, gang,
                  MakeReason("MEMORY_SHORT", absl::StrCat("'", name, "' fits only without ",
                                                          absl::StrJoin(result.evicted(), ", "),
                                                          ", which can't go for it")));
  }
  gang.evicted_at = round.now;
  Refuse(round, name, gang,
         MakeReason("AWAITS_ROOM", absl::StrCat("'", name, "' waits until ",
                                                absl::StrJoin(gone, ", "), " made room for it")));
}

// Back to pending: it does not fit now. Not a failure of the gang, so no back-off.
void GangReconciler::Refuse(Round& round, const std::string& name, Gang& gang, v1::Reason why) {
  // Right after an eviction free memory is not seen everywhere yet: still under way.
  const bool awaits = IsEvicting(name, gang, round.now) && gang.refused.code() == "AWAITS_ROOM" &&
                      why.code() == "MEMORY_SHORT";
  if (!awaits) gang.refused = std::move(why);
  gang.planned.reset();
  Enter(gang, Stage::kPending, round.now);
  round.effects.emplace_back(
      Notify{name, v1::DEPLOYMENT_STATE_PENDING, gang.record.epoch(), gang.refused});
}

void GangReconciler::StepPlanning(Round& round, const std::string& name, Gang& gang) {
  if (!gang.planned.has_value()) {
    if (round.now - gang.since < options_.plan_limit) return;
    return Refuse(round, name, gang,
                  MakeReason("INTERNAL", absl::StrCat("planning '", name, "' gave no answer in ",
                                                      Seconds(options_.plan_limit), " s")));
  }
  const v1::PlanResult result = *std::exchange(gang.planned, std::nullopt);
  if (result.evicted_size() > 0) return Evict(round, name, gang, result);
  if (!result.has_plan() || result.plan().assignments().empty()) {
    v1::Reason why = result.failure();
    if (why.code().empty())
      why = MakeReason("INTERNAL", "the planner gave neither plan nor reason");
    return Refuse(round, name, gang, std::move(why));
  }
  for (const v1::Assignment& assignment : result.plan().assignments()) {
    const NodeView* node = round.Node(NodeId(assignment.node_id()));
    if (node != nullptr && node->state == v1::NODE_STATE_ALIVE && node->orderable) continue;
    return Refuse(round, name, gang,
                  MakeReason("SNAPSHOT_STALE",
                             absl::StrCat("the node of ", Place(assignment), " went while '", name,
                                          "' was planned"),
                             assignment.node_id()));
  }
  v1::GangRecord record;
  record.set_deployment(name);
  gang.epoch_seen = std::max(gang.epoch_seen, term_.value() * kEpochsPerTerm) + 1;
  record.set_epoch(gang.epoch_seen);
  *record.mutable_plan() = result.plan();
  record.set_attempts(gang.record.attempts() + 1);
  *record.mutable_last_failure() = gang.failure;
  *record.mutable_fallbacks() = gang.record.fallbacks();
  record.set_entry_node_id(result.plan().assignments(0).node_id());
  gang.record = record;
  gang.progress.clear();
  gang.lowest_phase = v1::RANK_PHASE_UNSPECIFIED;
  gang.launch_due = false;
  Enter(gang, Stage::kWriting, round.now);
  round.effects.emplace_back(WriteGang{std::move(record)});
}

void GangReconciler::StepLaunching(Round& round, const std::string& name, Gang& gang) {
  if (auto loss = FindLoss(round, name, gang); loss.has_value()) {
    return Fail(round, name, gang, *std::move(loss));
  }
  if (std::exchange(gang.launch_due, false)) {
    round.effects.emplace_back(
        ReserveAndLaunch{*round.deployments.at(name), gang.record.plan(), gang.record.epoch()});
  } else if (round.now - gang.since >= options_.launch_limit) {
    Fail(round, name, gang,
         MakeReason("RANK_STALLED",
                    absl::StrCat("launching the ranks of '", name, "' took more than ",
                                 Seconds(options_.launch_limit), " s")));
  }
}

void GangReconciler::StepRunning(Round& round, const std::string& name, Gang& gang) {
  NoteProgress(round, name, gang);
  auto failure = FindLoss(round, name, gang);
  if (!failure.has_value()) failure = FindMissing(round, name, gang);
  if (!failure.has_value()) failure = FindOverdue(round, name, gang);
  if (!failure.has_value()) failure = FindMismatch(round, name, gang);
  if (failure.has_value()) return Fail(round, name, gang, *std::move(failure));
  const auto broken = round.view.broken_transports.find(name);
  if (broken != round.view.broken_transports.end()) {
    NoteFallback(name, gang, broken->second, "goes on without");
    return Fail(round, name, gang, broken->second);
  }
  if (gang.stage == Stage::kReady) {
    if (round.now - gang.since >= options_.stable_after) gang.failures = 0;
  } else if (gang.lowest_phase == v1::RANK_PHASE_READY) {
    BecomeReady(round, name, gang);
  }
}

void GangReconciler::BecomeReady(Round& round, const std::string& name, Gang& gang) {
  Enter(gang, Stage::kReady, round.now);
  gang.evicted_at.reset();
  if (gang.record.attempts() != 0) {
    gang.record.set_attempts(0);
    round.effects.emplace_back(WriteGang{gang.record});
  }
  Tell(round.effects, name, gang);
}

void GangReconciler::StepEnding(Round& round, const std::string& name, Gang& gang) {
  EndEverywhere(round, name, gang);
  if (!AllEnded(round, name, gang) && round.now - gang.since < options_.ending_limit) return;
  Enter(gang, Stage::kBackingOff, round.now);
  // Its record stays for long, and must not look like a gang that runs.
  if (gang.yields_to.empty() || gang.record.plan().assignments().empty()) return;
  gang.record.clear_plan();
  gang.record.clear_entry_node_id();
  gang.record.set_attempts(0);
  round.effects.emplace_back(WriteGang{gang.record});
}

// --- what went wrong -----------------------------------------------------------------------------

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
                                                   const Gang& gang) const {
  for (const v1::Assignment& assignment : gang.record.plan().assignments()) {
    const NodeView* node = round.Node(NodeId(assignment.node_id()));
    if (node == nullptr ? InGrace(round.now) : IsReachable(*node)) continue;
    return MakeReason("GANG_LOST_NODE",
                      absl::StrCat("'", name, "' lost the node of ", Place(assignment)),
                      assignment.node_id());
  }
  std::optional<v1::Reason> found;
  for (const v1::Assignment& assignment : gang.record.plan().assignments()) {
    const v1::RankStatus* rank = round.RankOf(name, gang.record.epoch(), assignment);
    if (rank == nullptr || rank->phase() < v1::RANK_PHASE_STOPPING) continue;
    v1::Reason why = rank->failure();
    if (why.code().empty()) {
      why = MakeReason("RANK_EXITED", absl::StrCat(Place(assignment), " of '", name, "' is ",
                                                   PhaseWord(rank->phase())));
    }
    why.set_node_id(assignment.node_id());
    if (why.code() == "RANK_KILLED") return why;
    if (!found.has_value() || (IsSymptom(found->code()) && !IsSymptom(why.code()))) {
      found = std::move(why);
    }
  }
  return found;
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
        "RANK_EXITED",
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
        "GROUP_MISMATCH",
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
  return MakeReason(all_met ? "INIT_STALLED" : "PHASE_DEADLINE",
                    absl::StrCat("'", name, "' stood still ", PhaseWord(phase), " for ",
                                 Seconds(limit), " s: ", late),
                    node.value());
}

// --- ending --------------------------------------------------------------------------------------

void GangReconciler::Fail(Round& round, const std::string& name, Gang& gang, v1::Reason why) {
  gang.failure = std::move(why);
  ++gang.failures;
  gang.retry_at = round.now + Backoff(gang.failures);
  FallBack(round, name, gang);
  BeginEnding(round, name, gang);
}

// What keeps the group from being formed, unless it plainly is something else.
void GangReconciler::FallBack(Round& round, const std::string& name, Gang& gang) {
  const v1::Plan& plan = gang.record.plan();
  const bool forming =
      gang.stage == Stage::kStarting && gang.lowest_phase <= v1::RANK_PHASE_CONNECTING;
  const bool has_lesser = plan.backend() == "jaccl" || plan.backend() == "verbs";
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
  if (gang.record.fallbacks_size() >= kFallbacksKept) {
    gang.record.mutable_fallbacks()->DeleteSubrange(0, 1);
  }
  v1::Reason& fallback = *gang.record.add_fallbacks();
  fallback =
      MakeReason("TRANSPORT_FALLBACK",
                 absl::StrCat("'", name, "' ", absl::string_view(how.data(), how.size()), " ",
                              gang.record.plan().backend(), ": ", why.code(), ": ", why.message()),
                 why.node_id());
  fallback.set_evidence(why.evidence());
}

void GangReconciler::BeginEnding(Round& round, const std::string& name, Gang& gang) {
  Enter(gang, Stage::kEnding, round.now);
  gang.planned.reset();
  gang.launch_due = false;
  std::erase_if(endings_, [&](const auto& item) { return item.first.second == name; });
  EndEverywhere(round, name, gang);
}

void GangReconciler::EndEverywhere(Round& round, const std::string& name, const Gang& gang) {
  std::set<NodeId> running;
  for (const v1::RankStatus* rank : round.RanksOf(name)) {
    if (!IsOver(rank->phase())) running.insert(NodeId(rank->node_id()));
  }
  std::set<NodeId> nodes = running;
  for (const v1::Assignment& assignment : gang.record.plan().assignments()) {
    nodes.insert(NodeId(assignment.node_id()));
  }
  for (const NodeId& node : nodes) {
    const auto ending = endings_.find({node, name});
    const bool done = ending != endings_.end() && ending->second.answered &&
                      ending->second.up_to_epoch >= gang.epoch_seen && !running.contains(node);
    if (!done) EndOn(round, node, name, gang.epoch_seen, gang.failure);
  }
}

void GangReconciler::EndOn(Round& round, const NodeId& node, const std::string& name,
                           uint64_t up_to_epoch, const v1::Reason& why) {
  const NodeView* view = round.Node(node);
  if (view == nullptr || !IsReachable(*view) || !view->orderable || up_to_epoch == 0) return;
  const auto [it, is_new] = endings_.try_emplace({node, name});
  Ending& ending = it->second;
  if (!is_new && ending.up_to_epoch >= up_to_epoch &&
      round.now - ending.sent_at < options_.end_retry) {
    return;
  }
  const bool answered = !is_new && ending.answered && ending.up_to_epoch >= up_to_epoch;
  ending = {std::max(ending.up_to_epoch, up_to_epoch), round.now, answered};
  round.effects.emplace_back(EndRanks{node, name, up_to_epoch, why});
}

bool GangReconciler::AllEnded(const Round& round, const std::string& name, const Gang& gang) const {
  for (const v1::RankStatus* rank : round.RanksOf(name)) {
    if (!IsOver(rank->phase())) return false;
  }
  for (const v1::Assignment& assignment : gang.record.plan().assignments()) {
    const NodeView* node = round.Node(NodeId(assignment.node_id()));
    if (node == nullptr || !IsReachable(*node)) continue;
    const auto ending = endings_.find({node->id, name});
    const bool done = ending != endings_.end() && ending->second.answered &&
                      ending->second.up_to_epoch >= gang.record.epoch();
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
    const Gang* gang = found == gangs_.end() ? nullptr : &found->second;
    if (gang != nullptr && (gang->removing || gang->stage == Stage::kEnding)) continue;
    const bool in_force =
        gang != nullptr && (gang->stage == Stage::kLaunching || gang->stage == Stage::kStarting ||
                            gang->stage == Stage::kReady);
    for (const v1::RankStatus* rank : ranks) {
      if (IsOver(rank->phase())) continue;
      bool belongs = false;
      if (in_force && rank->epoch() == gang->record.epoch()) {
        for (const v1::Assignment& assignment : gang->record.plan().assignments()) {
          belongs |= assignment.rank() == rank->rank() && assignment.node_id() == rank->node_id();
        }
      }
      if (belongs) continue;
      EndOn(round, NodeId(rank->node_id()), name, rank->epoch(),
            MakeReason("STALE_TERM",
                       absl::StrCat("rank ", rank->rank(), " of '", name, "', epoch ",
                                    rank->epoch(), ", belongs to no gang in force"),
                       rank->node_id()));
    }
  }
}

Duration GangReconciler::Backoff(uint32_t failures) const {
  if (failures <= 1) return options_.first_backoff;
  const uint32_t doublings = std::min<uint32_t>(failures - 2, 20);
  return std::min<Duration>(std::chrono::seconds(int64_t{1} << doublings), options_.backoff_max);
}

}  // namespace macrame::agentd
