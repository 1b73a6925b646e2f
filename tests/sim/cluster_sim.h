#pragma once

// A cluster of 1 to 5 nodes in one process: real agents, as main.cc makes them, on simulated
// machines. Time, network, disks, rank processes and what a machine says of itself are simulated
// (SimPlatform), all drawn from one seed.
//
// A run has two phases: faults (loss, delay, duplicates, partitions, one-way cuts, crashes,
// restarts, pauses, full disks, dying ranks, ordered stops, users that load, unload, cordon, drain,
// stop and start the cluster, label nodes, and set profiles and limits of tenants), in which
// checkers look at the whole cluster after every event; then everything is healed, and it has to
// converge in time.

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "agentd/agent.h"
#include "agentd/agent_parts.h"
#include "tests/sim/sim_disk.h"
#include "tests/sim/sim_platform.h"

namespace macrame::agentd::sim {

// Deliberate mistakes, made where an agent meets the world, to see that the checkers find them.
enum class Plant {
  kNone,
  kIgnoreFence,         // orders of whomever look like those of who is obeyed
  kForgetGrant,         // grants are not on disk
  kForgetEntries,       // some writes are not
  kLeadWithoutMerging,  // what an elector holds does not reach who asks it for its lease
  kWildClocks,          // clocks differ by far more than the election's margin
  kTrustCopies,         // a copied disk finds the machine that it was copied from
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
  int heal_ms = 60'000;
  Plant plant = Plant::kNone;
  bool trace = false;
  // Changes the settings of each agent that starts; may be empty.
  std::function<void(Config&)> configure;
};

// Nodes are a, b, c, … in what is printed.
inline std::string Letter(const NodeId& id) { return id.value().substr(0, 1); }

// One copy ends so long before the next starts: longer than a lease.
inline constexpr Us kCopiesApart = 3'000'000;
// How often somebody looks after nodes that a copy kept out.
inline constexpr Us kByHandPause = 2'000'000;
// What holds after healing has to hold for so long.
inline constexpr Us kStaysConverged = 3'000'000;

struct SimMachine {
  int index = 0;
  NodeId id;
  std::string mark;  // NodeIdentity.machine
  MachineClock clock;
  SimDisk disk;
  Us room_since = 0;  // on the disk, after it was full
  uint64_t runs = 0;
  bool is_draining = false;  // told to stop
  Us dedicated_at = 0;       // to a tenant that none of the models is of
  RankHost ranks;
  SimFacts facts;
  ProcessPtr process;
  std::unique_ptr<SimPlatform> platform;
  std::unique_ptr<Agent> agent;
  // Of the checkers.
  FencePair obeyed;                // the highest fence whose order was carried out, over all runs
  std::optional<FencePair> leads;  // as it was after the last event
  std::map<std::string, uint64_t> told_ready;  // epoch, by deployment
  std::set<std::string> acknowledged;          // "key/sequence", under this lead
  Us knows_stopped_since =
      0;  // it leads, is awake and knows that the cluster is stopped; 0: not so

  bool up() const { return process != nullptr && process->is_alive(); }
  bool paused() const { return up() && process->is_paused(); }
  AgentParts& parts() const { return agent->parts(); }
  MonotonicTime Now() const { return platform->dispatcher().Now(); }
  std::optional<FencePair> Leading() const { return parts().election.Leading(Now()); }
  Standing standing() const { return parts().guard.standing(); }
  bool IsSure() const { return parts().guard.is_sure(); }
};

struct AckedWrite {
  std::string key;
  StateVersion version;
  bool is_removal = false;  // which may be dropped when everybody has it
  std::set<int> on_disk;    // machines that had it when it was acknowledged
};

// What a person set to a number: a tenant's limit, a model's token limit or a node's label.
struct OrderedValue {
  std::string what;
  uint64_t value = 0;
  Us asked_at = 0;
  Us acknowledged_at = 0;  // 0: it was not, and may have come true all the same
};

class ClusterSim {
 public:
  explicit ClusterSim(SimOptions options);
  ~ClusterSim();

  // Faults, then healing, then the convergence checks. Empty when all held, else what did not.
  std::string Run();

  // For tests that drive by hand.
  void RunFor(int ms);
  void StartAll();
  void Crash(int machine);
  // An ordered stop, which may take a while.
  void Drain(int machine);
  // Its ranks that are ready have requests until then.
  void KeepBusy(int machine, int ms);
  // How many ranks of one deployment a node has memory for.
  void SetRoom(int ranks) { room_ = ranks; }
  // Running ranks of this deployment on a machine.
  int RanksOn(int machine, const std::string& deployment) const;
  void Start(int machine);
  void Pause(int machine);
  void Resume(int machine);
  void Isolate(int machine, bool cut);
  // Connections to it are refused; what it sends gets out.
  void SetRefuses(int machine, bool refuses) { network_.SetRefuses(machine, refuses); }
  void FillDisk(int machine, bool full);
  void KillRank(int machine);
  // Starts a copy of this node's disk on a machine of its own; it may be up or down. There is one
  // copy at a time. StopCopy ends it.
  void StartCopy(int of);
  void StopCopy();
  const SimMachine& copy() const { return *machines_.back(); }
  const SimMachine& machine(int index) const { return *machines_[index]; }
  SimFacts& FactsOf(int machine) { return machines_[machine]->facts; }
  std::optional<int> CoordinatorIndex() const;
  // `clusterctl model load` and `unload` at this node. "m0" takes three nodes where there are so
  // many, "m1" two and leaves one.
  void Load(int machine, const std::string& model);
  void Unload(int machine, const std::string& model);
  // `clusterctl cordon`, `drain` and `uncordon`, of any node at this one.
  void Cordon(int machine, const NodeId& node, v1::CordonOrder order);
  // `clusterctl cluster drain`, `stop` and `start`.
  void PauseCluster(int machine, v1::PauseOrder order);
  // Sets one of the numbers of OrderedValue to one that none had before, or dedicates a node to a
  // tenant, which takes the ranks of others off it.
  void SetNumber(int machine);
  void Dedicate(int machine, const NodeId& node, const std::string& tenant);
  // A READY gang of this deployment, as the one coordinator sees it and as the ranks really are.
  bool IsReady(const std::string& deployment) const;
  // Of the ready gang of this deployment; 0: none.
  uint64_t EpochOf(const std::string& deployment) const;
  const std::string& violation() const { return violation_; }
  uint64_t events() const { return events_; }
  uint64_t acked() const { return acked_.size(); }
  uint64_t elections() const { return elections_; }
  // Orders to end what belongs to no gang, which CheckEnding looked at.
  uint64_t endings() const { return endings_; }
  // Numbers that were set and acknowledged.
  uint64_t numbers() const { return numbers_; }

 private:
  // cluster_sim.cc: machines, users, faults.
  Config ConfigOf(const SimMachine& machine) const;
  DiskEvents DiskEventsOf(int index);
  SimPlatform::Parts PlatformPartsOf(int index);
  // What a person asks of the agent at this machine; nothing where none runs.
  template <typename Rpc, typename Request>
  void Ask(int machine, const Rpc& rpc, const Request& request, const std::string& what,
           std::function<void(const absl::Status&)> on_end = nullptr);
  // The agent and what it stands on, once nothing of it runs any more.
  void Bury(SimMachine& machine);
  void AdvanceRanks();
  bool AdvanceRank(const SimMachine& machine, SimRank& rank);
  bool HasAllPeers(const SimMachine& machine, const SimRank& rank) const;
  void ScheduleFault();
  void InjectFault();
  void InjectPartition();
  void Heal();
  void StartKeptOut();
  void Uncordon();
  int RandomNode() { return static_cast<int>(dice_.Between(0, options_.nodes - 1)); }
  bool HasCopy() const { return options_.copies && machines_.back()->up(); }
  int IndexOf(const NodeId& id) const { return id.value()[0] - 'a'; }
  // The machine that this one takes for the node of this id.
  int AddressOf(const SimMachine& machine, const NodeId& id) const;

  // sim_orders.cc: what passes over the wire, and what planted mistakes make of it.
  void OnArrival(const Rpc& rpc, std::string* request, NodeId* caller);
  void OnAnswer(const Rpc& rpc, const std::string& request, std::string* answer);
  LaunchFacts OnLaunch(int index, const v1::LaunchSpec& spec);

  // sim_checks.cc
  void Check();
  void CheckMachine(SimMachine& machine);
  void CheckLeases();
  void CheckOneOfEach();
  // Another process with this node's id has granted that pair.
  bool IsGrantedByTwin(const SimMachine& machine, const FencePair& fence) const;
  void CheckOneLeaderInQuorum();
  void CheckDisk(const SimMachine& machine, const v1::StateEntry& entry);
  void CheckObeyed(SimMachine& machine, const FencePair& fence);
  void CheckElected(const SimMachine& machine, const FencePair& fence);
  void NoteAcknowledged(SimMachine& machine, const FencePair& fence);
  std::set<NodeId> Electorate(const SimMachine& machine) const;
  void CheckOrder(const Rpc& rpc, const std::string& request);
  void CheckReserves(const SimMachine& leader, const v1::ReserveRequest& order);
  void NoteStopped(SimMachine& machine) const;
  // 0: it is set to none.
  uint64_t NumberOf(const DesiredState& desired, const std::string& what) const;
  std::string WhyNumbersDiffer(const SimMachine& leader) const;
  void CheckEnding(const SimMachine& leader, int holder, const v1::StopRanksRequest& order);
  bool IsOtherReady(const SimMachine& leader, int holder, const std::string& deployment,
                    uint64_t epoch) const;
  bool IsNotKnownWhole(const SimRank& rank) const;
  // Ranks may be ended because of an order that was given then; 0: there was none.
  bool IsSince(Us order) const;
  std::optional<Us> WholeSince(const std::string& deployment, uint64_t epoch,
                               const FencePair& started_by) const;
  void CheckReady(SimMachine& machine);
  bool IsOnLostDisks(const AckedWrite& acked) const;
  // What does not hold of a healed cluster; empty: all does.
  std::string WhyNotConverged() const;
  std::string WhyRanksNotConverged(const SimMachine& leader) const;
  void Violate(const std::string& what);
  void Trace(const SimMachine& machine, const std::string& what) const;

  const SimOptions options_;
  const std::string folder_;  // for what agents write besides their state
  Dice dice_;
  Scheduler scheduler_;
  SimNetwork network_;
  uint64_t events_ = 0;
  uint64_t elections_ = 0;
  uint64_t endings_ = 0;
  uint64_t numbers_ = 0;
  std::vector<OrderedValue> ordered_;
  bool chaos_ = false;
  int room_ = 1;
  std::vector<std::unique_ptr<SimMachine>> machines_;
  std::vector<AckedWrite> acked_;
  std::map<std::string, uint64_t> launched_by_;  // "deployment/epoch/coordinator", for epoch reuse
  std::string violation_;
  Us two_sure_at_ = 0;  // when the copy and what it was copied from both ran and were sure last
  Us copy_stopped_at_ = 0;
  Us copy_answered_at_ = 0;  // when a coordinator took the copy for a node that ran last
  Us ready_checked_at_ = 0;
  Us stopped_at_ = 0;        // when somebody ordered the cluster to stop last
  FencePair fence_at_hand_;  // of the order that is carried out now, as it was sent
};

}  // namespace macrame::agentd::sim
