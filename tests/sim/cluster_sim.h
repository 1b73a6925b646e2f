#pragma once

// A cluster of 1 to 5 nodes in one process: real Election, StateTable and GangReconciler, simulated
// clocks, network, disks, failure detection and rank processes, all drawn from one seed.
//
// A run has two phases: faults (loss, delay, duplicates, partitions, one-way cuts, crashes,
// restarts, pauses, dying ranks, users that deploy and remove), in which checkers look at the whole
// cluster after every event; then everything is healed, and it has to converge in time.

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <queue>
#include <random>
#include <set>
#include <string>
#include <vector>

#include "agentd/cores/election.h"
#include "agentd/cores/gang_reconciler.h"
#include "agentd/cores/identity_guard.h"
#include "agentd/cores/member_list.h"
#include "agentd/cores/state_table.h"
#include "discovery/membership/membership_table.h"

namespace macrame::agentd::sim {

// Deliberate mistakes of a shell, to see that the checkers find them.
enum class Plant {
  kNone,
  kIgnoreFence,         // obeys any coordinator
  kForgetGrant,         // grants are not on disk
  kForgetEntries,       // accepts writes that are not on disk
  kLeadWithoutMerging,  // a new coordinator does not take its electors' entries
  kActWithoutLeading,   // orders are sent without asking Leading(now)
  kWildClocks,          // clocks differ by far more than the election's margin
  kLaunchUnwritten,     // gangs are launched before their record is written
  kTrustCopies,         // a copied disk takes part at once, and its news counts
};

struct SimOptions {
  uint64_t seed = 1;
  int nodes = 3;
  Consistency consistency = Consistency::kAvailable;
  bool faults = true;
  // One copy of some node's disk is started on a machine of its own, ends, and is started again.
  bool copies = false;
  // No cuts, pauses and crashes beside: then a copy never takes the place of a node that runs.
  bool calm = false;
  int fault_ms = 20'000;
  int heal_ms = 25'000;
  Plant plant = Plant::kNone;
  bool trace = false;
};

// Nodes are a, b, c, … in what is printed.
inline std::string Letter(const NodeId& id) { return id.value().substr(0, 1); }

using Us = int64_t;  // microseconds of the simulation's own clock

struct SimRank {
  v1::RankStatus status;
  FencePair started_by;
  std::vector<int> peers;  // nodes of the gang
  Us next_phase_at = 0;
  Us ready_at = 0;
  Us busy_until = 0;       // with requests
  uint64_t wanted_at = 0;  // created_unix_ms of the deployment that it was launched for
  Us peers_lost_at = 0;    // 0: all reachable
};

inline constexpr Us kHeartbeat = 500'000;  // and beacons
inline constexpr Us kDeadAfter = 3'000'000;
inline constexpr Us kUnansweredAfter = 1'875'000;
inline constexpr int kAsksUntilDead = 14;
// One copy ends so long before the next starts: longer than a lease.
inline constexpr Us kCopiesApart = 3'000'000;
// How often somebody looks after nodes that a copy kept out.
inline constexpr Us kByHandPause = 2'000'000;

// What a heartbeat says.
struct SimHeartbeat {
  v1::NodeIdentity identity;  // its incarnation is the run
  uint64_t number = 0;        // rises within a run
  std::vector<v1::RankStatus> ranks;
  std::string digest;
  bool failing = false;  // it can't write to its disk
  bool draining = false;
  uint64_t news = 0;  // NewsOf it
};

struct SimBeacon {
  v1::NodeIdentity identity;
  uint64_t number = 0;
  uint64_t news = 0;
};

struct SimHeard {
  int at = 0;              // the process that has the node's place here
  Us at_local = 0;         // a heartbeat, or a beacon that counts as one
  Us exchanged_local = 0;  // a heartbeat
  Us beacon_local = 0;
  int refusals = 0;         // of connections, since it was heard
  int asks = 0;             // beacons that asked for one, since it was heard
  bool is_refused = false;  // dead by refusals, and not a sign of life since
  Us silent_since = 0;      // of one that is
  SimHeartbeat said;        // the latest one
  SimBeacon beacon;         // the latest one of the same run
};

struct SimWaiting {
  std::string key;
  StateVersion version;
  std::string gang;  // deployment whose record this is; empty: a user's write
  uint64_t epoch = 0;
};

struct SimNode {
  int index = 0;
  NodeId id;
  bool up = false;
  bool paused = false;
  bool is_off = false;    // the machine, and not the process alone: it refuses no connections
  bool refuses = false;   // a firewall: nobody can call it; what it sends gets out
  bool draining = false;  // told to stop
  uint64_t run = 0;       // incarnation
  std::string machine;
  Us clock_offset = 0;
  double clock_rate = 1;
  // The disk.
  std::optional<GrantRecord> disk_grant;
  std::map<std::string, v1::StateEntry> disk;
  std::string disk_machine;
  bool disk_full = false;
  Us room_since = 0;  // on it, after it was full
  // The process.
  std::unique_ptr<Election> election;
  std::unique_ptr<StateTable> table;
  std::unique_ptr<GangReconciler> reconciler;
  std::unique_ptr<MemberList> members;
  std::unique_ptr<IdentityGuard> guard;
  std::unique_ptr<discovery::MembershipTable> places;  // which machine has which node's
  std::set<NodeId> listed;
  StateChange unsaved;  // what a full disk refused
  Us failing_since = 0;
  bool unable = false;
  std::map<int, SimHeard> heard;   // by the node that it is of
  std::map<int, Us> called_local;  // when each process was last sent a heartbeat
  uint64_t heartbeats = 0;
  uint64_t beacons = 0;
  uint64_t news_told = 0;
  Us fresh_until = 0;  // heartbeats are exchanged at every interval
  std::set<NodeId> live;
  std::set<NodeId> known;
  std::vector<SimRank> ranks;
  std::map<std::string, uint64_t> ended_up_to;
  std::map<int, Us> replicated_at;
  std::vector<SimWaiting> waiting;
  std::vector<std::function<void()>> inbox;  // while paused
  uint64_t view_revision = ~uint64_t{0};
  ClusterView view;
  Us last_tick = 0;
  Us beacon_at = 0;
  FencePair obeyed;  // the highest fence whose order was carried out (checker; survives restarts)
};

struct AckedWrite {
  std::string key;
  StateVersion version;
  std::set<int> on_disk;  // nodes that had it when it was acknowledged
};

class ClusterSim {
 public:
  explicit ClusterSim(SimOptions options);

  // Faults, then healing, then the convergence checks. Empty when all held, else what did not.
  std::string Run();

  // For tests that drive by hand.
  void RunFor(int ms);
  void StartAll();
  void Crash(int node);
  // An ordered stop begins; Crash ends it.
  void Drain(int node);
  // Its ranks that are ready have requests until then.
  void KeepBusy(int node, int ms);
  // How many ranks of one deployment a node has memory for.
  void SetRoom(int ranks) { room_ = ranks; }
  // Running ranks of this deployment on a node.
  int RanksOn(int node, const std::string& deployment) const;
  void Start(int node);
  void Pause(int node);
  void Resume(int node);
  void Isolate(int node, bool cut);
  // Connections to it are refused; what it sends gets out.
  void SetRefuses(int index, bool refuses) { nodes_[index]->refuses = refuses; }
  void FillDisk(int node, bool full);
  void KillRank(int node);
  // Starts a copy of this node's disk on a machine of its own; it may be up or down. There is one
  // copy at a time. StopCopy ends it.
  void StartCopy(int of);
  void StopCopy();
  const SimNode& copy() const { return *nodes_.back(); }
  std::optional<int> CoordinatorIndex() const;
  bool Propose(int node, const std::string& deployment, bool remove);
  // A READY gang of this deployment, as the one coordinator sees it and as the ranks really are.
  bool IsReady(const std::string& deployment) const;
  // Of the ready gang of this deployment; 0: none.
  uint64_t EpochOf(const std::string& deployment) const;
  const std::string& violation() const { return violation_; }
  const std::vector<std::unique_ptr<SimNode>>& nodes() const { return nodes_; }
  uint64_t events() const { return events_; }
  uint64_t acked() const { return acked_.size(); }
  uint64_t elections() const { return elections_; }

 private:
  struct Event {
    Us at;
    uint64_t order;
    std::function<void()> run;
    bool operator<(const Event& other) const {
      return at != other.at ? at > other.at : order > other.order;
    }
  };

  // cluster_sim.cc: time, network, faults.
  void After(Us delay, std::function<void()> run);
  MonotonicTime Local(const SimNode& node) const;
  Us LocalUs(const SimNode& node) const;
  void Send(int from, int to, std::function<void(SimNode&)> deliver);
  void Deliver(int to, uint64_t from_run, int from, const std::function<void(SimNode&)>& deliver);
  bool Chance(double probability);
  Us Between(Us low, Us high);
  void ScheduleFault();
  void InjectFault();
  void Heal();
  void StartKeptOut();
  int RandomNode();
  bool HasCopy() const { return options_.copies && nodes_.back()->up; }

  // sim_shell.cc and sim_hearing.cc: what an agent's shell does with the cores.
  void Tick(SimNode& node);
  void ScheduleTick(int index, uint64_t run);
  void UpdateMembership(SimNode& node);
  SimHeartbeat MakeHeartbeat(SimNode& node);
  void TakeHeartbeat(SimNode& node, int from, const SimHeartbeat& said);
  void SendBeacons(SimNode& node);
  void OnBeacon(SimNode& node, int from, const SimBeacon& beacon);
  // One call serves both ways.
  void OnConnectionRefused(SimNode& node, int other);
  void TickRefused(SimNode& node);
  void AskSilent(SimNode& node);
  bool IsLive(const SimNode& node, const SimHeard& heard) const;
  bool IsNotKnownWhole(const SimNode& leader, const SimRank& rank, const std::string& name) const;
  void Exchange(SimNode& node, int other);
  void SendHeartbeats(SimNode& node);
  // False: another machine has the sender's place.
  bool Admit(SimNode& node, int from, const SimHeartbeat& said);
  void OnAnswer(SimNode& node, int from, const SimHeartbeat& said, MonotonicTime asked_at);
  void OnOwnId(SimNode& node, int from, const v1::NodeIdentity& identity);
  void AskHolder(SimNode& node, int holder);
  void Refuse(SimNode& node, int whom, const v1::NodeIdentity& holder);
  void TickIdentity(SimNode& node);
  v1::NodeIdentity IdentityOf(const SimNode& node) const;
  bool IsSure(const SimNode& node) const;
  // The process that `node` takes for the node of this id.
  int AddressOf(const SimNode& node, const NodeId& id) const;
  bool IsUrgent(const SimNode& node, int other) const;
  Us HeartbeatDue(const SimNode& node, int other, const SimHeard& heard) const;
  void Carry(SimNode& node, const ElectionEffects& effects, const SendLeaseRequest* answered,
             int asker);
  void OnLeaseRequest(SimNode& node, int from, const SendLeaseRequest& asked);
  void OnLeaseResponse(SimNode& node, const SendLeaseRequest& asked,
                       const v1::LeaseResponse& response);
  // False: the disk is full, and the change is written later.
  bool Save(SimNode& node, const StateChange& change);
  void Write(SimNode& node, const StateChange& change);
  void WatchDisk(SimNode& node);
  void Merge(SimNode& node, const StateEntries& entries, bool complete, MergeResult* result);
  void TakeMemberList(SimNode& node);
  void WriteMemberList(SimNode& node);
  std::set<NodeId> Electorate(const SimNode& node) const;
  void Replicate(SimNode& node);
  void OnReplicate(SimNode& node, int from, const FencePair& fence, const StateTable::Batch& batch);
  void NoteCommits(SimNode& node);
  void Lead(SimNode& node);
  void Reconcile(SimNode& node);
  void Carry(SimNode& node, const FencePair& fence, const GangEffect& effect);
  void Plan(SimNode& node, const PlanDeployment& plan);
  void WriteRecord(SimNode& node, const WriteGang& write);
  void Launch(SimNode& node, const FencePair& fence, const ReserveAndLaunch& launch);
  void OrderEnd(SimNode& node, const FencePair& fence, const StopRanks& end);
  bool Obeys(SimNode& node, const FencePair& fence);
  bool StartRank(SimNode& node, const FencePair& fence, const ReserveAndLaunch& launch,
                 const v1::Assignment& assignment, const std::vector<int>& peers);
  void AdvanceRanks(SimNode& node);
  int IndexOf(const NodeId& id) const;

  // sim_checks.cc
  void Check();
  void CheckLeases();
  void CheckOneOfEach();
  // Another process with this node's id has granted that pair.
  bool IsGrantedByTwin(const SimNode& node, const FencePair& fence) const;
  void CheckOneLeaderInQuorum();
  void CheckDisk(const SimNode& node, const v1::StateEntry& entry);
  void CheckElected(const SimNode& node, const FencePair& fence);
  void CheckEnding(const SimNode& leader, const StopRanks& end);
  std::optional<Us> WholeSince(const std::string& deployment, uint64_t epoch,
                               const FencePair& started_by) const;
  void CheckReady(const SimNode& node, const Notify& notify);
  bool IsOnLostDisks(const AckedWrite& acked) const;
  void CheckConverged();
  void CheckRanksConverged(const SimNode& leader);
  void Violate(const std::string& what);
  void Trace(const SimNode& node, const std::string& what);

  const SimOptions options_;
  std::mt19937_64 random_;
  Us now_ = 0;
  uint64_t order_ = 0;
  uint64_t events_ = 0;
  uint64_t elections_ = 0;
  bool chaos_ = false;
  double loss_ = 0;
  double duplicate_ = 0;
  Us delay_max_ = 2'000;
  int room_ = 1;
  std::vector<std::vector<bool>> cut_;  // [from][to]
  std::priority_queue<Event> queue_;
  std::vector<std::unique_ptr<SimNode>> nodes_;
  std::vector<AckedWrite> acked_;
  std::map<std::string, uint64_t> launched_by_;  // "deployment/epoch/fence" seen, for epoch reuse
  std::string violation_;
  Us two_sure_at_ = 0;  // when the copy and what it was copied from both ran and were sure last
  Us copy_stopped_at_ = 0;
};

}  // namespace macrame::agentd::sim
