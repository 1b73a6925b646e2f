#pragma once

// Turns the difference between what is wanted (deployments) and what is (gangs, ranks, nodes) into
// orders. Runs on the coordinator only.
//
// A gang is all or none: every rank of one epoch, launched together and ended together. The life of
// one: plan, then the record with the next epoch on disk at a majority, reserve and launch, then
// staging, connecting, loading, warming up, ready. Whatever fails on the way ends all of it
// everywhere, and after a back-off it begins again with a new plan and the next epoch. It never
// gives up, but its rate is bounded.
//
// Contract: pure. Reconcile is called after every event and at least every 100 ms, and only while
// Election::Leading(now); its effects are carried out in order. PlanDeployment, ReserveAndLaunch,
// StopRanks and WriteGang are each answered by the matching On… call; one that is not answered is
// given up by its limit. The answers only change what the next Reconcile sees. Owner: the agent's
// owner thread.

#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <tuple>
#include <variant>
#include <vector>

#include "absl/status/status.h"
#include "agentd/cores/desired_state.h"
#include "macrame/v1/agent.pb.h"
#include "macrame/v1/cluster.pb.h"
#include "proto/ids.h"
#include "proto/monotonic_time.h"

namespace macrame::agentd {

struct GangReconcilerOptions {
  // Missing ranks and unknown nodes are not held against a gang for so long after this node became
  // coordinator: heartbeats come first.
  Duration adoption_grace = std::chrono::milliseconds(1500);
  // From a successful launch to the first report of each rank.
  Duration report_grace = std::chrono::milliseconds(5000);
  // A new gang needs its predecessor's ranks gone, but waits no longer than this for a node to say
  // so.
  Duration ending_limit = std::chrono::milliseconds(15'000);
  Duration end_retry = std::chrono::milliseconds(1000);
  Duration first_backoff = std::chrono::milliseconds(200);  // then 1, 2, 4, … s
  Duration backoff_max = std::chrono::seconds(30);
  Duration stable_after = std::chrono::seconds(60);  // ready for so long: the back-off starts anew
  Duration plan_limit = std::chrono::seconds(30);
  Duration write_limit = std::chrono::seconds(5);
  Duration launch_limit = std::chrono::seconds(60);
  // Phase limits. Loading has none but for standing still.
  Duration staging_limit = std::chrono::seconds(60);
  Duration connecting_limit = std::chrono::seconds(30);
  Duration loading_stall_limit = std::chrono::seconds(60);
  Duration warming_up_limit = std::chrono::seconds(120);
  // What does not fit is planned again when nodes or inventories change, and after this long.
  Duration replan_interval = std::chrono::seconds(10);
  // Without the node whose files are broken a plan has to be found in this time: the memory that a
  // gang gave back shows a moment later.
  Duration elsewhere_limit = std::chrono::seconds(8);
  // What was evicted waits until the one that preempted it is ready, but for one that is not on
  // its way no longer than this. That one is planned more often meanwhile: a node's free memory
  // shows a moment after a rank ended.
  Duration eviction_limit = std::chrono::seconds(60);
  Duration replan_after_eviction = std::chrono::seconds(1);
  // A deployment evicts others once, and again after this long when it was not ready since.
  Duration eviction_pause = std::chrono::minutes(10);
  // Ranks that belong to no gang in force may finish the requests that they are at for so long.
  Duration drain_limit = std::chrono::seconds(20);
  // A gang that gave way for the sake of a node that is about to stop had no request for so long
  // before it is ended: one may be on its way to it, and what ranks report is up to two seconds
  // old.
  Duration drain_quiet = std::chrono::milliseconds(2500);
  // A node on which so many launches failed for reasons of its own within left_out_window is
  // planned around for left_out_for, where a plan without it can be had.
  uint32_t own_failures_max = 2;
  Duration left_out_window = std::chrono::minutes(5);
  Duration left_out_for = std::chrono::minutes(2);
  // A gang of fewer ranks than were asked for goes back to those when the nodes that can be used
  // stayed the same for so long and it had no request for so long; in vain, it tries again after
  // restore_retry, or when other nodes can be used.
  Duration restore_after = std::chrono::seconds(30);
  Duration restore_quiet = std::chrono::seconds(10);
  Duration restore_retry = std::chrono::minutes(5);
  Duration restore_pause_max = std::chrono::hours(1);  // after tries that failed at launch
  // A gang whose ranks only say that a neighbour is gone waits this long for the report of that
  // one: two rounds of heartbeats. A report that comes later still corrects what was told.
  Duration cause_wait = std::chrono::milliseconds(1000);
  Duration cause_kept = std::chrono::seconds(15);
};

// One member as the coordinator sees it.
struct NodeView {
  NodeId id;
  std::string hostname;
  v1::NodeState state = v1::NODE_STATE_UNSPECIFIED;
  uint64_t inventory_revision = 0;
  // It has granted this coordinator its lease (Election::HoldsLeaseOf), so it will take orders.
  bool orderable = false;
  bool heard = false;  // a heartbeat has come since this node became coordinator
  // It is about to stop, or drained: it takes no ranks, and gives away those it has.
  bool draining = false;
  bool cordoned = false;    // it takes no ranks; set also where it is drained by order
  std::string tenant = {};  // it takes ranks of this one's models alone, and gives others away
  // Drained by order: answers of gangs that leave it have so long. Unset: drain_limit.
  std::optional<Duration> answers_have = {};
};

// What Reconcile looks at. `ranks`: as last reported by each node; those of dead nodes may be left
// in, they are not looked at.
struct ClusterView {
  std::vector<v1::Deployment> deployments;
  std::vector<v1::GangRecord> gangs;
  std::map<std::string, uint64_t> removed_epochs;  // last epoch of removed gangs, by deployment
  std::vector<NodeView> nodes;
  std::vector<v1::RankStatus> ranks;
  uint64_t unix_ms = 0;  // by this node's clock, for the records
  // By deployment: the probes say that the backend of its gang works no more, and why.
  std::map<std::string, v1::Reason> broken_transports;
};

// Fills deployments, gangs and removed_epochs from the entries of a StateTable, each replica as a
// deployment of its own. What does not parse is left out.
void FillFromState(const DesiredState& state, ClusterView& view);
std::string DeploymentKey(const std::string& name);  // "deployment/NAME"
std::string GangKey(const std::string& name);        // "gang/NAME"

bool RefusesUnevenSlices(const v1::GangRecord& gang);

// A fault of the model's own files or of what was asked for: every further launch would end with it
// too. A deployment that never was ready is not launched again after one, until it is loaded again.
// Files may be broken on one node alone: where others can take its place they are tried once, and
// two nodes that say the same have said it of the model.
bool IsFaultOfModel(std::string_view code);

// Ask the planner with the nodes that are alive and orderable → OnPlanned.
struct PlanDeployment {
  v1::Deployment deployment;
  bool may_evict = false;              // the answer may name deployments that have to go first
  std::set<std::string> in_force;      // gangs that hold memory, this one's other replicas too
  bool refuses_uneven_slices = false;  // an earlier gang found that they are not the model
  std::set<NodeId> left_out;           // launches failed there: without them, if that can be had
  std::set<NodeId> unusable;           // their files of the model are broken: never with them
  bool restores = false;               // as it was asked for or not at all; what runs may go
};
// Propose the record, wait until it is committed → OnGangWritten. Nothing is launched before.
struct WriteGang {
  v1::GangRecord record;
};
// Reserve on every node of the plan, then launch on every one → OnLaunched with OK, or with the
// first failure (its Reason names the node).
struct ReserveAndLaunch {
  v1::Deployment deployment;
  v1::Plan plan;
  uint64_t epoch = 0;
  bool fast_synch_suspended = false;  // an earlier epoch stalled with it (GangRecord)
};
// → OnEnded.
struct StopRanks {
  NodeId node;
  std::string deployment;
  uint64_t up_to_epoch = 0;
  v1::Reason why;
  uint64_t from_epoch = 0;  // older ones stay: they finish their answers
};
// Remove the record; the tombstone's residue is to be a GangRecord with this epoch.
struct RemoveGang {
  std::string deployment;
  uint64_t last_epoch = 0;
};
// For the event log and for those who wait: a deployment changed its state.
struct Notify {
  std::string deployment;
  v1::DeploymentState state = v1::DEPLOYMENT_STATE_UNSPECIFIED;
  uint64_t epoch = 0;
  v1::Reason reason;  // code empty: no failure
};

// A gang could not be formed over its plan's backend, which is not the ring that always is there:
// it is not to be tried again on these very nodes, so that the next plan takes the next backend.
struct RefuseTransport {
  std::string deployment;
  v1::Plan plan;
  v1::Reason why;
};

using GangEffect = std::variant<PlanDeployment, WriteGang, ReserveAndLaunch, StopRanks, RemoveGang,
                                Notify, RefuseTransport>;
using GangEffects = std::vector<GangEffect>;

// Epoch 3002 is the second launch of term 3.
inline constexpr uint64_t kEpochsPerTerm = 1000;

class GangReconciler {
 public:
  explicit GangReconciler(GangReconcilerOptions options = {});

  // From BecameCoordinator to LostCoordination. Everything but records and ranks is forgotten:
  // gangs that run are adopted. Epochs begin anew at term × kEpochsPerTerm: a coordinator whose
  // records lost a merge does not know all that it used, but no term is its own twice.
  void BeginLeading(const FencePair& fence, MonotonicTime now);
  void StopLeading();

  GangEffects Reconcile(const ClusterView& view, MonotonicTime now);

  void OnPlanned(const std::string& deployment, const v1::PlanResult& result, MonotonicTime now);
  void OnGangWritten(const std::string& deployment, uint64_t epoch, const absl::Status& status,
                     MonotonicTime now);
  void OnLaunched(const std::string& deployment, uint64_t epoch, const absl::Status& status,
                  MonotonicTime now);
  void OnEnded(const StopRanks& order, const absl::Status& status);

  // Gangs that hold memory: launched, or about to be.
  std::set<std::string> InForce() const;
  // It has no gang in hand, and none that is on its way out.
  bool IsEmpty() const { return gangs_.empty(); }
  // Whether this node's record is to stay in force when a merge brings another: its gang is ready,
  // or was when this node stopped leading (it may just be raising its term).
  bool Keeps(const std::string& deployment) const;
  // Another coordinator is obeyed now.
  void ForgetKept() {
    kept_.clear();
    apart_.clear();
  }
  // A record that a merge decided against, or that Keeps did: its gang may be ready too. Also
  // before BeginLeading.
  void NoteApart(const v1::GangRecord& record);

  // With what only the coordinator knows: back-off, the planner's refusal. Nullopt: no such
  // deployment.
  std::optional<v1::DeploymentStatus> Status(const std::string& deployment, const ClusterView& view,
                                             MonotonicTime now) const;
  std::vector<v1::DeploymentStatus> Statuses(const ClusterView& view, MonotonicTime now) const;

 private:
  // Where a deployment stands, on this coordinator.
  enum class Stage {
    kPending,
    kPlanning,
    kWriting,
    kLaunching,
    kStarting,
    kReady,
    kEnding,
    kBackingOff
  };
  struct RankProgress {
    v1::RankPhase phase = v1::RANK_PHASE_UNSPECIFIED;
    uint64_t bytes_loaded = 0;
    double progress = 0;
    std::string detail;  // within the phase: "rendezvous", "queue_pair"
    MonotonicTime changed_at;
  };
  // Two coordinators apart may use one epoch: a gang is known by it and its entry node.
  using GangId = std::pair<uint64_t, std::string>;
  static GangId IdOf(const v1::GangRecord& record) {
    return {record.epoch(), record.entry_node_id()};
  }
  struct Rival {
    v1::GangRecord record;
    std::optional<MonotonicTime> reachable_since;
  };
  enum class RivalState { kAway, kForming, kReady, kGone };
  struct Gang {
    Stage stage = Stage::kPending;
    MonotonicTime since;  // in this stage
    std::string wanted;   // the deployment, serialised: a changed one is launched anew
    v1::GangRecord record;
    uint64_t epoch_seen = 0;  // the highest ever seen of it
    v1::Reason failure;       // the last one
    uint32_t failures = 0;    // since it was last stable
    MonotonicTime retry_at;   // while ending and backing off
    v1::Reason refused;       // why no plan, while pending
    // What else the deployment says; it changes nothing of a gang that runs.
    int32_t priority = 0;
    bool may_evict = false;
    std::string yields_to;  // it was evicted for this one, which is launched first
    std::optional<MonotonicTime> evicted_at;  // it evicted others then, and was not ready since
    std::string planned_on;                   // the nodes that it did not fit
    std::optional<v1::PlanResult> planned;
    bool launch_due = false;  // the record is written, nothing is launched yet
    bool is_moving = false;   // ready, and planned anew without a node that is about to stop
    // The epoch that gave way when it moved, whose ranks still have answers to finish.
    struct GaveWay {
      uint64_t epoch = 0;
      MonotonicTime since;
      MonotonicTime busy_at;  // when it last had a request
      Duration limit{};       // for its answers
    };
    std::optional<GaveWay> gave_way;
    v1::RankPhase lowest_phase = v1::RANK_PHASE_UNSPECIFIED;
    MonotonicTime lowest_phase_since;
    std::map<uint32_t, RankProgress> progress;  // by rank, of this epoch
    // A rank of this epoch lost a neighbour, and no report says why that one ended.
    struct Doubt {
      uint64_t epoch = 0;
      MonotonicTime since;
    };
    std::optional<Doubt> doubt;
    // The gang ended with such words as its cause.
    struct Blame {
      v1::GangRecord record;
      MonotonicTime since;
      bool was_starting = false;
      std::string told;
    };
    std::optional<Blame> blame;
    bool fell_back = false;  // a fallback says why the next plan takes another backend
    bool removing = false;
    bool has_served = false;    // some gang of it was ready
    bool has_given_up = false;  // IsFaultOfModel: nothing is launched any more
    // Nodes that said it of their files, since the deployment was loaded.
    std::map<NodeId, v1::Reason> accused;
    std::optional<MonotonicTime> elsewhere_until;  // then a plan without them has to be there
    // On the way from fewer ranks to those that were asked for.
    struct Restoring {
      bool is_asked = false;  // a plan, of all ranks
      std::string nodes;      // that a plan could use
      MonotonicTime nodes_since;
      std::optional<MonotonicTime> idle_since;
      uint64_t tokens_seen = 0;  // of all its answers, at the last look
      std::optional<MonotonicTime> tried_at;
      v1::Reason refused;  // why it stays as it is; of the last try
    };
    Restoring restoring;
    // The last way to all ranks. Should it fail, the gang comes back without the nodes that it
    // added; the next try is after a pause that doubles.
    struct RestoreTry {
      std::set<NodeId> added;  // until the gang is ready
      MonotonicTime next_not_before;
      Duration pause{};
    };
    RestoreTry restore_try;
    std::string ended_for_room;  // the nodes for which it ended to come back with all ranks
    // Gangs of the same deployment that other coordinators launched, or that could not be reached:
    // since when all of their nodes are within reach.
    std::map<GangId, Rival> rivals;
    std::set<GangId> gone;  // rivals that are none any more
    v1::DeploymentState told = v1::DEPLOYMENT_STATE_UNSPECIFIED;
    uint64_t told_epoch = 0;
  };
  struct Ending {
    uint64_t up_to_epoch = 0;
    MonotonicTime sent_at;
    bool answered = false;
    uint64_t from_epoch = 0;
  };
  struct Round;  // one Reconcile: view, now, indices, effects

  Round MakeRound(const ClusterView& view, MonotonicTime now) const;
  bool InGrace(MonotonicTime now) const;
  static void Enter(Gang& gang, Stage stage, MonotonicTime now);
  void TakeDeployments(Round& round);
  void AdoptMerged(const Round& round, const std::string& name, Gang& gang);
  void Adopt(const Round& round, const std::string& name, Gang& gang);
  void TakePriority(const Round& round, const v1::Deployment& deployment, Gang& gang);
  void TakeChange(Round& round, const std::string& name, Gang& gang, std::string wanted);
  bool StepRemoving(Round& round, const std::string& name, Gang& gang);
  void Step(Round& round, const std::string& name, Gang& gang);
  void StepPending(Round& round, const std::string& name, Gang& gang);
  void StepPlanning(Round& round, const std::string& name, Gang& gang);
  void StepLaunching(Round& round, const std::string& name, Gang& gang);
  void StepRunning(Round& round, const std::string& name, Gang& gang);
  const NodeView* LeavingNode(const Round& round, const std::string& name, const Gang& gang) const;
  static bool MustLeave(const Round& round, const std::string& name, const NodeView& node);
  bool LeaveNode(Round& round, const std::string& name, Gang& gang, const NodeView& leaving);
  void AskForPlan(Round& round, const std::string& name, Gang& gang, bool may_evict);
  void GiveWay(const Round& round, const std::string& name, Gang& gang) const;
  void StayOrGiveWay(Round& round, const std::string& name, Gang& gang, v1::Reason why);
  // Whether the ranks of the epoch that gave way are still to be left alone.
  bool IsGivingWay(const Round& round, const std::string& name, Gang& gang) const;
  void StepEnding(Round& round, const std::string& name, Gang& gang);
  bool GivesUp(const Gang& gang) const;
  // Notes whose files are at fault, in the words of all ranks.
  static void Accuse(const Round& round, const std::string& name, Gang& gang);
  // True: it is launched without the one node whose files are at fault.
  bool TriesElsewhere(const Round& round, const std::string& name, Gang& gang);
  void GiveUp(Round& round, const std::string& name, Gang& gang);
  // gang_restore.cc
  void Restore(Round& round, const std::string& name, Gang& gang);
  // The number of nodes that a plan of `wanted` could use.
  static uint32_t NoteUsableNodes(const Round& round, const v1::Deployment& wanted, Gang& gang);
  void NoteIdle(const Round& round, const std::string& name, Gang& gang) const;
  bool IsTimeToRestore(const Gang& gang, MonotonicTime now) const;
  bool IsWorthIt(const Round& round, const std::string& name, const Gang& gang,
                 const v1::PlanResult& result) const;
  void StayShort(Round& round, const std::string& name, Gang& gang, v1::Reason why);
  // It is launched with more ranks than it has.
  void NoteRestore(const std::set<NodeId>& with, Gang& gang, MonotonicTime now) const;
  // A launch failed: the nodes that it was restored with are left out of the next.
  void LeaveOutRestored(Gang& gang, MonotonicTime now);
  bool IsBusy(const Round& round, const std::string& name, const Gang& gang) const;
  v1::Reason DegradedOf(const v1::Deployment& wanted, const Gang& gang,
                        const ClusterView& view) const;
  std::vector<std::string> InOrder(const Round& round) const;
  // Something is preempted by it.
  bool AwaitsVictim(const std::string& name) const;
  bool IsEvicting(const std::string& name, const Gang& gang, MonotonicTime now) const;
  bool HasYielded(const Round& round, Gang& gang) const;
  void Evict(Round& round, const std::string& name, Gang& gang, const v1::PlanResult& result);
  void Refuse(Round& round, const std::string& name, Gang& gang, v1::Reason why);
  void NoteProgress(const Round& round, const std::string& name, Gang& gang) const;
  // `has_ended`: its ranks were stopped since, so that only what they say of themselves counts.
  std::optional<v1::Reason> FindLoss(const Round& round, const std::string& name,
                                     const v1::GangRecord& record, bool has_ended = false) const;
  // Whether the report that names the cause of this failure may still come.
  bool AwaitsCause(const Round& round, const std::string& name, const v1::Reason& failure,
                   Gang& gang) const;
  // Where a neighbour's words were told as the cause: the report that came since takes their place.
  void CorrectBlame(Round& round, const std::string& name, Gang& gang);
  std::optional<v1::Reason> FindMissing(const Round& round, const std::string& name,
                                        const Gang& gang) const;
  std::optional<v1::Reason> FindMismatch(const Round& round, const std::string& name,
                                         const Gang& gang) const;
  std::optional<v1::Reason> FindOverdue(const Round& round, const std::string& name,
                                        const Gang& gang) const;
  void BecomeReady(Round& round, const std::string& name, Gang& gang);
  void Fail(Round& round, const std::string& name, Gang& gang, v1::Reason why);
  bool SuspendFastSynch(const Round& round, const std::string& name, Gang& gang);
  void FallBack(Round& round, const std::string& name, Gang& gang);
  static bool RefuseUnevenSlices(const Round& round, const std::string& name, Gang& gang);
  static void NoteFallback(const std::string& name, Gang& gang, const v1::Reason& why,
                           std::string_view how);
  static void NoteLesserBackend(const std::string& name, Gang& gang, const v1::Plan& next);
  static void KeepFallback(Gang& gang, v1::Reason fallback);
  void BeginEnding(Round& round, const std::string& name, Gang& gang);
  void EndEverywhere(Round& round, const std::string& name, Gang& gang);
  void EndOn(Round& round, StopRanks order);
  void EndOrphans(Round& round);
  bool MayStay(const Round& round, const std::string& name, Gang* gang, const v1::RankStatus& rank);
  static bool IsInForce(const Gang& gang, const v1::RankStatus& rank);
  void EndOrphan(Round& round, const std::string& name, const v1::RankStatus& rank,
                 const std::vector<const v1::RankStatus*>& stay);
  void TakeApart();
  void JudgeRivals(Round& round, const std::string& name, Gang& gang);
  RivalState StateOf(const Round& round, const std::string& name, Rival& rival) const;
  void TakeRival(Round& round, const std::string& name, Gang& gang, v1::GangRecord record);
  static void NoteRival(Gang& gang, const v1::GangRecord& record);
  static bool IsOfRival(const Gang& gang, const v1::RankStatus& rank);
  static bool IsAway(const Round& round, const v1::GangRecord& record);
  bool IsDraining(const Round& round, const v1::RankStatus& rank);
  // A launch failed; counted against the node where that was its own doing.
  void NoteOwnFailure(const v1::Reason& why, MonotonicTime now);
  std::set<NodeId> LeftOut(MonotonicTime now) const;
  bool AllEnded(const Round& round, const std::string& name, const Gang& gang) const;
  static bool IsServing(const Gang& gang) { return gang.stage == Stage::kReady || gang.is_moving; }
  void Tell(GangEffects& effects, const std::string& name, Gang& gang) const;
  Duration Backoff(uint32_t failures) const;
  static v1::DeploymentState StateOf(const Gang& gang);

  const GangReconcilerOptions options_;
  std::optional<MonotonicTime> leading_since_;
  Term term_;
  std::map<std::string, Gang> gangs_;
  std::map<std::pair<NodeId, std::string>, Ending> endings_;
  std::map<std::pair<std::string, uint64_t>, MonotonicTime> orphan_since_;  // by gang and epoch
  std::vector<v1::GangRecord> apart_;  // NoteApart, not looked at yet
  struct OwnFailures {
    std::vector<MonotonicTime> at;  // within left_out_window
    MonotonicTime left_out_until;
  };
  std::map<NodeId, OwnFailures> own_failures_;
  std::set<std::string> kept_;  // ready when this node stopped leading; until the next Reconcile
};

// What a deployment is served by, where that is less than was asked for; code empty: by all of it.
v1::Reason DegradedBy(const v1::Deployment& wanted, const v1::Plan& plan);

// What any node can say of a deployment from the replicated state and the ranks that it hears of.
v1::DeploymentStatus DeriveStatus(const v1::Deployment& deployment, const v1::GangRecord* record,
                                  const std::vector<v1::RankStatus>& ranks);

}  // namespace macrame::agentd
