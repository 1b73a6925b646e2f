#include "tests/sim/cluster_sim.h"

#include <algorithm>
#include <filesystem>
#include <utility>

#include "absl/strings/str_cat.h"
#include "agentd/base/rpc_methods.h"
#include "proto/check.h"
#include "tests/unit/fresh_folder.h"

namespace macrame::agentd::sim {
namespace {

constexpr Us kRanksAdvance = 25'000;
constexpr Us kPeersLostLimit = 1'000'000;
constexpr Us kStoppedKept = 10'000'000;
constexpr uint32_t kLoadTimeoutMs = 20'000;
constexpr uint32_t kDrainDeadlineMs = 4'000;
// A person who takes cordons back asks until it is done.
constexpr Us kUncordonPause = 3'000'000;

v1::CordonOrder DrawCordon(Dice& dice) {
  if (dice.Chance(0.4)) return v1::CORDON_ORDER_UNCORDON;
  return dice.Chance(0.5) ? v1::CORDON_ORDER_CORDON : v1::CORDON_ORDER_DRAIN;
}

v1::PauseOrder DrawPause(Dice& dice) {
  if (dice.Chance(0.5)) return v1::PAUSE_ORDER_START;
  return dice.Chance(0.7) ? v1::PAUSE_ORDER_STOP : v1::PAUSE_ORDER_DRAIN;
}

void Ignore(const std::string&) {}
void IgnoreEnd(const absl::Status&) {}

}  // namespace

ClusterSim::ClusterSim(SimOptions options)
    : options_(options),
      folder_(FreshFolder()),
      dice_(options.seed),
      network_(scheduler_, dice_, options.nodes + 1) {
  network_.on_request = [this](const Rpc& rpc, const std::string& request) {
    CheckOrder(rpc, request);
  };
  network_.on_arrival = [this](const Rpc& rpc, std::string* request, NodeId* caller) {
    OnArrival(rpc, request, caller);
  };
  network_.on_answer = [this](const Rpc& rpc, const std::string& request, std::string* answer) {
    OnAnswer(rpc, request, answer);
  };
  for (int i = 0; i < options_.nodes + (options_.copies ? 1 : 0); ++i) {
    auto machine = std::make_unique<SimMachine>();
    machine->index = i;
    machine->id = NodeId(std::string(32, static_cast<char>('a' + i)));
    machine->mark = std::string(8, static_cast<char>('A' + i));
    machine->disk.node_id = machine->id;
    machine->clock.offset = dice_.Between(1'000'000'000, 90'000'000'000);
    const double drift = options_.plant == Plant::kWildClocks ? 0.2 : 0.02;
    machine->clock.rate = 1 + drift * (static_cast<double>(dice_.Between(0, 2000)) / 1000 - 1);
    machine->clock.wall_skew_ms = dice_.Between(-200, 200);
    machines_.push_back(std::move(machine));
  }
  AdvanceRanks();
}

ClusterSim::~ClusterSim() {
  for (const auto& machine : machines_) {
    if (machine->process != nullptr) machine->process->Die();
    machine->agent.reset();
  }
  std::error_code ignored;
  std::filesystem::remove_all(folder_, ignored);
}

void ClusterSim::RunFor(int ms) {
  const Us end = scheduler_.now() + Us{ms} * 1000;
  while (violation_.empty() && scheduler_.RunNext(end)) {
    ++events_;
    if (violation_.empty()) Check();
  }
}

// --- machines ------------------------------------------------------------------------------------

Config ClusterSim::ConfigOf(const SimMachine& machine) const {
  Config config;
  config.node_name = absl::StrCat("node-", Letter(machine.id));
  config.state_folder = absl::StrCat(folder_, "/", machine.index);
  config.socket_path = config.state_folder + "/agentd.sock";
  config.insecure_dev = true;
  config.gateway_enabled = false;
  config.control_port = kControlPort;
  config.consistency = options_.consistency == Consistency::kQuorum ? "quorum" : "available";
  config.quorum_first_members = std::min(3, options_.nodes);
  config.drain_timeout_s = 8;
  config.rank_connect_timeout_ms = 3'000;
  if (options_.configure) options_.configure(config);
  return config;
}

DiskEvents ClusterSim::DiskEventsOf(int index) {
  DiskEvents events;
  // Just before something was written, and just after.
  events.before_grant = events.after_grant = [this, index] {
    if (chaos_ && dice_.Chance(0.01)) Crash(index);
  };
  events.before_entry = [this, index](const v1::StateEntry& entry) {
    CheckDisk(*machines_[index], entry);
  };
  events.forgets_grant = [this] { return options_.plant == Plant::kForgetGrant; };
  events.forgets_change = [this] {
    return options_.plant == Plant::kForgetEntries && dice_.Chance(0.5);
  };
  return events;
}

SimPlatform::Parts ClusterSim::PlatformPartsOf(int index) {
  SimMachine& machine = *machines_[index];
  return {scheduler_,
          dice_,
          network_,
          machine.process,
          machine.id,
          machine.clock,
          machine.ranks,
          machine.facts,
          [this] { return room_; },
          [this, index](const v1::LaunchSpec& spec) { return OnLaunch(index, spec); },
          [this, index](const v1::StopRanksRequest& order) {
            // Over the wire it was looked at when it left.
            if (!network_.at_hand().has_value()) CheckEnding(*machines_[index], index, order);
          }};
}

void ClusterSim::StartAll() {
  for (int index = 0; index < options_.nodes; ++index) {
    if (!machines_[index]->up()) Start(index);
  }
}

void ClusterSim::Start(int index) {
  SimMachine& machine = *machines_[index];
  Bury(machine);
  machine.is_draining = false;
  machine.ranks = {};
  machine.leads.reset();
  machine.told_ready.clear();
  machine.acknowledged.clear();
  network_.SetOff(index, false);
  machine.process = std::make_shared<Process>(index, ++machine.runs);
  machine.platform = std::make_unique<SimPlatform>(PlatformPartsOf(index));
  // What a copy finds of the machine that its disk comes from.
  const bool is_fooled = options_.plant == Plant::kTrustCopies && !machine.disk.machine.empty();
  Trace(machine, "starts");
  std::filesystem::create_directories(absl::StrCat(folder_, "/", index));
  machine.agent = std::make_unique<Agent>(
      *machine.platform, ConfigOf(machine),
      std::make_unique<SimStore>(machine.disk, machine.process, DiskEventsOf(index)),
      is_fooled ? machine.disk.machine : machine.mark);
  const absl::Status started = machine.agent->Start();
  if (!started.ok()) Violate(absl::StrCat("an agent does not start: ", started.ToString()));
}

void ClusterSim::Bury(SimMachine& machine) {
  if (machine.agent == nullptr) return;
  MACRAME_CHECK(!machine.up()) << "a living agent is buried";
  // Something of it may be running right now.
  struct Remains {
    std::unique_ptr<SimPlatform> platform;
    std::unique_ptr<Agent> agent;
  };
  auto remains = std::make_shared<Remains>();
  remains->platform = std::move(machine.platform);
  remains->agent = std::move(machine.agent);
  scheduler_.After(0, [remains] { remains->agent.reset(); });
}

void ClusterSim::Crash(int index) {
  SimMachine& machine = *machines_[index];
  if (!machine.up()) return;
  Trace(machine, "crashes");
  machine.process->Die();
  network_.SetOff(index, dice_.Chance(0.5));
  machine.ranks = {};
  Bury(machine);
}

void ClusterSim::Drain(int index) {
  SimMachine& machine = *machines_[index];
  if (!machine.up() || machine.paused() || machine.is_draining) return;
  Trace(machine, "is told to stop");
  machine.is_draining = true;
  machine.agent->Shutdown([this, index, process = machine.process] {
    if (machines_[index]->process == process) Crash(index);
  });
}

void ClusterSim::KeepBusy(int index, int ms) {
  for (SimRank& rank : machines_[index]->ranks.ranks) {
    if (rank.status.phase() != v1::RANK_PHASE_READY) continue;
    rank.status.set_requests_running(1);
    rank.busy_until = scheduler_.now() + Us{ms} * 1000;
  }
}

int ClusterSim::RanksOn(int index, const std::string& deployment) const {
  const SimMachine& machine = *machines_[index];
  return static_cast<int>(std::count_if(
      machine.ranks.ranks.begin(), machine.ranks.ranks.end(), [&](const SimRank& rank) {
        return machine.up() && rank.status.deployment() == deployment && !IsOver(rank);
      }));
}

void ClusterSim::Pause(int index) {
  SimMachine& machine = *machines_[index];
  if (!machine.up() || machine.paused()) return;
  Trace(machine, "is paused");
  machine.process->Pause();
}

void ClusterSim::Resume(int index) {
  SimMachine& machine = *machines_[index];
  if (!machine.paused()) return;
  Trace(machine, "goes on");
  machine.process->Resume();
}

void ClusterSim::Isolate(int index, bool cut) {
  for (int other = 0; other < static_cast<int>(machines_.size()); ++other) {
    if (other == index) continue;
    network_.Cut(index, other, cut);
    network_.Cut(other, index, cut);
  }
}

void ClusterSim::FillDisk(int index, bool full) {
  SimMachine& machine = *machines_[index];
  if (std::exchange(machine.disk.is_full, full) == full) return;
  Trace(machine, full ? "has a full disk" : "has room on its disk");
  if (!full) machine.room_since = scheduler_.now();
}

void ClusterSim::StartCopy(int of) {
  SimMachine& copy = *machines_.back();
  const SimMachine& from = *machines_[of];
  if (!options_.copies || copy.up() || from.disk.machine.empty()) return;
  // What the one before has promised is forgotten with it, so that has to have run out.
  if (copy_stopped_at_ != 0 && scheduler_.now() - copy_stopped_at_ < kCopiesApart) return;
  Trace(from, "is copied; the copy starts");
  // The machine of the copy before is gone, with what only its disk had.
  std::erase_if(
      acked_, [&](const AckedWrite& acked) { return acked.on_disk == std::set<int>{copy.index}; });
  copy.id = from.id;
  const uint64_t runs = std::max(copy.disk.incarnation, from.disk.incarnation);
  copy.disk = from.disk;
  copy.disk.incarnation = runs;
  copy.disk.is_full = false;
  copy.obeyed = from.obeyed;
  Start(copy.index);
}

void ClusterSim::StopCopy() {
  Crash(static_cast<int>(machines_.size()) - 1);
  copy_stopped_at_ = scheduler_.now();
}

int ClusterSim::AddressOf(const SimMachine& machine, const NodeId& id) const {
  if (id == machine.id) return machine.index;
  const discovery::Member* member = machine.parts().members.table().Find(id);
  for (const auto& other : machines_) {
    if (member != nullptr && other->mark == member->identity.machine()) return other->index;
  }
  return IndexOf(id);
}

// --- ranks ---------------------------------------------------------------------------------------

void ClusterSim::KillRank(int index) {
  SimMachine& machine = *machines_[index];
  std::vector<SimRank>& ranks = machine.ranks.ranks;
  if (!machine.up() || ranks.empty()) return;
  SimRank& rank = ranks[static_cast<size_t>(dice_.Between(0, static_cast<Us>(ranks.size()) - 1))];
  if (IsOver(rank)) return;
  Trace(machine, "loses a rank");
  rank.status.set_phase(v1::RANK_PHASE_FAILED);
  rank.status.mutable_failure()->set_code("RANK_KILLED");
  rank.status.mutable_failure()->set_message("killed by the simulation");
  machine.process->Do(machine.ranks.on_change);
}

void ClusterSim::AdvanceRanks() {
  for (const auto& machine : machines_) {
    if (!machine->up() || machine->paused()) continue;
    std::vector<SimRank>& ranks = machine->ranks.ranks;
    bool changed = false;
    for (SimRank& rank : ranks) changed |= AdvanceRank(*machine, rank);
    std::erase_if(ranks, [this](const SimRank& rank) {
      return rank.status.phase() == v1::RANK_PHASE_STOPPED &&
             scheduler_.now() >= rank.next_phase_at;
    });
    if (changed) machine->process->Do(machine->ranks.on_change);
  }
  scheduler_.After(dice_.Between(kRanksAdvance / 2, kRanksAdvance), [this] { AdvanceRanks(); });
}

bool ClusterSim::HasAllPeers(const SimMachine& machine, const SimRank& rank) const {
  return std::all_of(rank.peers.begin(), rank.peers.end(), [&](int peer) {
    if (peer < 0) return false;
    const SimMachine& other = *machines_[peer];
    const bool reachable =
        other.up() && !network_.IsCut(machine.index, peer) && !network_.IsCut(peer, machine.index);
    const auto& theirs = other.ranks.ranks;
    return reachable && std::any_of(theirs.begin(), theirs.end(), [&](const SimRank& one) {
             return one.status.deployment() == rank.status.deployment() &&
                    one.status.epoch() == rank.status.epoch() &&
                    one.started_by == rank.started_by && !IsOver(one);
           });
  });
}

// Ranks come up together or not at all; one that loses a peer ends, as the ring does. True: it
// changed.
bool ClusterSim::AdvanceRank(const SimMachine& machine, SimRank& rank) {
  const Us now = scheduler_.now();
  const v1::RankPhase phase = rank.status.phase();
  if (phase == v1::RANK_PHASE_STOPPING && now >= rank.next_phase_at) {
    rank.status.set_phase(v1::RANK_PHASE_STOPPED);
    rank.next_phase_at = now + kStoppedKept;
    return true;
  }
  if (IsOver(rank)) return false;
  if (now >= rank.busy_until) rank.status.set_requests_running(0);
  const bool has_all = HasAllPeers(machine, rank);
  if (phase > v1::RANK_PHASE_CONNECTING && !has_all) {
    if (rank.peers_lost_at == 0) rank.peers_lost_at = now;
    if (now - rank.peers_lost_at <= kPeersLostLimit) return false;
    rank.status.set_phase(v1::RANK_PHASE_FAILED);
    rank.status.mutable_failure()->set_code("RANK_EXITED");
    rank.status.mutable_failure()->set_message("it lost a peer");
    return true;
  }
  rank.peers_lost_at = 0;
  const bool waits = phase == v1::RANK_PHASE_READY || now < rank.next_phase_at ||
                     (phase == v1::RANK_PHASE_CONNECTING && !has_all);
  if (waits) return false;
  rank.status.set_phase(static_cast<v1::RankPhase>(phase + 1));
  if (rank.status.phase() == v1::RANK_PHASE_READY) rank.ready_at = now;
  rank.next_phase_at = now + dice_.Between(10'000, 200'000);
  return true;
}

// --- users ---------------------------------------------------------------------------------------

template <typename Rpc, typename Request>
void ClusterSim::Ask(int index, const Rpc& rpc, const Request& request, const std::string& what,
                     std::function<void(const absl::Status&)> on_end) {
  SimMachine& machine = *machines_[index];
  if (!machine.up() || machine.paused()) return;
  Trace(machine, absl::StrCat("is asked to ", what));
  static_cast<SimServer&>(*machine.parts().local_server)
      .CallLocally(rpc, request, Ignore, on_end ? std::move(on_end) : IgnoreEnd);
}

void ClusterSim::Load(int index, const std::string& model) {
  v1::LoadModelRequest request;
  request.set_name_or_path(model);
  request.set_timeout_ms(kLoadTimeoutMs);
  const int ranks =
      model == "m0" ? std::min(3, options_.nodes) : std::clamp(options_.nodes - 1, 1, 2);
  request.mutable_placement()->set_world_size(static_cast<uint32_t>(ranks));
  Ask(index, kLoadModel, request, absl::StrCat("load ", model));
}

void ClusterSim::Unload(int index, const std::string& model) {
  v1::UnloadModelRequest request;
  request.set_name(model);
  Ask(index, kUnloadModel, request, absl::StrCat("unload ", model));
}

void ClusterSim::Cordon(int index, const NodeId& node, v1::CordonOrder order) {
  v1::SetCordonRequest request;
  request.set_node_id(node.value());
  request.set_order(order);
  request.set_deadline_ms(kDrainDeadlineMs);
  Ask(index, kSetCordon, request,
      absl::StrCat("carry out ", v1::CordonOrder_Name(order), " of ", Letter(node)));
}

void ClusterSim::PauseCluster(int index, v1::PauseOrder order) {
  v1::PauseClusterRequest request;
  request.set_order(order);
  if (order == v1::PAUSE_ORDER_STOP) stopped_at_ = scheduler_.now();
  Ask(index, kPauseCluster, request, absl::StrCat("carry out ", v1::PauseOrder_Name(order)));
}

void ClusterSim::Dedicate(int index, const NodeId& node, const std::string& tenant) {
  v1::MarkNodeRequest request;
  request.set_node_id(node.value());
  request.set_tenant(tenant);
  if (!tenant.empty()) machines_[IndexOf(node)]->dedicated_at = scheduler_.now();
  Ask(index, kMarkNode, request, absl::StrCat("dedicate ", Letter(node), " to '", tenant, "'"));
}

void ClusterSim::SetNumber(int index) {
  const size_t place = ordered_.size();
  OrderedValue ordered{"", place + 1, scheduler_.now(), 0};
  const auto on_end = [this, place](const absl::Status& status) {
    if (!status.ok()) return;
    ordered_[place].acknowledged_at = scheduler_.now();
    ++numbers_;
  };
  const Us kind = dice_.Between(0, 2);
  if (kind == 0) {
    ordered.what = "tenant";
    ordered_.push_back(ordered);
    v1::SetTenantRequest request;
    request.set_name(ordered.what);
    request.set_requests_per_minute(static_cast<uint32_t>(ordered.value));
    return Ask(index, kSetTenant, request, absl::StrCat("limit it to ", ordered.value), on_end);
  }
  if (kind == 1) {
    ordered.what = "m0";
    ordered_.push_back(ordered);
    v1::ChangeProfileRequest request;
    request.mutable_set()->set_model(ordered.what);
    request.mutable_set()->set_max_tokens(static_cast<uint32_t>(ordered.value));
    return Ask(index, kChangeProfile, request, absl::StrCat("profile it at ", ordered.value),
               on_end);
  }
  ordered.what = machines_[RandomNode()]->id.value();
  ordered_.push_back(ordered);
  v1::MarkNodeRequest request;
  request.set_node_id(ordered.what);
  v1::NodeLabel& label = *request.add_labels();
  label.set_key("number");
  label.set_value(absl::StrCat(ordered.value));
  Ask(index, kMarkNode, request, absl::StrCat("label a node with ", ordered.value), on_end);
}

// --- faults --------------------------------------------------------------------------------------

void ClusterSim::ScheduleFault() {
  scheduler_.After(dice_.Between(100'000, 2'500'000), [this] {
    if (!chaos_) return;
    InjectFault();
    ScheduleFault();
  });
}

// Two halves, one alone, or one way between two.
void ClusterSim::InjectPartition() {
  const int count = static_cast<int>(machines_.size());
  switch (dice_.Between(0, 3)) {
    case 0:
    case 1: {
      std::vector<bool> side(machines_.size());
      for (size_t i = 0; i < side.size(); ++i) side[i] = dice_.Chance(0.5);
      for (int a = 0; a < count; ++a) {
        for (int b = 0; b < count; ++b) network_.Cut(a, b, side[a] != side[b]);
      }
      return;
    }
    case 2:
      return Isolate(RandomNode(), true);
    default: {
      const int one = RandomNode(), other = RandomNode();
      if (other == one) return;
      network_.Cut(one, other, true);
      if (dice_.Chance(0.5)) network_.Cut(other, one, true);
      return;
    }
  }
}

void ClusterSim::InjectFault() {
  const int node = RandomNode();
  if (options_.copies && dice_.Chance(0.3)) {
    return HasCopy() ? StopCopy() : StartCopy(node);
  }
  const Us fault = dice_.Between(0, 19);
  if (options_.calm && (fault < 10 || fault == 13 || fault == 15 || fault > 17)) return;
  const auto later = [this](Us low, Us high, std::function<void()> what) {
    scheduler_.After(dice_.Between(low, high), std::move(what));
  };
  const auto restart = [this, node] {
    if (!machines_[node]->up()) Start(node);
  };
  switch (fault) {
    case 0:
    case 1:
      Crash(node);
      return later(0, 6'000'000, restart);
    case 2:
    case 3:
      Pause(node);
      return later(100'000, 6'000'000, [this, node] { Resume(node); });
    case 4:
    case 5:
    case 6:
    case 7:
      return InjectPartition();
    case 8:
    case 9:
      return network_.HealCuts();
    case 10:
      network_.weather() = {static_cast<double>(dice_.Between(0, options_.calm ? 10 : 30)) / 100,
                            static_cast<double>(dice_.Between(0, 10)) / 100,
                            dice_.Between(200, 200'000), /*stalls=*/!options_.calm};
      return;
    case 11:
      return KillRank(node);
    case 12:
      FillDisk(node, true);
      return later(100'000, 8'000'000, [this, node] { FillDisk(node, false); });
    case 13: {
      const NodeId& other = machines_[RandomNode()]->id;
      return Cordon(node, other, DrawCordon(dice_));
    }
    case 15:
      Drain(node);
      KeepBusy(node, static_cast<int>(dice_.Between(0, 4000)));
      later(0, 8'000'000, [this, node] {
        if (machines_[node]->is_draining) Crash(node);
      });
      return later(8'000'000, 10'000'000, restart);
    case 16:
    case 17:
      return SetNumber(node);
    case 18: {
      const v1::PauseOrder order = DrawPause(dice_);
      PauseCluster(node, order);
      if (order == v1::PAUSE_ORDER_START) return;
      return later(500'000, 10'000'000,
                   [this] { PauseCluster(RandomNode(), v1::PAUSE_ORDER_START); });
    }
    case 19:
      return Dedicate(node, machines_[RandomNode()]->id, dice_.Chance(0.5) ? "others" : "");
    default: {
      const std::string model = absl::StrCat("m", dice_.Between(0, 1));
      dice_.Chance(0.3) ? Unload(node, model) : Load(node, model);
      return;
    }
  }
}

void ClusterSim::Heal() {
  chaos_ = false;
  network_.weather() = {};
  network_.HealCuts();
  if (HasCopy() && dice_.Chance(0.5)) StopCopy();
  StartKeptOut();
  for (const auto& machine : machines_) {
    FillDisk(machine->index, false);
    if (machine->paused()) Resume(machine->index);
    if (machine->is_draining) Crash(machine->index);
    if (!machine->up() && machine->index < options_.nodes) Start(machine->index);
  }
  Uncordon();
}

// By hand: a model that was asked for has all nodes in the end, of a cluster that is started.
void ClusterSim::Uncordon() {
  if (const auto leader = CoordinatorIndex(); leader.has_value()) {
    const DesiredState& desired = machines_[*leader]->parts().replicator.desired();
    for (int index = 0; index < options_.nodes; ++index) {
      const NodeId& node = machines_[index]->id;
      if (desired.FindCordon(node.value()) != nullptr) {
        Cordon(*leader, node, v1::CORDON_ORDER_UNCORDON);
      }
      const v1::NodeMarks* marks = desired.FindMarks(node.value());
      if (marks != nullptr && !marks->tenant().empty()) Dedicate(*leader, node, "");
    }
    if (desired.pause() != nullptr || !desired.stopped().empty()) {
      PauseCluster(*leader, v1::PAUSE_ORDER_START);
    }
  }
  scheduler_.After(kUncordonPause, [this] { Uncordon(); });
}

// By hand: whom a copy kept out, when that is gone. Refusals may still be on their way then.
void ClusterSim::StartKeptOut() {
  for (int index = 0; index < options_.nodes; ++index) {
    const SimMachine& machine = *machines_[index];
    const bool is_kept_out = HasCopy() && machines_.back()->id == machine.id;
    if (!machine.up() || is_kept_out || machine.standing() != Standing::kRefused) continue;
    Crash(index);
    Start(index);
  }
  scheduler_.After(kByHandPause, [this] { StartKeptOut(); });
}

std::string ClusterSim::Run() {
  for (int index = 0; index < options_.nodes; ++index) {
    scheduler_.After(dice_.Between(0, 1'500'000), [this, index] {
      if (!machines_[index]->up()) Start(index);
    });
  }
  RunFor(6000);
  if (const auto leader = CoordinatorIndex(); leader.has_value()) Load(*leader, "m0");
  if (options_.faults) {
    chaos_ = true;
    network_.weather().stalls = !options_.calm;
    ScheduleFault();
    RunFor(options_.fault_ms);
    Heal();
  }
  // It may converge early, and then has to stay so.
  Us since = -1;
  const Us end = scheduler_.now() + Us{options_.heal_ms} * 1000;
  while (violation_.empty() && scheduler_.now() < end) {
    RunFor(500);
    if (!WhyNotConverged().empty()) {
      since = -1;
    } else if (since < 0) {
      since = scheduler_.now();
    } else if (scheduler_.now() - since >= kStaysConverged) {
      return violation_;
    }
  }
  if (violation_.empty()) Violate(absl::StrCat("healed, but ", WhyNotConverged()));
  return violation_;
}

}  // namespace macrame::agentd::sim
