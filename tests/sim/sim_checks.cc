// What has to hold: after every event, at certain moments, and in the end.

#include <algorithm>
#include <cstdio>
#include <cstdlib>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "agentd/base/rpc_methods.h"
#include "agentd/cores/state_keys.h"
#include "tests/sim/cluster_sim.h"

namespace macrame::agentd::sim {
namespace {

constexpr Us kReadyChecked = 200'000;
// What was decided before an order to stop came may go out for so long: nodes are asked for the
// model meanwhile (kPlanPatience), by clocks that are a little slow.
constexpr Us kStopSeen = 3'000'000;
// What an order did to gangs is over so long after it: answers were finished, halves have met.
constexpr Us kOrderWorks = 30'000'000;
// How GangReconciler says that ranks are of no gang (agentd/cores/gang_endings.cc).
constexpr char kOfNoGang[] = "belongs to no gang in force";

template <typename Entries>
bool HasWrite(const Entries& entries, const AckedWrite& acked) {
  const auto entry = entries.find(acked.key);
  return entry == entries.end() ? acked.is_removal : VersionOf(entry->second) >= acked.version;
}

}  // namespace

void ClusterSim::Violate(const std::string& what) {
  if (!violation_.empty()) return;
  violation_ = absl::StrCat("at ", scheduler_.now() / 1000, " ms: ", what);
  if (options_.trace) std::fprintf(stderr, "%s\n", violation_.c_str());
}

void ClusterSim::Trace(const SimMachine& machine, const std::string& what) const {
  if (!options_.trace) return;
  const bool is_copy = options_.copies && machine.index == options_.nodes;
  std::fprintf(stderr, "%7.3f s  %s%s  %s\n", static_cast<double>(scheduler_.now()) / 1e6,
               Letter(machine.id).c_str(), is_copy ? "'" : " ", what.c_str());
}

void ClusterSim::Check() {
  for (const auto& machine : machines_) {
    if (machine->up()) CheckMachine(*machine);
  }
  CheckLeases();
  CheckOneLeaderInQuorum();
  if (options_.copies) CheckOneOfEach();
  if (scheduler_.now() - ready_checked_at_ < kReadyChecked) return;
  ready_checked_at_ = scheduler_.now();
  for (const auto& machine : machines_) {
    if (machine->up() && machine->leads.has_value()) CheckReady(*machine);
  }
}

void ClusterSim::CheckMachine(SimMachine& machine) {
  machine.parts().election.CheckInvariants();
  const std::optional<FencePair> leads = machine.Leading();
  if (leads != machine.leads) {
    if (leads.has_value()) {
      ++elections_;
      Trace(machine, absl::StrCat("leads in term ", leads->term.value()));
      CheckElected(machine, *leads);
      machine.told_ready.clear();
      machine.acknowledged.clear();
    } else {
      Trace(machine, "leads no more");
    }
    machine.leads = leads;
  }
  NoteStopped(machine);
  if (!leads.has_value()) return;
  if (!machine.paused()) NoteAcknowledged(machine, *leads);
  if (!options_.copies || !copy().up() || machine.id == copy().id) return;
  const SimMachine& original = *machines_[IndexOf(copy().id)];
  if (original.up() && AddressOf(machine, copy().id) == copy().index) {
    copy_answered_at_ = scheduler_.now();
  }
}

// --- leases --------------------------------------------------------------------------------------

bool ClusterSim::IsGrantedByTwin(const SimMachine& machine, const FencePair& fence) const {
  return std::any_of(machines_.begin(), machines_.end(), [&](const auto& other) {
    if (other->index == machine.index || other->id != machine.id) return false;
    return other->up()         ? other->parts().election.granted() == fence
           : other->disk.grant ? other->disk.grant->granted == fence
                               : false;
  });
}

// A copy that is not sure of itself does nothing; one that is has the place of nobody who runs.
void ClusterSim::CheckOneOfEach() {
  const SimMachine& copy = *machines_.back();
  if (!copy.up()) return;
  const SimMachine& original = *machines_[IndexOf(copy.id)];
  if (!copy.IsSure()) {
    const bool runs = std::any_of(copy.ranks.ranks.begin(), copy.ranks.ranks.end(),
                                  [](const SimRank& rank) { return !IsOver(rank); });
    if (runs) Violate("a copy that is not sure of itself runs a rank");
    if (copy.Leading()) Violate("a copy that is not sure of itself leads");
    return;
  }
  if (original.up() && original.IsSure()) two_sure_at_ = scheduler_.now();
  if (options_.calm && chaos_ && original.up()) {
    Violate(absl::StrCat("node ", Letter(copy.id), " runs, and a copy of it took its place"));
  }
}

// Nobody counts on a lease that is not so: of each node there is at most one believer, and the
// believer is whom the node (or its disk) has granted to.
void ClusterSim::CheckLeases() {
  for (const auto& leader : machines_) {
    if (!leader->up() || !leader->leads.has_value()) continue;
    const FencePair& fence = *leader->leads;
    for (const auto& granter : machines_) {
      if (!leader->parts().election.HoldsLeaseOf(granter->id, leader->Now())) continue;
      const FencePair truth = granter->up()         ? granter->parts().election.granted()
                              : granter->disk.grant ? granter->disk.grant->granted
                                                    : FencePair{};
      if (truth == fence || IsGrantedByTwin(*granter, fence)) continue;
      Violate(absl::StrCat("node ", Letter(leader->id), " (term ", fence.term.value(),
                           ") believes to hold the lease of ", Letter(granter->id),
                           ", which granted ", truth.coordinator.value().substr(0, 1), " in term ",
                           truth.term.value()));
    }
  }
}

void ClusterSim::CheckOneLeaderInQuorum() {
  if (options_.consistency != Consistency::kQuorum) return;
  int leaders = 0;
  for (const auto& machine : machines_) {
    if (!machine->up() || machine->parts().member_writer.listed().empty()) continue;
    leaders += machine->leads.has_value();
  }
  if (leaders > 1)
    Violate(absl::StrCat(leaders, " coordinators at once, though a quorum is a must"));
}

void ClusterSim::CheckObeyed(SimMachine& machine, const FencePair& fence) {
  if (fence < machine.obeyed) {
    Violate(absl::StrCat("node ", Letter(machine.id), " obeyed term ", fence.term.value(),
                         " after term ", machine.obeyed.term.value()));
  }
  machine.obeyed = std::max(machine.obeyed, fence);
  // Whoever believes to hold this node's lease has to be the one who is obeyed.
  for (const auto& other : machines_) {
    if (!other->up()) continue;
    const std::optional<FencePair> leading = other->Leading();
    if (!leading.has_value() || leading == fence ||
        !other->parts().election.HoldsLeaseOf(machine.id, other->Now())) {
      continue;
    }
    if (!IsGrantedByTwin(machine, *leading)) {
      Violate(absl::StrCat("node ", Letter(machine.id), " obeyed ", Letter(fence.coordinator),
                           " while ", Letter(other->id), " held its lease"));
    }
  }
}

// --- writes --------------------------------------------------------------------------------------

void ClusterSim::CheckDisk(const SimMachine& machine, const v1::StateEntry& entry) {
  const auto before = machine.disk.entries.find(entry.key());
  if (before != machine.disk.entries.end() && VersionOf(entry) < VersionOf(before->second)) {
    Violate(
        absl::StrCat("node ", Letter(machine.id), " replaced ", entry.key(), " by an older write"));
  }
}

// A coordinator begins with everything that its electors had acknowledged.
void ClusterSim::CheckElected(const SimMachine& machine, const FencePair& fence) {
  const auto& entries = machine.parts().replicator.table().entries();
  for (const AckedWrite& acked : acked_) {
    bool elector_had_it = false;
    for (int index : acked.on_disk) {
      const SimMachine& elector = *machines_[index];
      // The lease is that of another machine with its id.
      if (elector.id == machine.id ? index != machine.index
                                   : index != AddressOf(machine, elector.id)) {
        continue;
      }
      const bool granted = elector.up()
                               ? elector.parts().election.granted() == fence
                               : elector.disk.grant && elector.disk.grant->granted == fence;
      elector_had_it |= granted && machine.parts().election.HoldsLeaseOf(elector.id, machine.Now());
    }
    if (!elector_had_it) continue;
    if (!HasWrite(entries, acked)) {
      Violate(absl::StrCat("node ", Letter(machine.id), " leads without the acknowledged write ",
                           acked.version.sequence, " to ", acked.key));
    }
  }
}

// Who has to have a write before it is acknowledged, as agentd/agent_parts.cc has it.
std::set<NodeId> ClusterSim::Electorate(const SimMachine& machine) const {
  const AgentParts& parts = machine.parts();
  std::set<NodeId> electorate = parts.Able();
  if (options_.consistency == Consistency::kQuorum) {
    electorate =
        parts.member_writer.listed().empty() ? parts.members.All() : parts.member_writer.listed();
  }
  electorate.insert(machine.id);
  return electorate;
}

// What the coordinator takes for committed is on a majority's disks, and is never lost from here
// on.
void ClusterSim::NoteAcknowledged(SimMachine& machine, const FencePair& fence) {
  const StateTable& table = machine.parts().replicator.table();
  if (!table.leading()) return;
  std::optional<std::set<NodeId>> electorate;
  uint64_t committed = 0;
  for (const auto& [key, entry] : table.entries()) {
    const StateVersion version = VersionOf(entry);
    if (version.fence != fence) continue;
    const std::string name = absl::StrCat(key, "/", version.sequence);
    if (machine.acknowledged.contains(name)) continue;
    if (!electorate.has_value()) {
      electorate = Electorate(machine);
      committed = table.CommittedUpTo(*electorate);
    }
    if (version.sequence > committed) continue;
    machine.acknowledged.insert(name);
    AckedWrite acked{key, version, entry.removed(), {}};
    for (const auto& other : machines_) {
      const auto kept = other->disk.entries.find(key);
      if (kept != other->disk.entries.end() && VersionOf(kept->second) >= version) {
        acked.on_disk.insert(other->index);
      }
    }
    size_t among = 0;
    for (const NodeId& id : *electorate) among += acked.on_disk.contains(AddressOf(machine, id));
    if (among * 2 <= electorate->size()) {
      Violate(absl::StrCat("a write to ", key, " was acknowledged without a majority of disks"));
    }
    acked_.push_back(std::move(acked));
  }
}

// --- gangs ---------------------------------------------------------------------------------------

// Since when a gang has been whole: all of its ranks ready, each within reach of the others.
std::optional<Us> ClusterSim::WholeSince(const std::string& deployment, uint64_t epoch,
                                         const FencePair& started_by) const {
  std::optional<Us> since;
  std::set<int> holders;
  size_t wanted = 0;
  for (const auto& machine : machines_) {
    for (const SimRank& rank : machine->ranks.ranks) {
      if (!machine->up() || rank.status.deployment() != deployment ||
          rank.status.epoch() != epoch || rank.started_by != started_by) {
        continue;
      }
      if (machine->paused() || rank.status.phase() != v1::RANK_PHASE_READY ||
          rank.peers_lost_at != 0) {
        return std::nullopt;
      }
      holders.insert(machine->index);
      wanted = rank.peers.size();
      since = std::max(since.value_or(0), rank.ready_at);
    }
  }
  return !holders.empty() && holders.size() == wanted ? since : std::nullopt;
}

bool ClusterSim::IsSince(Us order) const {
  return order != 0 && scheduler_.now() - order < kOrderWorks;
}

// Whether no coordinator could know that the gang of that rank is whole, since of one of its
// holders
//   - a copy answered for it lately, so that what it runs was not reported;
//   - a copy took the place on another side of a cut cable: each side had a history of its own;
//   - the disk is or was full, so that it could not lead its side of a cut cable, and nobody told
//     of its gang when they met.
bool ClusterSim::IsNotKnownWhole(const SimRank& rank) const {
  constexpr Us kMerged = 5'000'000;  // sides that met have one history by then
  const Us now = scheduler_.now();
  return std::any_of(rank.peers.begin(), rank.peers.end(), [&](int peer) {
    const SimMachine& holder = *machines_[peer];
    if (holder.disk.is_full || (holder.room_since != 0 && now - holder.room_since < kMerged)) {
      return true;
    }
    if (!options_.copies || copy().id != holder.id) return false;
    return (two_sure_at_ != 0 && now - two_sure_at_ < kMerged) ||
           (copy_answered_at_ != 0 && now - copy_answered_at_ < kMerged);
  });
}

void ClusterSim::NoteStopped(SimMachine& machine) const {
  const v1::ClusterPause* pause = machine.parts().replicator.desired().pause();
  if (!machine.leads.has_value() || machine.paused() || pause == nullptr || !pause->stopped()) {
    machine.knows_stopped_since = 0;
  } else if (machine.knows_stopped_since == 0) {
    machine.knows_stopped_since = scheduler_.now();
  }
}

// In a cluster that is stopped no gang is launched. Where halves may act apart one may load what
// the other has stopped.
void ClusterSim::CheckReserves(const SimMachine& leader, const v1::ReserveRequest& order) {
  const Us since = leader.knows_stopped_since;
  if (options_.consistency != Consistency::kQuorum || since == 0) return;
  if (scheduler_.now() - since < kStopSeen) return;
  Violate(absl::StrCat("node ", Letter(leader.id), " launches ", order.deployment(), " epoch ",
                       order.epoch(), " in a cluster that it knows is stopped"));
}

void ClusterSim::CheckOrder(const Rpc& rpc, const std::string& request) {
  if (rpc.path == kReserve.path) {
    v1::ReserveRequest order;
    order.ParseFromString(request);
    CheckReserves(*machines_[rpc.from], order);
  }
  if (rpc.path != kStopRanks.path) return;
  v1::StopRanksRequest order;
  order.ParseFromString(request);
  CheckEnding(*machines_[rpc.from], rpc.to, order);
}

// Whether a gang of the deployment that the leader knows as ready is another than that rank's.
bool ClusterSim::IsOtherReady(const SimMachine& leader, int holder, const std::string& deployment,
                              uint64_t epoch) const {
  const v1::GangRecord* record = leader.parts().replicator.desired().FindGang(deployment);
  if (record == nullptr || record->plan().assignments().empty()) return false;
  const std::vector<v1::RankStatus> reported = leader.parts().views.AllRanks();
  bool is_other = false, all_ready = true;
  for (const v1::Assignment& assignment : record->plan().assignments()) {
    is_other |= record->epoch() != epoch || assignment.node_id() != machines_[holder]->id.value();
    all_ready &= std::any_of(reported.begin(), reported.end(), [&](const v1::RankStatus& known) {
      return known.deployment() == deployment && known.epoch() == record->epoch() &&
             known.node_id() == assignment.node_id() && known.phase() == v1::RANK_PHASE_READY;
    });
  }
  return is_other && all_ready;
}

// What belongs to no gang in force is ended; a whole gang only for another one that is whole too.
void ClusterSim::CheckEnding(const SimMachine& leader, int holder,
                             const v1::StopRanksRequest& order) {
  if (order.why().find(kOfNoGang) == std::string::npos) return;
  ++endings_;
  Trace(leader, absl::StrCat("ends ", order.deployment(), " up to epoch ", order.up_to_epoch(),
                             " on ", Letter(machines_[holder]->id), ": ", order.why()));
  // It may be the one in force that leaves a node which was given to a tenant: then the other gang,
  // which was ready later, is ended while that one is launched anew.
  const bool is_moving = std::any_of(machines_.begin(), machines_.end(), [this](const auto& one) {
    return IsSince(one->dedicated_at);
  });
  if (is_moving || IsSince(stopped_at_)) return;
  for (const SimRank& rank : machines_[holder]->ranks.ranks) {
    const v1::RankStatus& status = rank.status;
    if (status.deployment() != order.deployment() || status.epoch() < order.from_epoch() ||
        status.epoch() > order.up_to_epoch() ||
        !WholeSince(order.deployment(), status.epoch(), rank.started_by).has_value()) {
      continue;
    }
    // It gave way for the sake of a node that is about to stop, or is drained.
    const bool leaves = std::any_of(rank.peers.begin(), rank.peers.end(), [&](int peer) {
      const NodeId& id = machines_[peer]->id;
      const NodeReport* report = leader.parts().reports.Find(id);
      const v1::Cordon* cordon = leader.parts().replicator.desired().FindCordon(id.value());
      return machines_[peer]->is_draining || (report != nullptr && report->draining) ||
             (cordon != nullptr && cordon->drain());
    });
    if (leaves || IsNotKnownWhole(rank)) continue;
    const v1::Deployment* present =
        leader.parts().replicator.desired().FindDeployment(order.deployment());
    const bool wanted = present != nullptr && present->created_unix_ms() == rank.wanted_at;
    if (wanted && !IsOtherReady(leader, holder, order.deployment(), status.epoch())) {
      Violate(absl::StrCat("node ", Letter(leader.id), " ended the ready gang of ",
                           order.deployment(), " epoch ", status.epoch(),
                           ", and no other is ready"));
    }
  }
}

// A gang that is called ready was started by one coordinator in one epoch.
void ClusterSim::CheckReady(SimMachine& machine) {
  for (const v1::DeploymentStatus& status : machine.parts().gang_controller.Statuses()) {
    if (status.state() != v1::DEPLOYMENT_STATE_READY) continue;
    const std::string& name = status.deployment().name();
    if (machine.told_ready[name] == status.epoch()) continue;
    machine.told_ready[name] = status.epoch();
    Trace(machine, absl::StrCat(name, " epoch ", status.epoch(), " is ready"));
    std::set<FencePair> starters;
    for (const v1::Assignment& assignment : status.plan().assignments()) {
      const int holder = AddressOf(machine, NodeId(assignment.node_id()));
      for (const SimRank& rank : machines_[holder]->ranks.ranks) {
        if (rank.status.deployment() == name && rank.status.epoch() == status.epoch() &&
            !IsOver(rank)) {
          starters.insert(rank.started_by);
        }
      }
    }
    if (starters.size() > 1) {
      Violate(absl::StrCat(name, " epoch ", status.epoch(), " is ready with ranks started by ",
                           starters.size(), " coordinators"));
    }
  }
}

// --- in the end ----------------------------------------------------------------------------------

std::optional<int> ClusterSim::CoordinatorIndex() const {
  std::optional<int> found;
  for (const auto& machine : machines_) {
    if (!machine->up() || !machine->Leading().has_value()) continue;
    if (found.has_value()) return std::nullopt;
    found = machine->index;
  }
  return found;
}

bool ClusterSim::IsReady(const std::string& deployment) const {
  const auto leader = CoordinatorIndex();
  if (!leader.has_value()) return false;
  const auto status = machines_[*leader]->parts().gang_controller.Status(deployment);
  if (!status.has_value() || status->state() != v1::DEPLOYMENT_STATE_READY) return false;
  int ready = 0;
  for (const auto& holder : machines_) {
    for (const SimRank& rank : holder->ranks.ranks) {
      ready += holder->up() && rank.status.deployment() == deployment &&
               rank.status.epoch() == status->epoch() &&
               rank.status.phase() == v1::RANK_PHASE_READY;
    }
  }
  return ready > 0 && ready == status->plan().assignments_size();
}

uint64_t ClusterSim::EpochOf(const std::string& deployment) const {
  if (!IsReady(deployment)) return 0;
  return machines_[*CoordinatorIndex()]->parts().gang_controller.Status(deployment)->epoch();
}

uint64_t ClusterSim::NumberOf(const DesiredState& desired, const std::string& what) const {
  if (const v1::ModelProfile* profile = desired.FindProfile(what)) return profile->max_tokens();
  const auto tenant = desired.tenants().find(what);
  if (tenant != desired.tenants().end()) return tenant->second.requests_per_minute();
  const v1::NodeMarks* marks = desired.FindMarks(what);
  if (marks == nullptr || marks->labels().empty()) return 0;
  return std::strtoull(marks->labels(0).value().c_str(), nullptr, 10);
}

// What a person was told is so is so, until somebody asked for something else. Halves that act
// apart, and disks of which two ran, lose what one of them was told.
std::string ClusterSim::WhyNumbersDiffer(const SimMachine& leader) const {
  if (options_.consistency != Consistency::kQuorum || options_.copies) return "";
  std::map<std::string, Us> settled;  // when the last acknowledged order of each was asked for
  for (const OrderedValue& one : ordered_) {
    if (one.acknowledged_at != 0) settled[one.what] = one.asked_at;
  }
  for (const auto& [what, since] : settled) {
    const uint64_t number = NumberOf(leader.parts().replicator.desired(), what);
    const bool may_be = std::any_of(ordered_.begin(), ordered_.end(), [&](const auto& one) {
      const bool is_over = one.acknowledged_at != 0 && one.acknowledged_at < since;
      return one.what == what && one.value == number && !is_over;
    });
    if (!may_be) {
      return absl::StrCat(what, " is set to ", number, ", and somebody was told otherwise");
    }
  }
  return "";
}

// Only machines had it that are gone, or whose place another has: two of one disk ran apart, and
// one of them had to go.
bool ClusterSim::IsOnLostDisks(const AckedWrite& acked) const {
  const int copy = options_.nodes;
  return std::all_of(acked.on_disk.begin(), acked.on_disk.end(), [&](int index) {
    return index == copy && !HasCopy() ? true
                                       : machines_[index]->up() && !machines_[index]->IsSure();
  });
}

std::string ClusterSim::WhyNotConverged() const {
  const auto leader = CoordinatorIndex();
  if (!leader.has_value()) return "not one coordinator leads";
  const SimMachine& coordinator = *machines_[*leader];
  const FencePair fence = *coordinator.Leading();
  const StateTable& table = coordinator.parts().replicator.table();
  std::map<NodeId, int> sure;
  for (const auto& machine : machines_) {
    if (!machine->up()) continue;
    const std::string name = Letter(machine->id);
    sure[machine->id] += machine->IsSure();
    if (!machine->IsSure()) continue;
    if (machine->parts().election.Coordinator(machine->Now()) != fence) {
      return absl::StrCat("node ", name, " obeys another");
    }
    const StateTable& own = machine->parts().replicator.table();
    if (own.Digest() != table.Digest()) return absl::StrCat("the state of node ", name, " differs");
    for (const AckedWrite& acked : acked_) {
      if (IsOnLostDisks(acked)) continue;
      if (!HasWrite(own.entries(), acked)) {
        return absl::StrCat("the acknowledged write ", acked.version.sequence, " to ", acked.key,
                            " is lost on node ", name);
      }
    }
  }
  for (const auto& [id, count] : sure) {
    if (count != 1) return absl::StrCat(count, " machines are node ", Letter(id));
  }
  if (std::string why = WhyNumbersDiffer(coordinator); !why.empty()) return why;
  return WhyRanksNotConverged(coordinator);
}

std::string ClusterSim::WhyRanksNotConverged(const SimMachine& leader) const {
  std::map<std::string, uint64_t> epochs;
  for (const v1::DeploymentStatus& status : leader.parts().gang_controller.Statuses()) {
    const std::string& name = status.deployment().name();
    if (!IsReady(name)) {
      return absl::StrCat(name, " is not ready: ", v1::DeploymentState_Name(status.state()), " ",
                          status.failure().message());
    }
    epochs[name] = status.epoch();
  }
  for (const auto& machine : machines_) {
    for (const SimRank& rank : machine->ranks.ranks) {
      if (IsOver(rank)) continue;
      const auto epoch = epochs.find(rank.status.deployment());
      if (epoch != epochs.end() && epoch->second == rank.status.epoch()) continue;
      return absl::StrCat("a rank of ", rank.status.deployment(), " epoch ", rank.status.epoch(),
                          " is left over on ", Letter(machine->id));
    }
  }
  return "";
}

}  // namespace macrame::agentd::sim
