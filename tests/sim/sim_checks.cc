// What has to hold: after every event, at certain moments, and in the end.

#include <algorithm>
#include <cstdio>

#include "absl/strings/str_cat.h"
#include "tests/sim/cluster_sim.h"

namespace macrame::agentd::sim {

void ClusterSim::Violate(const std::string& what) {
  if (!violation_.empty()) return;
  violation_ = absl::StrCat("at ", now_ / 1000, " ms: ", what);
  if (options_.trace) std::fprintf(stderr, "%s\n", violation_.c_str());
}

void ClusterSim::Trace(const SimNode& node, const std::string& what) {
  if (!options_.trace) return;
  const bool is_copy = options_.copies && node.index == copy().index;
  std::fprintf(stderr, "%7.3f s  %s%s  %s\n", static_cast<double>(now_) / 1e6,
               Letter(node.id).c_str(), is_copy ? "'" : " ", what.c_str());
}

void ClusterSim::Check() {
  for (const auto& node : nodes_) {
    if (node->up) node->election->CheckInvariants();
  }
  CheckLeases();
  CheckOneLeaderInQuorum();
  if (options_.copies) CheckOneOfEach();
}

bool ClusterSim::IsGrantedByTwin(const SimNode& node, const FencePair& fence) const {
  return std::any_of(nodes_.begin(), nodes_.end(), [&](const auto& other) {
    if (other->index == node.index || other->id != node.id) return false;
    return other->up           ? other->election->granted() == fence
           : other->disk_grant ? other->disk_grant->granted == fence
                               : false;
  });
}

// A copy that is not sure of itself does nothing; one that is has the place of nobody who runs.
void ClusterSim::CheckOneOfEach() {
  const SimNode& copy = *nodes_.back();
  if (!copy.up) return;
  const SimNode& original = *nodes_[IndexOf(copy.id)];
  if (!copy.guard->is_sure()) {
    if (!copy.ranks.empty()) Violate("a copy that is not sure of itself runs a rank");
    if (copy.election->Leading(Local(copy))) Violate("a copy that is not sure of itself leads");
    return;
  }
  if (original.up && original.id == copy.id && original.guard->is_sure()) two_sure_at_ = now_;
  if (options_.calm && chaos_ && original.up) {
    Violate(absl::StrCat("node ", Letter(copy.id), " runs, and a copy of it took its place"));
  }
}

// Nobody counts on a lease that is not so: of each node there is at most one believer, and the
// believer is whom the node (or its disk) has granted to.
void ClusterSim::CheckLeases() {
  for (const auto& leader : nodes_) {
    if (!leader->up) continue;
    const auto fence = leader->election->Leading(Local(*leader));
    if (!fence.has_value()) continue;
    for (const auto& granter : nodes_) {
      if (!leader->election->HoldsLeaseOf(granter->id, Local(*leader))) continue;
      const FencePair truth = granter->up           ? granter->election->granted()
                              : granter->disk_grant ? granter->disk_grant->granted
                                                    : FencePair{};
      if (truth != *fence && !IsGrantedByTwin(*granter, *fence)) {
        Violate(absl::StrCat("node ", Letter(leader->id), " (term ", fence->term.value(),
                             ") believes to hold the lease of ", Letter(granter->id),
                             ", which granted ", truth.coordinator.value().substr(0, 1),
                             " in term ", truth.term.value()));
      }
    }
  }
}

// Since when a gang has been whole: all of its ranks ready, each within reach of the others.
std::optional<Us> ClusterSim::WholeSince(const std::string& deployment, uint64_t epoch,
                                         const FencePair& started_by) const {
  std::optional<Us> since;
  std::set<int> holders;
  size_t wanted = 0;
  for (const auto& node : nodes_) {
    for (const SimRank& rank : node->ranks) {
      if (!node->up || rank.status.deployment() != deployment || rank.status.epoch() != epoch ||
          rank.started_by != started_by) {
        continue;
      }
      if (node->paused || rank.status.phase() != v1::RANK_PHASE_READY || rank.peers_lost_at != 0) {
        return std::nullopt;
      }
      holders.insert(node->index);
      wanted = rank.peers.size();
      since = std::max(since.value_or(0), rank.ready_at);
    }
  }
  return !holders.empty() && holders.size() == wanted ? since : std::nullopt;
}

// Whether no coordinator could know that the gang of that rank is whole, since of one of its
// holders
//   - a copy answered for it, so that what it runs was not reported;
//   - a copy took the place on another side of a cut cable: each side had a history of its own;
//   - the disk is or was full, so that it could not lead its side of a cut cable, and nobody told
//     of its gang when they met.
bool ClusterSim::IsNotKnownWhole(const SimNode& leader, const SimRank& rank,
                                 const std::string& name) const {
  constexpr Us kMerged = 5'000'000;  // sides that met have one history by then
  return std::any_of(rank.peers.begin(), rank.peers.end(), [&](int peer) {
    const SimNode& holder = *nodes_[peer];
    if (holder.disk_full || (holder.room_since != 0 && now_ - holder.room_since < kMerged)) {
      return true;
    }
    if (!options_.copies || copy().id != holder.id) return false;
    if (two_sure_at_ != 0 && now_ - two_sure_at_ < kMerged) return true;
    const auto& reported = leader.view.ranks;
    const bool is_reported =
        std::any_of(reported.begin(), reported.end(), [&](const v1::RankStatus& known) {
          return known.node_id() == holder.id.value() && known.deployment() == name &&
                 known.epoch() == rank.status.epoch();
        });
    return copy().up && peer != copy().index && !is_reported;
  });
}

// What belongs to no gang in force is ended; a whole gang only for another one that is whole too.
void ClusterSim::CheckEnding(const SimNode& leader, const StopRanks& end) {
  if (end.why.code() != "STALE_TERM") return;
  const int holder = end.node == leader.id ? leader.index : AddressOf(leader, end.node);
  for (const SimRank& rank : nodes_[holder]->ranks) {
    const v1::RankStatus& status = rank.status;
    if (status.deployment() != end.deployment || status.epoch() < end.from_epoch ||
        status.epoch() > end.up_to_epoch) {
      continue;
    }
    if (!WholeSince(end.deployment, status.epoch(), rank.started_by).has_value()) continue;
    // It gave way for the sake of a node that is about to stop.
    const bool leaves = std::any_of(rank.peers.begin(), rank.peers.end(), [&](int peer) {
      const auto heard = leader.heard.find(peer);
      return nodes_[peer]->draining || (heard != leader.heard.end() && heard->second.said.draining);
    });
    if (leaves) continue;
    if (IsNotKnownWhole(leader, rank, end.deployment)) continue;
    bool wanted = false, other = false;
    ClusterView present;
    FillFromState(DesiredState(*leader.table), present);
    for (const v1::Deployment& one : present.deployments) {
      wanted |= one.name() == end.deployment && one.created_unix_ms() == rank.wanted_at;
    }
    for (const v1::GangRecord& record : present.gangs) {
      if (record.deployment() != end.deployment) continue;
      // As the coordinator can know it: by the reports that it has.
      bool is_other = false, all_ready = true;
      for (const v1::Assignment& assignment : record.plan().assignments()) {
        is_other |= record.epoch() != status.epoch() || assignment.node_id() != end.node.value();
        all_ready &= std::any_of(
            leader.view.ranks.begin(), leader.view.ranks.end(), [&](const v1::RankStatus& known) {
              return known.deployment() == end.deployment && known.epoch() == record.epoch() &&
                     known.node_id() == assignment.node_id() &&
                     known.phase() == v1::RANK_PHASE_READY;
            });
      }
      other |= is_other && all_ready && !record.plan().assignments().empty();
    }
    if (wanted && !other) {
      Violate(absl::StrCat("node ", Letter(leader.id), " ended the ready gang of ", end.deployment,
                           " epoch ", status.epoch(), ", and no other is ready"));
    }
  }
}

void ClusterSim::CheckOneLeaderInQuorum() {
  if (options_.consistency != Consistency::kQuorum) return;
  int leaders = 0;
  for (const auto& node : nodes_) {
    if (!node->up || node->listed.empty()) continue;
    leaders += node->election->Leading(Local(*node)).has_value();
  }
  if (leaders > 1)
    Violate(absl::StrCat(leaders, " coordinators at once, though a quorum is a must"));
}

void ClusterSim::CheckDisk(const SimNode& node, const v1::StateEntry& entry) {
  const auto before = node.disk.find(entry.key());
  if (before != node.disk.end() && VersionOf(entry) < VersionOf(before->second)) {
    Violate(
        absl::StrCat("node ", Letter(node.id), " replaced ", entry.key(), " by an older write"));
  }
}

// A coordinator begins with everything that its electors had acknowledged.
void ClusterSim::CheckElected(const SimNode& node, const FencePair& fence) {
  for (const AckedWrite& acked : acked_) {
    bool elector_had_it = false;
    for (int index : acked.on_disk) {
      const SimNode& elector = *nodes_[index];
      // The lease is that of another machine with its id.
      if (elector.id == node.id ? index != node.index : index != AddressOf(node, elector.id)) {
        continue;
      }
      const bool granted = elector.up ? elector.election->granted() == fence
                                      : elector.disk_grant && elector.disk_grant->granted == fence;
      elector_had_it |= granted && node.election->HoldsLeaseOf(elector.id, Local(node));
    }
    if (!elector_had_it) continue;
    const auto entry = node.table->entries().find(acked.key);
    if (entry == node.table->entries().end() || VersionOf(entry->second) < acked.version) {
      Violate(absl::StrCat("node ", Letter(node.id), " leads without the acknowledged write ",
                           acked.version.sequence, " to ", acked.key));
    }
  }
}

// A gang that is called ready was started by one coordinator in one epoch, and is whole.
void ClusterSim::CheckReady(const SimNode& node, const Notify& notify) {
  if (notify.state != v1::DEPLOYMENT_STATE_READY) return;
  std::set<FencePair> starters;
  for (const v1::GangRecord& record : node.view.gangs) {
    if (record.deployment() != notify.deployment) continue;
    for (const v1::Assignment& assignment : record.plan().assignments()) {
      const NodeId id(assignment.node_id());
      const int holder = id == node.id ? node.index : AddressOf(node, id);
      for (const SimRank& rank : nodes_[holder]->ranks) {
        if (rank.status.deployment() == notify.deployment && rank.status.epoch() == notify.epoch) {
          starters.insert(rank.started_by);
        }
      }
    }
  }
  if (starters.size() > 1) {
    Violate(absl::StrCat(notify.deployment, " epoch ", notify.epoch,
                         " is ready with ranks started by ", starters.size(), " coordinators"));
  }
}

std::optional<int> ClusterSim::CoordinatorIndex() const {
  std::optional<int> found;
  for (const auto& node : nodes_) {
    if (!node->up || !node->election->Leading(Local(*node)).has_value()) continue;
    if (found.has_value()) return std::nullopt;
    found = node->index;
  }
  return found;
}

bool ClusterSim::IsReady(const std::string& deployment) const {
  const auto leader = CoordinatorIndex();
  if (!leader.has_value()) return false;
  const SimNode& node = *nodes_[*leader];
  const auto status = node.reconciler->Status(deployment, node.view, Local(node));
  if (!status.has_value() || status->state() != v1::DEPLOYMENT_STATE_READY) return false;
  int ready = 0;
  for (const auto& holder : nodes_) {
    for (const SimRank& rank : holder->ranks) {
      ready += holder->up && rank.status.deployment() == deployment &&
               rank.status.epoch() == status->epoch() &&
               rank.status.phase() == v1::RANK_PHASE_READY;
    }
  }
  return ready > 0 && ready == status->plan().assignments_size();
}

uint64_t ClusterSim::EpochOf(const std::string& deployment) const {
  if (!IsReady(deployment)) return 0;
  const SimNode& node = *nodes_[*CoordinatorIndex()];
  return node.reconciler->Status(deployment, node.view, Local(node))->epoch();
}

// Only machines had it that are gone, or whose place another has: two of one disk ran apart, and
// one of them had to go.
bool ClusterSim::IsOnLostDisks(const AckedWrite& acked) const {
  const int copy = options_.nodes;
  return std::all_of(acked.on_disk.begin(), acked.on_disk.end(), [&](int index) {
    return index == copy && !HasCopy() ? true : nodes_[index]->up && !IsSure(*nodes_[index]);
  });
}

void ClusterSim::CheckConverged() {
  const auto leader = CoordinatorIndex();
  if (!leader.has_value()) return Violate("healed, but not one coordinator");
  const SimNode& coordinator = *nodes_[*leader];
  const FencePair fence = *coordinator.election->Leading(Local(coordinator));
  std::map<NodeId, int> sure;
  for (const auto& node : nodes_) {
    if (!node->up) continue;
    sure[node->id] += IsSure(*node);
    if (!IsSure(*node)) continue;
    if (node->election->Coordinator(Local(*node)) != fence) {
      Violate(absl::StrCat("healed, but node ", Letter(node->id), " obeys another"));
    }
    if (node->table->Digest() != coordinator.table->Digest()) {
      Violate(absl::StrCat("healed, but the state of node ", Letter(node->id), " differs"));
    }
    for (const AckedWrite& acked : acked_) {
      if (IsOnLostDisks(acked)) continue;
      const auto entry = node->table->entries().find(acked.key);
      if (entry == node->table->entries().end() || VersionOf(entry->second) < acked.version) {
        Violate(absl::StrCat("the acknowledged write ", acked.version.sequence, " to ", acked.key,
                             " is lost on node ", Letter(node->id)));
      }
    }
  }
  for (const auto& [id, count] : sure) {
    if (count == 1) continue;
    Violate(absl::StrCat("healed, but ", count, " machines are node ", Letter(id)));
  }
  CheckRanksConverged(coordinator);
}

void ClusterSim::CheckRanksConverged(const SimNode& leader) {
  std::map<std::string, uint64_t> epochs;
  for (const v1::Deployment& deployment : leader.view.deployments) {
    if (!IsReady(deployment.name()))
      Violate(absl::StrCat("healed, but ", deployment.name(), " is not ready"));
    const auto status = leader.reconciler->Status(deployment.name(), leader.view, Local(leader));
    epochs[deployment.name()] = status->epoch();
  }
  for (const auto& node : nodes_) {
    for (const SimRank& rank : node->ranks) {
      if (rank.status.phase() > v1::RANK_PHASE_READY) continue;
      const auto epoch = epochs.find(rank.status.deployment());
      if (epoch == epochs.end() || epoch->second != rank.status.epoch()) {
        Violate(absl::StrCat("healed, but a rank of ", rank.status.deployment(), " epoch ",
                             rank.status.epoch(), " is left over on ", Letter(node->id)));
      }
    }
  }
}

}  // namespace macrame::agentd::sim
