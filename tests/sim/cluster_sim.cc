#include "tests/sim/cluster_sim.h"

#include <algorithm>
#include <cstdio>
#include <utility>

#include "absl/strings/str_cat.h"

namespace macrame::agentd::sim {

ClusterSim::ClusterSim(SimOptions options)
    : options_(options),
      random_(options.seed),
      cut_(options.nodes + 1, std::vector<bool>(options.nodes + 1, false)) {
  for (int i = 0; i < options_.nodes + (options_.copies ? 1 : 0); ++i) {
    auto node = std::make_unique<SimNode>();
    node->index = i;
    node->id = NodeId(std::string(32, static_cast<char>('a' + i)));
    node->machine = std::string(8, static_cast<char>('A' + i));
    node->clock_offset = Between(1'000'000'000, 90'000'000'000);
    const double drift = options_.plant == Plant::kWildClocks ? 0.2 : 0.02;
    node->clock_rate = 1 + drift * (static_cast<double>(Between(0, 2000)) / 1000 - 1);
    nodes_.push_back(std::move(node));
  }
}

// --- time and network ----------------------------------------------------------------------------

void ClusterSim::After(Us delay, std::function<void()> run) {
  queue_.push({now_ + delay, ++order_, std::move(run)});
}

Us ClusterSim::LocalUs(const SimNode& node) const {
  return node.clock_offset + static_cast<Us>(static_cast<double>(now_) * node.clock_rate);
}

MonotonicTime ClusterSim::Local(const SimNode& node) const {
  return MonotonicTime(Duration(LocalUs(node)));
}

bool ClusterSim::Chance(double probability) {
  return static_cast<double>(random_() % 1'000'000) < probability * 1'000'000;
}

Us ClusterSim::Between(Us low, Us high) {
  return low + static_cast<Us>(random_() % static_cast<uint64_t>(high - low + 1));
}

int ClusterSim::RandomNode() {
  return static_cast<int>(random_() % static_cast<uint64_t>(options_.nodes));
}

void ClusterSim::Send(int from, int to, std::function<void(SimNode&)> deliver) {
  const int copies = Chance(duplicate_) ? 2 : 1;
  for (int copy = 0; copy < copies; ++copy) {
    if (cut_[from][to] || Chance(loss_)) continue;
    Us delay = Between(100, delay_max_);
    if (chaos_ && Chance(0.01)) delay += Between(0, 2'500'000);  // stuck somewhere for a while
    After(delay,
          [this, to, from, run = nodes_[from]->run, deliver] { Deliver(to, run, from, deliver); });
  }
}

void ClusterSim::Deliver(int to, uint64_t from_run, int from,
                         const std::function<void(SimNode&)>& deliver) {
  SimNode& node = *nodes_[to];
  if (!node.up || cut_[from][to]) return;
  if (node.paused) {
    node.inbox.push_back(
        [this, to, from_run, from, deliver] { Deliver(to, from_run, from, deliver); });
    return;
  }
  deliver(node);
}

void ClusterSim::RunFor(int ms) {
  const Us end = now_ + Us{ms} * 1000;
  while (!queue_.empty() && queue_.top().at <= end && violation_.empty()) {
    Event event = queue_.top();
    queue_.pop();
    now_ = event.at;
    event.run();
    ++events_;
    if (violation_.empty()) Check();
  }
  now_ = std::max(now_, end);
}

// --- what happens to nodes -----------------------------------------------------------------------

void ClusterSim::StartAll() {
  for (int index = 0; index < options_.nodes; ++index) {
    if (!nodes_[index]->up) Start(index);
  }
}

void ClusterSim::Start(int index) {
  SimNode& node = *nodes_[index];
  node.up = true;
  node.paused = false;
  node.draining = false;
  ++node.run;
  ElectionOptions options;
  options.consistency = options_.consistency;
  options.renew_interval = options.lease / 8;  // as agents have it (agentd/agent_parts.cc)
  options.fresh_for = options.lease * 21 / 50;
  options.first_members = std::min<size_t>(3, nodes_.size());
  node.election = std::make_unique<Election>(
      node.id, options, node.disk_grant, [this] { return random_(); }, Local(node));
  node.table = std::make_unique<StateTable>(node.id);
  std::vector<v1::StateEntry> entries;
  for (const auto& [key, entry] : node.disk) entries.push_back(entry);
  node.table->Load(entries);
  GangReconcilerOptions gang_options;
  gang_options.backoff_max = std::chrono::seconds(4);
  gang_options.connecting_limit = std::chrono::seconds(5);
  gang_options.plan_limit = std::chrono::seconds(5);
  node.reconciler = std::make_unique<GangReconciler>(gang_options);
  node.members = std::make_unique<MemberList>(node.id, options_.consistency);
  node.listed.clear();
  node.unsaved = {};
  node.failing_since = 0;
  node.unable = false;
  node.table->SetKeeps([this, index](std::string_view key) {
    const SimNode& own = *nodes_[index];
    if (key == kMembersKey) return own.election->Leading(Local(own)).has_value();
    return key.starts_with("gang/") && own.reconciler->Keeps(std::string(key.substr(5)));
  });
  IdentityGuardOptions guard_options;
  guard_options.consistency = options_.consistency;
  const std::string last_machine = options_.plant == Plant::kTrustCopies ? "" : node.disk_machine;
  node.guard = std::make_unique<IdentityGuard>(last_machine, guard_options, Local(node));
  node.guard->SetSelf(IdentityOf(node));
  if (node.disk_machine.empty()) node.disk_machine = node.machine;
  node.places = std::make_unique<discovery::MembershipTable>(IdentityOf(node));
  node.heard.clear();
  node.called_local.clear();
  node.heartbeats = node.beacons = node.news_told = 0;
  node.fresh_until = 0;
  node.live.clear();
  node.known = {node.id};
  node.ranks.clear();
  node.ended_up_to.clear();
  node.replicated_at.clear();
  node.waiting.clear();
  node.inbox.clear();
  node.view_revision = ~uint64_t{0};
  node.last_tick = LocalUs(node);
  node.beacon_at = 0;
  TakeMemberList(node);
  Trace(node, "starts");
  ScheduleTick(index, node.run);
}

void ClusterSim::Crash(int index) {
  SimNode& node = *nodes_[index];
  if (!node.up) return;
  Trace(node, "crashes");
  node.up = false;
  node.paused = false;
  node.is_off = Chance(0.5);
  ++node.run;
  node.ranks.clear();
  node.inbox.clear();
}

void ClusterSim::Drain(int index) {
  SimNode& node = *nodes_[index];
  if (!node.up || node.paused || node.draining) return;
  Trace(node, "is told to stop");
  node.draining = true;
  Carry(node, node.election->Resign(Local(node)), nullptr, -1);
  SendHeartbeats(node);
}

void ClusterSim::KeepBusy(int index, int ms) {
  for (SimRank& rank : nodes_[index]->ranks) {
    if (rank.status.phase() != v1::RANK_PHASE_READY) continue;
    rank.status.set_requests_running(1);
    rank.busy_until = now_ + Us{ms} * 1000;
  }
}

int ClusterSim::RanksOn(int index, const std::string& deployment) const {
  const SimNode& node = *nodes_[index];
  return static_cast<int>(
      std::count_if(node.ranks.begin(), node.ranks.end(), [&](const SimRank& rank) {
        return node.up && rank.status.deployment() == deployment &&
               rank.status.phase() <= v1::RANK_PHASE_READY;
      }));
}

void ClusterSim::Pause(int index) {
  SimNode& node = *nodes_[index];
  if (!node.up || node.paused) return;
  Trace(node, "is paused");
  node.paused = true;
}

void ClusterSim::Resume(int index) {
  SimNode& node = *nodes_[index];
  if (!node.up || !node.paused) return;
  Trace(node, "goes on");
  node.paused = false;
  // What had come meanwhile is handled before or after the first tick, as it happens.
  if (Chance(0.5)) Tick(node);
  for (auto& handle : std::exchange(node.inbox, {})) {
    if (node.up && !node.paused) handle();
  }
}

void ClusterSim::Isolate(int index, bool cut) {
  for (int other = 0; other < static_cast<int>(nodes_.size()); ++other) {
    if (other != index) cut_[index][other] = cut_[other][index] = cut;
  }
}

void ClusterSim::FillDisk(int index, bool full) {
  SimNode& node = *nodes_[index];
  if (node.disk_full == full) return;
  Trace(node, full ? "has a full disk" : "has room on its disk");
  node.disk_full = full;
  if (!full) node.room_since = now_;
}

void ClusterSim::StartCopy(int of) {
  SimNode& copy = *nodes_.back();
  const SimNode& from = *nodes_[of];
  if (!options_.copies || copy.up || from.disk_machine.empty()) return;
  // What the one before has promised is forgotten with it, so that has to have run out.
  if (copy_stopped_at_ != 0 && now_ - copy_stopped_at_ < kCopiesApart) return;
  Trace(from, "is copied; the copy starts");
  // The machine of the copy before is gone, with what only its disk had.
  std::erase_if(
      acked_, [&](const AckedWrite& acked) { return acked.on_disk == std::set<int>{copy.index}; });
  copy.id = from.id;
  copy.run = std::max(copy.run, from.run);
  copy.disk = from.disk;
  copy.disk_grant = from.disk_grant;
  copy.disk_machine = from.disk_machine;
  copy.obeyed = from.obeyed;
  Start(copy.index);
}

void ClusterSim::StopCopy() {
  Crash(static_cast<int>(nodes_.size()) - 1);
  copy_stopped_at_ = now_;
}

void ClusterSim::KillRank(int index) {
  SimNode& node = *nodes_[index];
  if (!node.up || node.ranks.empty()) return;
  SimRank& rank = node.ranks[random_() % node.ranks.size()];
  if (rank.status.phase() > v1::RANK_PHASE_READY) return;
  Trace(node, "loses a rank");
  rank.status.set_phase(v1::RANK_PHASE_FAILED);
  rank.status.mutable_failure()->set_code("RANK_KILLED");
  rank.status.mutable_failure()->set_message("killed by the simulation");
}

// --- faults --------------------------------------------------------------------------------------

void ClusterSim::ScheduleFault() {
  After(Between(100'000, 2'500'000), [this] {
    if (!chaos_) return;
    InjectFault();
    ScheduleFault();
  });
}

void ClusterSim::InjectFault() {
  const int node = RandomNode();
  if (options_.copies && Chance(0.3)) {
    HasCopy() ? StopCopy() : StartCopy(node);
    return;
  }
  const uint64_t fault = random_() % 16;
  if (options_.calm && (fault < 10 || fault == 15)) return;
  switch (fault) {
    case 0:
    case 1:
      Crash(node);
      After(Between(0, 6'000'000), [this, node] {
        if (!nodes_[node]->up) Start(node);
      });
      return;
    case 2:
    case 3:
      Pause(node);
      After(Between(100'000, 6'000'000), [this, node] { Resume(node); });
      return;
    case 4:
    case 5: {  // two halves
      std::vector<bool> side(nodes_.size());
      for (size_t i = 0; i < side.size(); ++i) side[i] = Chance(0.5);
      for (size_t a = 0; a < side.size(); ++a) {
        for (size_t b = 0; b < side.size(); ++b) cut_[a][b] = side[a] != side[b];
      }
      return;
    }
    case 6:
      Isolate(node, true);
      return;
    case 7: {  // one way, or between two only
      const int other = RandomNode();
      if (other != node) cut_[node][other] = true;
      if (other != node && Chance(0.5)) cut_[other][node] = true;
      return;
    }
    case 8:
    case 9:
      for (auto& row : cut_) row.assign(row.size(), false);
      return;
    case 10:
      loss_ = static_cast<double>(Between(0, options_.calm ? 10 : 30)) / 100;
      duplicate_ = static_cast<double>(Between(0, 10)) / 100;
      delay_max_ = Between(200, 200'000);
      return;
    case 11:
      KillRank(node);
      return;
    case 15:
      Drain(node);
      KeepBusy(node, static_cast<int>(Between(0, 4000)));
      After(Between(0, 8'000'000), [this, node] {
        if (nodes_[node]->draining) Crash(node);
      });
      After(Between(8'000'000, 10'000'000), [this, node] {
        if (!nodes_[node]->up) Start(node);
      });
      return;
    case 12:
      FillDisk(node, true);
      After(Between(100'000, 8'000'000), [this, node] { FillDisk(node, false); });
      return;
    default:
      Propose(node, absl::StrCat("m", random_() % 2), Chance(0.3));
      return;
  }
}

void ClusterSim::Heal() {
  chaos_ = false;
  loss_ = duplicate_ = 0;
  delay_max_ = 2'000;
  for (auto& row : cut_) row.assign(row.size(), false);
  if (HasCopy() && Chance(0.5)) StopCopy();
  StartKeptOut();
  for (const auto& node : nodes_) {
    FillDisk(node->index, false);
    if (node->draining) Crash(node->index);
    if (!node->up && node->index < options_.nodes) Start(node->index);
    if (node->paused) Resume(node->index);
  }
}

// By hand: whom a copy kept out, when that is gone. Refusals may still be on their way then.
void ClusterSim::StartKeptOut() {
  for (int index = 0; index < options_.nodes; ++index) {
    const SimNode& node = *nodes_[index];
    const bool is_kept_out = HasCopy() && nodes_.back()->id == node.id;
    if (!node.up || is_kept_out || node.guard->standing() != Standing::kRefused) continue;
    Crash(index);
    Start(index);
  }
  After(kByHandPause, [this] { StartKeptOut(); });
}

std::string ClusterSim::Run() {
  for (int index = 0; index < options_.nodes; ++index) {
    After(Between(0, 1'500'000), [this, index] {
      if (!nodes_[index]->up) Start(index);
    });
  }
  RunFor(4000);
  if (const auto leader = CoordinatorIndex(); leader.has_value()) Propose(*leader, "m0", false);
  if (options_.faults) {
    chaos_ = true;
    ScheduleFault();
    RunFor(options_.fault_ms);
    Heal();
  }
  RunFor(options_.heal_ms);
  if (violation_.empty()) CheckConverged();
  return violation_;
}

}  // namespace macrame::agentd::sim
