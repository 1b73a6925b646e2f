// What an agent's shell does with the cores: the parts of agentd that are simulated here.

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "tests/sim/cluster_sim.h"

namespace macrame::agentd::sim {
namespace {

constexpr Us kTick = 50'000;
constexpr Us kSuspectAfter = 1'500'000;
constexpr Us kResendAfter = 300'000;
constexpr Us kCallLimit = 2'000'000;

// A lease is asked for in a heartbeat; what changes nothing or gives one back goes by itself.
bool IsInHeartbeat(const SendLeaseRequest& asked) {
  return !asked.request.pre_vote() && asked.request.lease_ms() != 0;
}

bool IsOver(const SimRank& rank) { return rank.status.phase() > v1::RANK_PHASE_READY; }

}  // namespace

int ClusterSim::IndexOf(const NodeId& id) const { return id.value()[0] - 'a'; }

void ClusterSim::ScheduleTick(int index, uint64_t run) {
  After(Between(kTick / 2, kTick), [this, index, run] {
    SimNode& node = *nodes_[index];
    if (!node.up || node.run != run) return;
    if (!node.paused) Tick(node);
    ScheduleTick(index, run);
  });
}

void ClusterSim::Tick(SimNode& node) {
  const Us local = LocalUs(node);
  const Us gap = local - std::exchange(node.last_tick, local);
  // A pause of one's own is not held against the others.
  if (gap > 4 * kTick) {
    for (auto& [index, heard] : node.heard) {
      heard.at_local += gap;
      heard.exchanged_local += gap;
      heard.silent_since += gap;
    }
  }
  TickRefused(node);
  AskSilent(node);
  AdvanceRanks(node);
  TickIdentity(node);
  UpdateMembership(node);
  WatchDisk(node);
  if (IsSure(node)) Carry(node, node.election->OnTick(Local(node)), nullptr, -1);
  if (!node.up) return;
  if (local >= node.beacon_at) {
    node.beacon_at = local + kHeartbeat;
    SendBeacons(node);
  }
  SendHeartbeats(node);
  Lead(node);
}

void ClusterSim::UpdateMembership(SimNode& node) {
  std::set<NodeId> live = {node.id}, beside;
  for (const auto& [index, heard] : node.heard) {
    node.known.insert(nodes_[index]->id);
    if (!IsLive(node, heard)) {
      node.places->SetState(nodes_[index]->id, v1::NODE_STATE_DEAD, {}, Local(node));
      continue;
    }
    beside.insert(nodes_[index]->id);
    if (!heard.said.failing) live.insert(nodes_[index]->id);
  }
  node.election->SetBeside(beside);
  if (live == node.live || !IsSure(node)) return;
  node.live = live;
  Carry(node, node.election->OnMembershipChanged(live, node.known, Local(node)), nullptr, -1);
}

// --- election ------------------------------------------------------------------------------------

void ClusterSim::Carry(SimNode& node, const ElectionEffects& effects,
                       const SendLeaseRequest* answered, int asker) {
  for (const ElectionEffect& effect : effects) {
    if (const auto* persist = std::get_if<PersistGrant>(&effect)) {
      if (node.disk_full) {
        node.failing_since = std::max<Us>(node.failing_since, 1);
        return Carry(node, node.election->OnPersistFailed(Local(node)), nullptr, -1);
      }
      if (chaos_ && Chance(0.01)) return Crash(node.index);  // just before it was written
      if (options_.plant != Plant::kForgetGrant) node.disk_grant = persist->record;
      if (chaos_ && Chance(0.01)) return Crash(node.index);  // just after
    } else if (const auto* answer = std::get_if<AnswerLease>(&effect)) {
      v1::LeaseResponse response = answer->response;
      if (answer->with_entries) {
        for (const auto& [key, entry] : node.table->entries()) *response.add_entries() = entry;
      }
      Send(node.index, asker,
           [this, asked = *answered, response, by = node.index, said = MakeHeartbeat(node),
            run = nodes_[asker]->run](SimNode& to) {
             if (to.run != run) return;
             if (IsInHeartbeat(asked)) OnAnswer(to, by, said, asked.sent_at);
             OnLeaseResponse(to, asked, response);
           });
    } else if (const auto* ask = std::get_if<SendLeaseRequest>(&effect)) {
      const int to_index = AddressOf(node, ask->to);
      if (IsInHeartbeat(*ask)) node.called_local[to_index] = LocalUs(node);
      Send(node.index, to_index,
           [this, from = node.index, asked = *ask, said = MakeHeartbeat(node)](SimNode& to) {
             if (IsInHeartbeat(asked) && !Admit(to, from, said)) return;
             OnLeaseRequest(to, from, asked);
           });
    } else if (const auto* won = std::get_if<BecameCoordinator>(&effect)) {
      ++elections_;
      Trace(node, absl::StrCat("leads in term ", won->fence.term.value()));
      node.table->BeginLeading(won->fence);
      const StateTable::Proposal restored = node.table->RestoreKept();
      const bool any = !restored.change.empty();
      if (Save(node, restored.change) && any) node.table->OnPersisted(restored.sequence);
      node.reconciler->BeginLeading(won->fence, Local(node));
      node.members->BeginLeading(Local(node));
      node.replicated_at.clear();
      node.waiting.clear();
      CheckElected(node, won->fence);
    } else if (const auto* lost = std::get_if<LostCoordination>(&effect)) {
      Trace(node, absl::StrCat("leads no more: ", lost->why.message()));
      node.table->StopLeading();
      node.reconciler->StopLeading();
      node.waiting.clear();
    } else if (const auto* obeys = std::get_if<ObeysChanged>(&effect)) {
      if (obeys->coordinator.has_value() && obeys->coordinator->coordinator != node.id) {
        node.table->ForgetKept();
        node.reconciler->ForgetKept();
      }
    }
  }
}

void ClusterSim::OnLeaseRequest(SimNode& node, int from, const SendLeaseRequest& asked) {
  if (asked.to != node.id || !IsSure(node)) return;
  Carry(node, node.election->OnLeaseRequest(nodes_[from]->id, asked.request, Local(node)), &asked,
        from);
}

void ClusterSim::OnLeaseResponse(SimNode& node, const SendLeaseRequest& asked,
                                 const v1::LeaseResponse& response) {
  if (options_.plant != Plant::kLeadWithoutMerging) {
    Merge(node, response.entries(), false, nullptr);
  }
  Carry(node, node.election->OnLeaseResponse(asked, response, Local(node)), nullptr, -1);
}

// --- state ---------------------------------------------------------------------------------------

bool ClusterSim::Save(SimNode& node, const StateChange& change) {
  if (options_.plant == Plant::kForgetEntries && Chance(0.5)) return true;
  if (node.disk_full || !node.unsaved.empty()) {
    node.unsaved.put.insert(node.unsaved.put.end(), change.put.begin(), change.put.end());
    node.unsaved.dropped.insert(node.unsaved.dropped.end(), change.dropped.begin(),
                                change.dropped.end());
    return node.unsaved.empty();
  }
  Write(node, change);
  return true;
}

// The second that an agent waits before it takes a disk for full, and before it tries again.
void ClusterSim::WatchDisk(SimNode& node) {
  const bool failing =
      node.disk_full && (!node.unsaved.empty() || node.election->Unsaved().has_value());
  if (!node.disk_full) {
    if (!node.unsaved.empty()) {
      Write(node, std::exchange(node.unsaved, {}));
      if (node.table->leading()) {
        for (const SimWaiting& waiting : node.waiting) {
          node.table->OnPersisted(waiting.version.sequence);
        }
      }
    }
    if (const auto grant = node.election->Unsaved(); grant.has_value()) {
      node.disk_grant = *grant;
      Carry(node, node.election->OnPersisted(Local(node)), nullptr, -1);
    }
    node.failing_since = 0;
    if (std::exchange(node.unable, false)) {
      Carry(node, node.election->OnDiskTrouble(std::nullopt, Local(node)), nullptr, -1);
    }
    return;
  }
  if (failing && node.failing_since <= 1) node.failing_since = now_;
  if (!failing || node.unable || now_ - node.failing_since < 1'000'000) return;
  node.unable = true;
  v1::Reason why;
  why.set_code("STATE_DISK_FULL");
  why.set_message("its disk is full");
  Carry(node, node.election->OnDiskTrouble(why, Local(node)), nullptr, -1);
}

void ClusterSim::Write(SimNode& node, const StateChange& change) {
  for (const v1::StateEntry& entry : change.put) {
    CheckDisk(node, entry);
    node.disk[entry.key()] = entry;
  }
  for (const std::string& key : change.dropped) node.disk.erase(key);
}

void ClusterSim::Merge(SimNode& node, const StateEntries& entries, bool complete,
                       MergeResult* result) {
  MergeResult merged = node.table->Merge(entries, complete);
  if (Save(node, merged.change) && merged.restored != 0) node.table->OnPersisted(merged.restored);
  const auto note = [&](const v1::StateEntry& entry) {
    v1::GangRecord record;
    if (entry.key().starts_with("gang/") && !entry.removed() &&
        record.ParseFromString(entry.value())) {
      node.reconciler->NoteApart(record);
    }
  };
  for (const KeptWrite& kept : merged.kept) note(kept.theirs);
  for (const LostWrite& lost : merged.lost) note(lost.lost);
  TakeMemberList(node);
  if (result != nullptr) *result = std::move(merged);
}

void ClusterSim::TakeMemberList(SimNode& node) {
  std::set<NodeId> listed = ListedMembers(*node.table);
  if (listed == node.listed) return;
  node.listed = std::move(listed);
  Carry(node, node.election->OnMemberList(node.listed, Local(node)), nullptr, -1);
}

// The coordinator's own part; returns at once when nothing is due.
void ClusterSim::WriteMemberList(SimNode& node) {
  std::set<NodeId> granted = {node.id};
  for (const NodeId& id : node.live) {
    if (node.election->HoldsLeaseOf(id, Local(node))) granted.insert(id);
  }
  bool committed = true;
  for (const SimWaiting& waiting : node.waiting) committed &= waiting.key != kMembersKey;
  const auto due = node.members->Due(*node.table, granted, node.live, committed, Local(node));
  if (!due.has_value()) return;
  const auto proposal = node.table->Propose(kMembersKey, due->SerializeAsString());
  if (!proposal.ok()) return;
  if (Save(node, proposal->change)) node.table->OnPersisted(proposal->sequence);
  node.waiting.push_back({std::string(kMembersKey), VersionOf(proposal->change.put.at(0)), "", 0});
  TakeMemberList(node);
}

std::set<NodeId> ClusterSim::Electorate(const SimNode& node) const {
  if (options_.consistency == Consistency::kAvailable) return node.live;
  return node.listed.empty() ? node.known : node.listed;
}

bool ClusterSim::Propose(int index, const std::string& deployment, bool remove) {
  SimNode& node = *nodes_[index];
  if (!node.up || node.paused || !node.election->Leading(Local(node)).has_value()) return false;
  if (options_.consistency == Consistency::kQuorum && node.listed.empty()) return false;
  v1::Deployment wanted;
  wanted.set_name(deployment);
  wanted.set_created_unix_ms(static_cast<uint64_t>(now_));
  const std::string key = DeploymentKey(deployment);
  const auto proposal =
      remove ? node.table->Remove(key) : node.table->Propose(key, wanted.SerializeAsString());
  if (!proposal.ok() || proposal->change.empty()) return false;
  Trace(node, absl::StrCat(remove ? "removes " : "deploys ", deployment));
  if (Save(node, proposal->change)) node.table->OnPersisted(proposal->sequence);
  node.waiting.push_back({key, VersionOf(proposal->change.put.at(0)), "", 0});
  return true;
}

void ClusterSim::Replicate(SimNode& node) {
  const FencePair fence = *node.election->Leading(Local(node));
  for (const NodeId& id : node.live) {
    const int to = IndexOf(id);
    if (id == node.id || !node.election->HoldsLeaseOf(id, Local(node))) continue;
    const auto heard = node.heard.find(to);
    const auto sent = node.replicated_at.find(to);
    const bool waits = sent != node.replicated_at.end() && now_ - sent->second < kResendAfter;
    if (waits) continue;
    if (!node.table->PendingFor(id).has_value() && heard != node.heard.end() &&
        heard->second.said.digest != node.table->Digest() &&
        (sent == node.replicated_at.end() || now_ - sent->second > 2 * kHeartbeat)) {
      node.table->OnDigestDiffers(id);
    }
    const auto batch = node.table->PendingFor(id);
    if (!batch.has_value()) continue;
    node.replicated_at[to] = now_;
    Send(node.index, AddressOf(node, id),
         [this, from = node.index, fence, batch = *batch](SimNode& receiver) {
           OnReplicate(receiver, from, fence, batch);
         });
  }
}

void ClusterSim::OnReplicate(SimNode& node, int from, const FencePair& fence,
                             const StateTable::Batch& batch) {
  if (!Obeys(node, fence)) return;
  StateEntries entries(batch.entries.begin(), batch.entries.end());
  MergeResult merged;
  Merge(node, entries, batch.complete, &merged);
  if (!node.unsaved.empty()) return;  // refused: it is not on this disk
  StateEntries newer(merged.newer_here.begin(), merged.newer_here.end());
  Send(node.index, from,
       [this, by = node.id, sequence = batch.sequence, fence, newer](SimNode& to) {
         Merge(to, newer, false, nullptr);
         if (to.election->Leading(Local(to)) != fence) return;
         to.table->OnReplicated(by, sequence);
         to.replicated_at.erase(IndexOf(by));
         NoteCommits(to);
       });
}

void ClusterSim::NoteCommits(SimNode& node) {
  const auto leading = node.election->Leading(Local(node));
  if (!leading.has_value()) return;
  const std::set<NodeId> electorate = Electorate(node);
  const uint64_t committed = node.table->CommittedUpTo(electorate);
  std::vector<SimWaiting> still;
  for (SimWaiting& waiting : std::exchange(node.waiting, {})) {
    if (waiting.version.sequence > committed || waiting.version.fence != *leading) {
      still.push_back(std::move(waiting));
      continue;
    }
    AckedWrite acked{waiting.key, waiting.version, {}};
    for (const auto& other : nodes_) {
      const auto entry = other->disk.find(waiting.key);
      if (entry != other->disk.end() && VersionOf(entry->second) >= waiting.version) {
        acked.on_disk.insert(other->index);
      }
    }
    size_t among = 0;
    for (const NodeId& id : electorate) {
      among += acked.on_disk.contains(id == node.id ? node.index : AddressOf(node, id));
    }
    if (among * 2 <= electorate.size())
      Violate("a write was acknowledged without a majority of disks");
    acked_.push_back(std::move(acked));
    if (!waiting.gang.empty()) {
      node.reconciler->OnGangWritten(waiting.gang, waiting.epoch, absl::OkStatus(), Local(node));
    }
  }
  node.waiting = std::move(still);
}

// --- leading -------------------------------------------------------------------------------------

void ClusterSim::Lead(SimNode& node) {
  if (!node.election->Leading(Local(node)).has_value()) return;
  WriteMemberList(node);
  if (!node.election->Leading(Local(node)).has_value()) return;
  Replicate(node);
  NoteCommits(node);
  if (options_.consistency == Consistency::kQuorum && node.listed.empty()) return;
  Reconcile(node);
}

void ClusterSim::Reconcile(SimNode& node) {
  const FencePair fence = *node.election->Leading(Local(node));
  ClusterView& view = node.view;
  if (node.view_revision != node.table->revision()) {
    FillFromState(DesiredState(*node.table), view);
    node.view_revision = node.table->revision();
  }
  view.nodes.clear();
  view.ranks.clear();
  view.unix_ms = static_cast<uint64_t>(1 + now_ / 1000);
  for (const NodeId& id : node.known) {
    const int index = IndexOf(id);
    NodeView one{id,
                 id.value().substr(0, 1),
                 v1::NODE_STATE_ALIVE,
                 1,
                 node.election->HoldsLeaseOf(id, Local(node)),
                 true};
    if (id != node.id) {
      const SimHeard& heard = node.heard.at(index);
      const Us age = LocalUs(node) - heard.at_local;
      if (age > kSuspectAfter) one.state = v1::NODE_STATE_SUSPECT;
      if (!IsLive(node, heard)) one.state = v1::NODE_STATE_DEAD;
      one.draining = node.heard.at(index).said.draining;
      const auto& ranks = node.heard.at(index).said.ranks;
      view.ranks.insert(view.ranks.end(), ranks.begin(), ranks.end());
    }
    view.nodes.push_back(std::move(one));
  }
  for (const SimRank& rank : node.ranks) view.ranks.push_back(rank.status);
  for (const GangEffect& effect : node.reconciler->Reconcile(view, Local(node))) {
    Carry(node, fence, effect);
  }
}

void ClusterSim::Carry(SimNode& node, const FencePair& fence, const GangEffect& effect) {
  if (const auto* plan = std::get_if<PlanDeployment>(&effect)) {
    Plan(node, *plan);
  } else if (const auto* write = std::get_if<WriteGang>(&effect)) {
    WriteRecord(node, *write);
  } else if (const auto* launch = std::get_if<ReserveAndLaunch>(&effect)) {
    Launch(node, fence, *launch);
  } else if (const auto* end = std::get_if<StopRanks>(&effect)) {
    Trace(node, absl::StrCat("ends ", end->deployment, " up to epoch ", end->up_to_epoch, " on ",
                             Letter(end->node), ": ", end->why.message()));
    CheckEnding(node, *end);
    OrderEnd(node, fence, *end);
  } else if (const auto* remove = std::get_if<RemoveGang>(&effect)) {
    v1::GangRecord residue;
    residue.set_deployment(remove->deployment);
    residue.set_epoch(remove->last_epoch);
    const auto proposal =
        node.table->Remove(GangKey(remove->deployment), residue.SerializeAsString());
    if (!proposal.ok()) return;
    if (Save(node, proposal->change)) node.table->OnPersisted(proposal->sequence);
  } else if (const auto* notify = std::get_if<Notify>(&effect)) {
    Trace(node,
          absl::StrCat(notify->deployment, " epoch ", notify->epoch, " is ",
                       v1::DeploymentState_Name(notify->state), " ", notify->reason.message()));
    CheckReady(node, *notify);
  }
}

void ClusterSim::Plan(SimNode& node, const PlanDeployment& plan) {
  v1::PlanResult result;
  const size_t ranks_max = plan.deployment.name() == "m0" ? 3 : 2;
  for (const NodeView& view : node.view.nodes) {
    if (view.state != v1::NODE_STATE_ALIVE || !view.orderable || view.draining) continue;
    if (static_cast<size_t>(result.plan().assignments_size()) == ranks_max) break;
    v1::Assignment* assignment = result.mutable_plan()->add_assignments();
    assignment->set_rank(result.plan().assignments_size() - 1);
    assignment->set_node_id(view.id.value());
  }
  After(Between(1000, 20'000),
        [this, index = node.index, run = node.run, name = plan.deployment.name(), result] {
          SimNode& planner = *nodes_[index];
          if (!planner.up || planner.run != run || planner.paused)
            return;  // the limit deals with it
          planner.reconciler->OnPlanned(name, result, Local(planner));
        });
}

void ClusterSim::WriteRecord(SimNode& node, const WriteGang& write) {
  const std::string key = GangKey(write.record.deployment());
  const auto proposal = node.table->Propose(key, write.record.SerializeAsString());
  if (!proposal.ok()) return;
  if (Save(node, proposal->change)) node.table->OnPersisted(proposal->sequence);
  node.waiting.push_back({key, VersionOf(proposal->change.put.at(0)), write.record.deployment(),
                          write.record.epoch()});
  if (options_.plant == Plant::kLaunchUnwritten) {
    node.reconciler->OnGangWritten(write.record.deployment(), write.record.epoch(),
                                   absl::OkStatus(), Local(node));
  }
}

// Reserve on all, then launch on all, each within a limit.
void ClusterSim::Launch(SimNode& node, const FencePair& fence, const ReserveAndLaunch& launch) {
  struct Progress {
    int reserved = 0, launched = 0;
    bool over = false;
  };
  auto progress = std::make_shared<Progress>();
  const int count = launch.plan.assignments_size();
  const auto finish = [this, progress, index = node.index, run = node.run, launch](bool ok) {
    SimNode& leader = *nodes_[index];
    if (std::exchange(progress->over, true) || !leader.up || leader.run != run) return;
    leader.reconciler->OnLaunched(launch.deployment.name(), launch.epoch,
                                  ok ? absl::OkStatus() : absl::UnavailableError("a node refused"),
                                  Local(leader));
  };
  After(kCallLimit, [finish] { finish(false); });
  std::vector<int> peers;
  for (const v1::Assignment& assignment : launch.plan.assignments()) {
    const NodeId id(assignment.node_id());
    peers.push_back(id == node.id ? node.index : AddressOf(node, id));
  }
  const auto start = [=, this](SimNode& leader) {
    const auto leading = leader.election->Leading(Local(leader));
    if (leading != fence && options_.plant != Plant::kActWithoutLeading) return;
    for (int i = 0; i < count; ++i) {
      const v1::Assignment& assignment = launch.plan.assignments(i);
      Send(leader.index, peers[i], [=, this, from = leader.index](SimNode& target) {
        const bool ok = StartRank(target, fence, launch, assignment, peers);
        Send(target.index, from, [=](SimNode&) {
          if (!ok) return finish(false);
          if (++progress->launched == count) finish(true);
        });
      });
    }
  };
  for (const int peer : peers) {
    Send(node.index, peer, [=, this, from = node.index](SimNode& target) {
      const bool ok = Obeys(target, fence);
      Send(target.index, from, [=](SimNode& leader) {
        if (!ok) return finish(false);
        if (++progress->reserved == count && !progress->over) start(leader);
      });
    });
  }
}

bool ClusterSim::Obeys(SimNode& node, const FencePair& fence) {
  if (!IsSure(node)) return false;
  const bool ok = node.election->CheckFence(fence).ok() || options_.plant == Plant::kIgnoreFence;
  if (!ok) return false;
  if (fence < node.obeyed) {
    Violate(absl::StrCat("node ", Letter(node.id), " obeyed term ", fence.term.value(),
                         " after term ", node.obeyed.term.value()));
  }
  node.obeyed = std::max(node.obeyed, fence);
  // Whoever believes to hold this node's lease has to be the one who is obeyed.
  for (const auto& other : nodes_) {
    if (!other->up || !other->election->HoldsLeaseOf(node.id, Local(*other))) continue;
    const auto leading = other->election->Leading(Local(*other));
    if (leading != fence && !IsGrantedByTwin(node, *leading)) {
      Violate(absl::StrCat("node ", Letter(node.id), " obeyed ", Letter(fence.coordinator),
                           " while ", Letter(other->id), " held its lease"));
    }
  }
  return true;
}

bool ClusterSim::StartRank(SimNode& node, const FencePair& fence, const ReserveAndLaunch& launch,
                           const v1::Assignment& assignment, const std::vector<int>& peers) {
  const std::string& name = launch.deployment.name();
  if (!Obeys(node, fence) || launch.epoch <= node.ended_up_to[name] || node.draining) return false;
  int running = 0;
  for (const SimRank& rank : node.ranks) {
    if (rank.status.deployment() != name) continue;
    if (rank.status.epoch() == launch.epoch) return rank.started_by == fence && !IsOver(rank);
    running += !IsOver(rank);
  }
  if (running >= room_) return false;  // their memory is not free
  std::erase_if(node.ranks, [&](const SimRank& rank) {
    return rank.status.deployment() == name && IsOver(rank);
  });
  SimRank rank;
  rank.status.set_deployment(name);
  rank.status.set_epoch(launch.epoch);
  rank.status.set_rank(assignment.rank());
  rank.status.set_node_id(node.id.value());
  rank.status.set_phase(v1::RANK_PHASE_STAGING);
  rank.started_by = fence;
  rank.wanted_at = launch.deployment.created_unix_ms();
  rank.next_phase_at = now_ + Between(10'000, 200'000);
  rank.peers = peers;
  const std::string gang = absl::StrCat(name, "/", launch.epoch, "/", fence.coordinator.value());
  const auto [it, is_new] = launched_by_.try_emplace(gang, fence.term.value());
  if (!is_new && it->second != fence.term.value()) {
    Violate(absl::StrCat("epoch ", launch.epoch, " of ", name, " was used twice by ",
                         Letter(fence.coordinator)));
  }
  node.ranks.push_back(std::move(rank));
  return true;
}

void ClusterSim::OrderEnd(SimNode& node, const FencePair& fence, const StopRanks& end) {
  const int to = end.node == node.id ? node.index : AddressOf(node, end.node);
  Send(node.index, to, [=, this, from = node.index](SimNode& target) {
    if (target.id != end.node || !Obeys(target, fence)) return;
    uint64_t& ended = target.ended_up_to[end.deployment];
    ended = std::max(ended, end.up_to_epoch);
    std::erase_if(target.ranks, [&](const SimRank& rank) {
      return rank.status.deployment() == end.deployment && rank.status.epoch() >= end.from_epoch &&
             rank.status.epoch() <= end.up_to_epoch;
    });
    Send(target.index, from,
         [end](SimNode& leader) { leader.reconciler->OnEnded(end, absl::OkStatus()); });
  });
}

// Ranks come up together or not at all; one that loses a peer ends, as the ring does.
void ClusterSim::AdvanceRanks(SimNode& node) {
  for (SimRank& rank : node.ranks) {
    if (IsOver(rank)) continue;
    if (now_ >= rank.busy_until) rank.status.set_requests_running(0);
    bool all_there = true;
    for (int peer : rank.peers) {
      const SimNode& other = *nodes_[peer];
      const bool reachable = other.up && !cut_[node.index][peer] && !cut_[peer][node.index];
      const bool has_rank =
          std::any_of(other.ranks.begin(), other.ranks.end(), [&](const SimRank& theirs) {
            return theirs.status.deployment() == rank.status.deployment() &&
                   theirs.status.epoch() == rank.status.epoch() &&
                   theirs.started_by == rank.started_by && !IsOver(theirs);
          });
      all_there &= reachable && has_rank;
    }
    const v1::RankPhase phase = rank.status.phase();
    if (phase > v1::RANK_PHASE_CONNECTING && !all_there) {
      if (rank.peers_lost_at == 0) rank.peers_lost_at = now_;
      if (now_ - rank.peers_lost_at > 1'000'000) {
        rank.status.set_phase(v1::RANK_PHASE_FAILED);
        rank.status.mutable_failure()->set_code("RANK_EXITED");
      }
      continue;
    }
    rank.peers_lost_at = 0;
    const bool waits = phase == v1::RANK_PHASE_READY || now_ < rank.next_phase_at ||
                       (phase == v1::RANK_PHASE_CONNECTING && !all_there);
    if (waits) continue;
    rank.status.set_phase(static_cast<v1::RankPhase>(phase + 1));
    if (rank.status.phase() == v1::RANK_PHASE_READY) rank.ready_at = now_;
    rank.next_phase_at = now_ + Between(10'000, 200'000);
  }
}

}  // namespace macrame::agentd::sim
