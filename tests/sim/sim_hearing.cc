// Who hears of whom: beacons, heartbeats, and which machine has a node's place.

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "agentd/cores/node_news.h"
#include "tests/sim/cluster_sim.h"

namespace macrame::agentd::sim {
namespace {

constexpr Us kBeaconSilence = 875'000;
constexpr Us kAskAgain = 50'000;
constexpr int kRefusalsUntilDead = 2;
constexpr Us kRefusedAfter = 750'000;
constexpr Us kGoneAfter = 1'000'000;
constexpr Us kBeaconsRead = 250'000;  // a quiet agent reads them so often
constexpr Us kBeaconsTrusted = 20'000'000;
constexpr Us kFullInterval = 10'000'000;
constexpr Us kNewsInterval = 2'000'000;
constexpr Us kSlowInterval = 2'000'000;
constexpr Us kKeptFresh = 2'000'000;

}  // namespace

// --- beacons and heartbeats ----------------------------------------------------------------------

SimHeartbeat ClusterSim::MakeHeartbeat(SimNode& node) {
  SimHeartbeat heartbeat;
  heartbeat.identity = IdentityOf(node);
  heartbeat.number = ++node.heartbeats;
  heartbeat.digest = node.table->Digest();
  heartbeat.failing = node.failing_since != 0 || !IsSure(node);
  heartbeat.draining = node.draining;
  v1::HeartbeatRequest said;
  for (const SimRank& rank : node.ranks) {
    heartbeat.ranks.push_back(rank.status);
    *said.add_ranks() = rank.status;
  }
  const auto coordinator = node.election->Coordinator(Local(node));
  if (coordinator.has_value()) *said.mutable_coordinator() = ToProto(*coordinator);
  if (heartbeat.failing) said.mutable_state_failure()->set_code("STATE_DISK_FULL");
  said.set_draining(node.draining);
  heartbeat.news = NewsOf(said);
  return heartbeat;
}

void ClusterSim::TakeHeartbeat(SimNode& node, int from, const SimHeartbeat& said) {
  const NodeId id(said.identity.node_id());
  const auto [place, is_new] = node.heard.try_emplace(IndexOf(id));
  SimHeard& heard = place->second;
  if (!is_new && heard.at != from) node.table->ForgetProgress(id);
  const bool is_same = !is_new && heard.at == from;
  const uint64_t run = said.identity.incarnation();
  const uint64_t known_run = is_same ? heard.said.identity.incarnation() : 0;
  if (is_same && run < known_run) return;
  if (!is_same || run > known_run) heard = SimHeard();
  heard.at = from;
  heard.at_local = heard.exchanged_local = LocalUs(node);
  heard.refusals = heard.asks = 0;
  if (said.number > heard.said.number) heard.said = said;
  UpdateMembership(node);
}

void ClusterSim::SendBeacons(SimNode& node) {
  if (node.guard->standing() == Standing::kRefused) return;
  const SimHeartbeat said = MakeHeartbeat(node);
  const SimBeacon beacon{said.identity, ++node.beacons, said.news};
  for (const auto& other : nodes_) {
    if (other->index == node.index || other->id.value().empty() || !other->up) continue;
    Send(node.index, other->index, [this, from = node.index, beacon](SimNode& to) {
      After(Between(0, kBeaconsRead), [this, index = to.index, run = to.run, from, beacon] {
        SimNode& reader = *nodes_[index];
        if (reader.up && !reader.paused && reader.run == run) OnBeacon(reader, from, beacon);
      });
    });
  }
}

// As MemberMonitor::HeardBeacon and FailureMonitor::BeaconReceived have it: it counts for a member
// that is not dead, on the machine and in the run that a heartbeat told of lately.
void ClusterSim::OnBeacon(SimNode& node, int from, const SimBeacon& beacon) {
  const NodeId id(beacon.identity.node_id());
  if (nodes_[from]->id != id) return;  // the copy is one of another node by now
  if (id == node.id) node.guard->OnOtherHeard(beacon.identity);
  if (node.guard->standing() == Standing::kRefused) return;
  if (id == node.id) return OnOwnId(node, from, beacon.identity);
  const Us local = LocalUs(node);
  const uint64_t run = beacon.identity.incarnation();
  const auto found = node.heard.find(IndexOf(id));
  const bool is_live = found != node.heard.end() && IsLive(node, found->second);
  if (is_live && found->second.at != from) return;
  if (found != node.heard.end() && found->second.at == from &&
      run == found->second.said.identity.incarnation()) {
    found->second.is_refused = false;
  }
  const uint64_t known_run = is_live ? found->second.said.identity.incarnation() : 0;
  if (!is_live || run > known_run) {
    if (local - node.called_local[from] >= kHeartbeat) Exchange(node, from);
    return;
  }
  SimHeard& heard = found->second;
  if (run < known_run || beacon.number <= heard.beacon.number) return;
  heard.beacon = beacon;
  heard.beacon_local = local;
  if (local - heard.exchanged_local > kBeaconsTrusted) return;
  heard.at_local = local;
  heard.refusals = heard.asks = 0;
  UpdateMembership(node);
}

// As FailureMonitor has it: the machine is there, and no process of it runs.
void ClusterSim::OnConnectionRefused(SimNode& node, int other) {
  const NodeId id = nodes_[other]->id;
  const auto found = node.heard.find(IndexOf(id));
  if (found == node.heard.end() || found->second.at != other) return;
  SimHeard& heard = found->second;
  const Us local = LocalUs(node);
  if (!IsLive(node, heard)) return;
  if (++heard.refusals < kRefusalsUntilDead) return Exchange(node, other);
  if (local - heard.at_local < kRefusedAfter) return;
  heard.is_refused = true;
  heard.silent_since = heard.at_local;
  heard.at_local = local - kDeadAfter;
  UpdateMembership(node);
}

bool ClusterSim::IsLive(const SimNode& node, const SimHeard& heard) const {
  const Us silence = LocalUs(node) - heard.at_local;
  return silence < (heard.asks >= kAsksUntilDead ? kUnansweredAfter : kDeadAfter);
}

// Where its beacons came in before.
void ClusterSim::AskSilent(SimNode& node) {
  if (node.guard->standing() == Standing::kRefused) return;
  for (auto& [index, heard] : node.heard) {
    const bool is_silent = LocalUs(node) - heard.at_local >= kBeaconSilence;
    if (!is_silent || heard.beacon_local == 0 || !IsLive(node, heard)) continue;
    for (const Us wait : {Us{0}, kAskAgain}) {
      ++heard.asks;
      After(wait, [this, from = node.index, run = node.run, at = heard.at] {
        const SimNode& asker = *nodes_[from];
        if (!asker.up || asker.paused || asker.run != run) return;
        Send(from, at, [this, from](SimNode& asked) {
          if (asked.guard->standing() == Standing::kRefused) return;
          const SimHeartbeat said = MakeHeartbeat(asked);
          Send(asked.index, from,
               [this, by = asked.index,
                beacon = SimBeacon{said.identity, ++asked.beacons, said.news}](SimNode& to) {
                 OnBeacon(to, by, beacon);
               });
        });
      });
    }
  }
}

void ClusterSim::TickRefused(SimNode& node) {
  for (auto& [index, heard] : node.heard) {
    if (!heard.is_refused || LocalUs(node) - heard.silent_since < kGoneAfter) continue;
    heard.is_refused = false;
    const NodeId id = nodes_[index]->id;
    Trace(node, absl::StrCat("finds that no process of ", Letter(id), " runs"));
    if (IsSure(node)) Carry(node, node.election->OnGone(id, Local(node)), nullptr, -1);
  }
}

void ClusterSim::Exchange(SimNode& node, int other) {
  // Somebody who has lost the node itself from sight must not take its copy for it.
  if (node.guard->standing() == Standing::kRefused) return;
  node.called_local[other] = LocalUs(node);
  const SimNode& called = *nodes_[other];
  const bool refuses = called.up ? called.refuses : !called.is_off;
  if (refuses && !cut_[node.index][other] && !cut_[other][node.index]) {
    After(Between(100, delay_max_), [this, from = node.index, run = node.run, other] {
      SimNode& asker = *nodes_[from];
      if (asker.up && !asker.paused && asker.run == run) OnConnectionRefused(asker, other);
    });
    return;
  }
  Send(node.index, other,
       [this, from = node.index, run = node.run, asked_at = Local(node),
        said = MakeHeartbeat(node)](SimNode& to) {
         if (!Admit(to, from, said)) return;
         Send(to.index, from,
              [this, by = to.index, run, asked_at, answer = MakeHeartbeat(to)](SimNode& asker) {
                if (asker.run == run) OnAnswer(asker, by, answer, asked_at);
              });
       });
}

void ClusterSim::OnAnswer(SimNode& node, int from, const SimHeartbeat& said,
                          MonotonicTime asked_at) {
  if (said.identity.node_id() == node.id.value()) return;
  node.guard->OnTaken(NodeId(said.identity.node_id()));
  node.places->HearMember(said.identity, nullptr, Local(node), asked_at);
  const bool is_taken = options_.plant == Plant::kTrustCopies ||
                        node.places->AdmissionOf(said.identity) == discovery::Admission::kTaken;
  if (is_taken) TakeHeartbeat(node, from, said);
}

bool ClusterSim::IsUrgent(const SimNode& node, int other) const {
  const auto coordinator = node.election->Coordinator(Local(node));
  return !coordinator.has_value() || coordinator->coordinator == node.id ||
         coordinator->coordinator == nodes_[other]->id;
}

// As HeartbeatSender::DueAt has it.
Us ClusterSim::HeartbeatDue(const SimNode& node, int other, const SimHeard& heard) const {
  const auto called = node.called_local.find(other);
  const Us last_sent = called == node.called_local.end() ? 0 : called->second;
  const Us local = LocalUs(node);
  if (!IsLive(node, heard)) return last_sent + kSlowInterval;
  const bool is_our_turn = ((node.index ^ other) & 1) == (node.index < other ? 0 : 1);
  const auto after = [&](Us wait) { return is_our_turn ? wait : wait + wait / 4; };
  const bool is_fresh = !IsSure(node) || local < node.fresh_until;
  Us due = heard.exchanged_local + after(kFullInterval);
  if (is_fresh) due = std::min(due, last_sent + kHeartbeat);
  const Us silent =
      std::max(heard.beacon_local + kBeaconSilence, heard.exchanged_local + after(kHeartbeat));
  due = std::min(due, silent);
  const bool has_news = heard.beacon.number != 0 && heard.beacon.news != heard.said.news;
  const bool is_urgent = has_news && IsUrgent(node, other);
  if (has_news) {
    due = std::min(due, heard.exchanged_local + after(is_urgent ? kHeartbeat / 2 : kNewsInterval));
  }
  const bool is_often = is_urgent || local >= silent;
  return std::max(due, last_sent + (is_often ? kHeartbeat / 2 : kHeartbeat));
}

void ClusterSim::SendHeartbeats(SimNode& node) {
  const Us local = LocalUs(node);
  // News of its own go at once to whoever acts on them.
  const uint64_t news = MakeHeartbeat(node).news;
  const bool has_news = std::exchange(node.news_told, news) != news;
  std::set<int> due;
  for (const auto& [index, heard] : node.heard) {
    // A copy may have become one of another node.
    const int other = IndexOf(nodes_[heard.at]->id) == index ? heard.at : index;
    if ((has_news && IsLive(node, heard) && IsUrgent(node, other)) ||
        HeartbeatDue(node, other, heard) <= local) {
      due.insert(other);
    }
  }
  for (const int other : due) Exchange(node, other);
}

// --- identity ------------------------------------------------------------------------------------

v1::NodeIdentity ClusterSim::IdentityOf(const SimNode& node) const {
  v1::NodeIdentity identity;
  identity.set_node_id(node.id.value());
  identity.set_incarnation(node.run);
  identity.set_machine(node.machine);
  return identity;
}

bool ClusterSim::IsSure(const SimNode& node) const {
  return node.guard->is_sure() || options_.plant == Plant::kTrustCopies;
}

int ClusterSim::AddressOf(const SimNode& node, const NodeId& id) const {
  const auto heard = node.heard.find(IndexOf(id));
  return heard == node.heard.end() ? IndexOf(id) : heard->second.at;
}

bool ClusterSim::Admit(SimNode& node, int from, const SimHeartbeat& said) {
  if (node.guard->standing() == Standing::kRefused) return false;
  const NodeId id(said.identity.node_id());
  if (id == node.id) return false;
  node.places->HearMember(said.identity, nullptr, Local(node));
  const auto admission = options_.plant == Plant::kTrustCopies
                             ? discovery::Admission::kTaken
                             : node.places->AdmissionOf(said.identity);
  if (admission == discovery::Admission::kAsked) {
    AskHolder(node, AddressOf(node, id));
  } else if (admission == discovery::Admission::kRefused) {
    Refuse(node, from, node.places->Find(id)->identity);
  } else {
    TakeHeartbeat(node, from, said);
  }
  return admission == discovery::Admission::kTaken;
}

// A heartbeat to whoever has the place, and its answer.
void ClusterSim::AskHolder(SimNode& node, int holder) {
  Send(node.index, holder,
       [this, from = node.index, run = node.run, asked_at = Local(node),
        id = nodes_[holder]->id](SimNode& asked) {
         if (asked.id != id || asked.guard->standing() == Standing::kRefused) return;
         Send(asked.index, from,
              [this, run, asked_at, identity = IdentityOf(asked)](SimNode& asker) {
                if (asker.run != run) return;
                asker.places->HearMember(identity, nullptr, Local(asker), asked_at);
                const auto heard = asker.heard.find(IndexOf(NodeId(identity.node_id())));
                const bool is_taken =
                    asker.places->AdmissionOf(identity) == discovery::Admission::kTaken;
                if (is_taken && heard != asker.heard.end()) {
                  heard->second.at_local = LocalUs(asker);
                }
              });
       });
}

void ClusterSim::Refuse(SimNode& node, int whom, const v1::NodeIdentity& holder) {
  Send(node.index, whom, [this, holder, run = nodes_[whom]->run](SimNode& to) {
    if (to.run != run || options_.plant == Plant::kTrustCopies) return;
    const bool was_sure = to.guard->is_sure();
    if (!to.guard->OnRefused(holder)) return;
    Trace(to, "is refused: another machine has its place");
    if (!was_sure) return;
    Carry(to, to.election->Resign(Local(to)), nullptr, -1);
    to.ranks.clear();
  });
}

void ClusterSim::OnOwnId(SimNode& node, int from, const v1::NodeIdentity& identity) {
  if (identity.node_id() != node.id.value()) return;  // the copy is one of another node by now
  // Who takes this node for the copy says so at once.
  node.fresh_until = LocalUs(node) + kKeptFresh;
  if (node.guard->KeepsPlace()) Refuse(node, from, IdentityOf(node));
}

void ClusterSim::TickIdentity(SimNode& node) {
  node.guard->SetListed(ListedMembers(*node.table));
  if (!node.guard->OnTick(Local(node))) return;
  Trace(node, "is sure again, or takes the place of the machine that its disk comes from");
  node.election->SkipTerms();
  node.disk_machine = node.machine;
}

}  // namespace macrame::agentd::sim
