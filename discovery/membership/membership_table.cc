#include "discovery/membership/membership_table.h"

#include <algorithm>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "discovery/base/incarnation_bound.h"
#include "discovery/base/interfaces.h"
#include "proto/reasons.h"

namespace macrame::discovery {
namespace {

// An order of the former process may still be on its way when the next one is already heard.
constexpr Duration kEchoOfFormerIncarnation = std::chrono::seconds(5);

std::string ComparableHostname(const std::string& hostname) {
  std::string name = absl::AsciiStrToLower(hostname);
  if (absl::EndsWith(name, ".")) name.pop_back();
  if (absl::EndsWith(name, ".local")) name.resize(name.size() - 6);
  return name;
}

std::string Who(const v1::NodeIdentity& identity) {
  return absl::StrCat(identity.hostname().empty() ? "a node" : identity.hostname(), " (",
                      identity.node_id().substr(0, 8), ")");
}

void AddAddress(std::vector<v1::NodeAddress>& addresses, const v1::NodeAddress& address) {
  const auto same = [&](const v1::NodeAddress& known) {
    return known.ip() == address.ip() && known.interface_name() == address.interface_name();
  };
  if (address.ip().empty() || std::any_of(addresses.begin(), addresses.end(), same)) return;
  // The newest sighting is the likeliest to hold.
  if (addresses.size() >= kAddressesPerNodeMax) addresses.erase(addresses.begin());
  addresses.push_back(address);
}

// A copy with bounded, ordered addresses.
v1::NodeIdentity Orderly(const v1::NodeIdentity& identity) {
  std::vector<v1::NodeAddress> addresses(identity.addresses().begin(), identity.addresses().end());
  SortAddresses(addresses);
  if (addresses.size() > kAddressesPerNodeMax) addresses.resize(kAddressesPerNodeMax);
  v1::NodeIdentity orderly = identity;
  orderly.clear_addresses();
  for (auto& address : addresses) *orderly.add_addresses() = std::move(address);
  return orderly;
}

bool SameIdentity(const v1::NodeIdentity& a, const v1::NodeIdentity& b) {
  return a.SerializeAsString() == b.SerializeAsString();
}

bool IsLive(const Member& member) {
  return member.state == v1::NODE_STATE_ALIVE || member.state == v1::NODE_STATE_SUSPECT;
}

}  // namespace

std::string NewIdentityRemedy(const std::string& where) {
  return absl::StrCat(
      "on ", where,
      ": stop agentd, run 'agentd --new-identity' once and start it again; it joins "
      "as a new node and keeps its models and settings");
}

std::string NameAndAddress(const v1::NodeIdentity& identity) {
  const std::string name = identity.hostname().empty() ? "a machine" : identity.hostname();
  if (identity.addresses().empty()) return name;
  const std::string& ip = identity.addresses(0).ip();
  const bool is_v6 = ip.find(':') != std::string::npos;
  return absl::StrCat(name, " (", is_v6 ? "[" : "", ip, is_v6 ? "]:" : ":", identity.control_port(),
                      ")");
}

bool AreTwoMachines(const v1::NodeIdentity& a, const v1::NodeIdentity& b) {
  return !a.machine().empty() && !b.machine().empty() && a.machine() != b.machine();
}

bool AreTwoAgents(const v1::NodeIdentity& a, const v1::NodeIdentity& b) {
  if (AreTwoMachines(a, b)) return true;
  if (a.machine().empty() || b.machine().empty()) return false;
  const bool other_name = ComparableHostname(a.hostname()) != ComparableHostname(b.hostname());
  // No address at all is an unplugged cable.
  const auto shares = [&](const v1::NodeAddress& one) {
    return std::any_of(b.addresses().begin(), b.addresses().end(),
                       [&](const v1::NodeAddress& other) { return one.ip() == other.ip(); });
  };
  const bool other_place = !a.addresses().empty() && !b.addresses().empty() &&
                           std::none_of(a.addresses().begin(), a.addresses().end(), shares);
  return a.incarnation() == b.incarnation() ? other_name && other_place : other_name || other_place;
}

bool MembershipTable::IsRival(const v1::NodeIdentity& member, const v1::NodeIdentity& identity) {
  return AreTwoMachines(member, identity) ||
         (identity.incarnation() >= member.incarnation() && AreTwoAgents(member, identity));
}

std::string_view MembershipChangeName(MembershipChange change) {
  switch (change) {
    case MembershipChange::kJoined:
      return "joined";
    case MembershipChange::kRestarted:
      return "restarted";
    case MembershipChange::kAlive:
      return "alive";
    case MembershipChange::kSuspect:
      return "suspect";
    case MembershipChange::kDead:
      return "dead";
    case MembershipChange::kLeft:
      return "left";
    case MembershipChange::kChanged:
      return "changed";
    case MembershipChange::kIdClash:
      return "id_clash";
    case MembershipChange::kHostnameClash:
      return "hostname_clash";
    case MembershipChange::kVersionSkew:
      return "version_skew";
    case MembershipChange::kForgotten:
      return "forgotten";
    case MembershipChange::kRefused:
      return "refused";
    case MembershipChange::kUnknownNode:
      return "unknown node";
  }
  return "unknown";
}

MembershipTable::MembershipTable(v1::NodeIdentity self) : self_(std::move(self)) {}

bool MembershipTable::Whereabouts::Contradicts(const Whereabouts& other) const {
  if (hostname != other.hostname || control_port != other.control_port) return true;
  // No address at all is an unplugged cable, not another machine.
  if (ips.empty() || other.ips.empty()) return false;
  return std::none_of(ips.begin(), ips.end(),
                      [&](const std::string& ip) { return other.ips.contains(ip); });
}

MembershipTable::Whereabouts MembershipTable::WhereaboutsOf(const v1::NodeIdentity& identity) {
  Whereabouts where{ComparableHostname(identity.hostname()), identity.control_port(), {}};
  for (const auto& address : identity.addresses()) where.ips.insert(address.ip());
  return where;
}

void MembershipTable::HearCandidate(const v1::NodeIdentity& identity, MonotonicTime now) {
  const NodeId node(identity.node_id());
  if (!IsValidNodeId(node.value()) || identity.node_id() == self_.node_id()) return;
  if (identity.incarnation() > kIncarnationMax) return;
  const auto member = members_.find(node);
  if (member != members_.end()) {
    const v1::NodeIdentity& known = member->second.member.identity;
    const bool is_other = IsRival(known, identity);
    // A member that is there is not looked for elsewhere: what a beacon says is no proof.
    if (is_other && IsLive(member->second.member)) return;
    if (identity.incarnation() < known.incarnation() && !is_other) return;
    if (identity.incarnation() == known.incarnation() && !is_other) {
      for (const auto& address : identity.addresses()) {
        AddAddress(member->second.observed, address);
      }
      return;
    }
  }
  const auto found = candidates_.find(node);
  if (found == candidates_.end()) {
    if (candidates_.size() >= kCandidatesMax) {
      candidates_.erase(std::min_element(
          candidates_.begin(), candidates_.end(),
          [](const auto& a, const auto& b) { return a.second.last_named < b.second.last_named; }));
    }
    candidates_[node] = Candidate{Orderly(identity), now};
    return;
  }
  Candidate& candidate = found->second;
  if (identity.incarnation() < candidate.identity.incarnation()) return;
  std::vector<v1::NodeAddress> addresses;
  if (identity.incarnation() == candidate.identity.incarnation()) {
    addresses.assign(candidate.identity.addresses().begin(), candidate.identity.addresses().end());
  }
  for (const auto& address : identity.addresses()) AddAddress(addresses, address);
  v1::NodeIdentity merged = identity;
  merged.clear_addresses();
  for (auto& address : addresses) *merged.add_addresses() = std::move(address);
  candidate = Candidate{Orderly(merged), now};
}

MembershipEvents MembershipTable::HearMember(const v1::NodeIdentity& identity,
                                             const v1::NodeAddress* observed, MonotonicTime now,
                                             std::optional<MonotonicTime> asked_at) {
  const NodeId node(identity.node_id());
  if (!IsValidNodeId(node.value()) || identity.incarnation() > kIncarnationMax) return {};
  if (identity.node_id() == self_.node_id()) {
    return HearOwnIdElsewhere(identity.hostname(), observed ? observed->ip() : "", now);
  }
  const auto found = members_.find(node);
  if (found == members_.end()) return AddMember(identity, observed, now);

  Entry& entry = found->second;
  MembershipEvents events;
  if (IsRival(entry.member.identity, identity)) {
    if (IsLive(entry.member)) {
      HearRival(entry, identity, now, events);
    } else {
      Update(entry, identity, observed, now, events);
    }
    return events;
  }
  if (IsClash(entry, identity, now, events)) return events;
  const uint64_t known = entry.member.identity.incarnation();
  if (identity.incarnation() < known) return events;
  if (identity.incarnation() == known && entry.member.state == v1::NODE_STATE_LEFT) return events;
  if (asked_at.has_value())
    entry.answered = std::max(entry.answered.value_or(*asked_at), *asked_at);
  Update(entry, identity, observed, now, events);
  return events;
}

Admission MembershipTable::AdmissionOf(const v1::NodeIdentity& identity) const {
  const auto found = members_.find(NodeId(identity.node_id()));
  if (found == members_.end()) return Admission::kTaken;
  const Entry& entry = found->second;
  if (!IsLive(entry.member) || !IsRival(entry.member.identity, identity)) {
    return Admission::kTaken;
  }
  return IsProven(entry) ? Admission::kRefused : Admission::kAsked;
}

bool MembershipTable::IsProven(const Entry& entry) {
  if (!entry.rival.has_value()) return false;
  // An answer to what was asked since; or anything, when its process would have to have ended long
  // ago for the rival to be its successor.
  return (entry.answered.has_value() && *entry.answered >= entry.rival_since) ||
         entry.member.last_heard >= entry.rival_since + kLastEcho;
}

void MembershipTable::HearRival(Entry& entry, const v1::NodeIdentity& identity, MonotonicTime now,
                                MembershipEvents& events) const {
  const bool is_new = !entry.rival.has_value() || now - entry.rival_heard > kClashWindow ||
                      entry.rival->machine() != identity.machine() ||
                      entry.rival->incarnation() != identity.incarnation();
  if (is_new) entry.rival_since = now;
  entry.rival = Orderly(identity);
  entry.rival_heard = now;
  if (!IsProven(entry)) return;
  v1::Reason reason = MakeReason(
      reasons::kNodeIdClash,
      absl::StrCat("node id ", identity.node_id().substr(0, 8), " is that of ",
                   NameAndAddress(entry.member.identity), ", which answers; ",
                   NameAndAddress(identity),
                   AreTwoMachines(entry.member.identity, identity)
                       ? " is another machine with the same id, a copy of its disk"
                       : " is another agent with the same id and machine-id, a copy of its disk or "
                         "container",
                   ", and is refused"),
      identity.node_id());
  reason.set_remedy(NewIdentityRemedy(NameAndAddress(identity)));
  Clash(entry, std::move(reason), now, events);
}

void MembershipTable::Clash(Entry& entry, v1::Reason reason, MonotonicTime now,
                            MembershipEvents& events) const {
  const bool told = entry.clash_at.has_value() && now - *entry.clash_at <= kClashWindow;
  entry.clash_at = now;
  entry.clash = std::move(reason);
  if (!told) {
    events.push_back(
        {MembershipChange::kIdClash, NodeId(entry.member.identity.node_id()), entry.clash});
  }
}

MembershipEvents MembershipTable::AddMember(const v1::NodeIdentity& identity,
                                            const v1::NodeAddress* observed, MonotonicTime now) {
  MembershipEvents events;
  const NodeId node(identity.node_id());
  if (!Evict(events)) {
    if (!refused_at_ || now - *refused_at_ >= kClashWindow) {
      refused_at_ = now;
      events.push_back({MembershipChange::kRefused, node,
                        MakeReason(reasons::kMembersFull,
                                   absl::StrCat(Who(identity), " wants to join, but there are ",
                                                members_.size(), " live members already"),
                                   node.value())});
    }
    return events;
  }
  Entry entry;
  entry.member.identity = Orderly(identity);
  entry.member.last_heard = now;
  entry.member.state_since = now;
  entry.whereabouts = WhereaboutsOf(identity);
  entry.incarnation_since = now;
  if (observed != nullptr) AddAddress(entry.observed, *observed);
  // What the beacons told of its addresses stays useful.
  if (const auto candidate = candidates_.find(node); candidate != candidates_.end()) {
    for (const auto& address : candidate->second.identity.addresses()) {
      AddAddress(entry.observed, address);
    }
    candidates_.erase(candidate);
  }
  unknown_nodes_.erase(node);
  members_[node] = std::move(entry);
  events.push_back({MembershipChange::kJoined, node, {}});
  NoteHostnameClash(identity, events);
  NoteVersionSkew(identity, events);
  return events;
}

bool MembershipTable::IsClash(Entry& entry, const v1::NodeIdentity& identity, MonotonicTime now,
                              MembershipEvents& events) const {
  const Whereabouts news = WhereaboutsOf(identity);
  const uint64_t known = entry.member.identity.incarnation();
  bool is_clash = false;
  if (identity.incarnation() < known) {
    // The former process still speaks, long after its successor did.
    is_clash = now - entry.incarnation_since > kEchoOfFormerIncarnation &&
               now - entry.member.last_heard <= kClashWindow;
  } else if (identity.incarnation() == known && news.Contradicts(entry.whereabouts)) {
    // One machine may move once; only two go back and forth.
    is_clash = entry.previous.has_value() && !news.Contradicts(*entry.previous) &&
               now - entry.moved <= kClashWindow;
    if (!is_clash) {
      entry.previous = entry.whereabouts;
      entry.whereabouts = news;
      entry.moved = now;
    }
  }
  if (!is_clash) return false;
  entry.moved = now;
  v1::Reason reason = MakeReason(
      reasons::kNodeIdClash,
      absl::StrCat("node id ", identity.node_id().substr(0, 8),
                   " is used by two machines at once: ", entry.member.identity.hostname(), " port ",
                   entry.member.identity.control_port(), " and ", identity.hostname(), " port ",
                   identity.control_port()),
      identity.node_id());
  Clash(entry, std::move(reason), now, events);
  return true;
}

void MembershipTable::Update(Entry& entry, const v1::NodeIdentity& identity,
                             const v1::NodeAddress* observed, MonotonicTime now,
                             MembershipEvents& events) {
  Member& member = entry.member;
  const NodeId node(identity.node_id());
  const v1::NodeIdentity orderly = Orderly(identity);
  const bool restarted = identity.incarnation() > member.identity.incarnation() ||
                         AreTwoAgents(member.identity, identity);
  const bool changed = !SameIdentity(orderly, member.identity);
  const bool renamed = identity.hostname() != member.identity.hostname();
  const bool upgraded = identity.agent_version() != member.identity.agent_version();
  if (restarted) {
    entry.observed.clear();
    entry.previous.reset();
    entry.rival.reset();
    entry.answered.reset();
    entry.whereabouts = WhereaboutsOf(identity);
    entry.incarnation_since = now;
    events.push_back({MembershipChange::kRestarted, node, {}});
  } else if (changed) {
    events.push_back({MembershipChange::kChanged, node, {}});
  }
  member.identity = orderly;
  member.last_heard = std::max(member.last_heard, now);
  if (observed != nullptr) AddAddress(entry.observed, *observed);
  const auto candidate = candidates_.find(node);
  if (candidate != candidates_.end() &&
      (candidate->second.identity.incarnation() <= identity.incarnation() ||
       AreTwoMachines(candidate->second.identity, identity))) {
    candidates_.erase(candidate);
  }
  if (member.state != v1::NODE_STATE_ALIVE) {
    member.state = v1::NODE_STATE_ALIVE;
    member.state_reason.Clear();
    member.state_since = now;
    if (!restarted) events.push_back({MembershipChange::kAlive, node, {}});
  }
  if (renamed) NoteHostnameClash(identity, events);
  if (upgraded) NoteVersionSkew(identity, events);
}

MembershipEvents MembershipTable::SetState(const NodeId& node, v1::NodeState state,
                                           const v1::Reason& reason, MonotonicTime now) {
  const auto found = members_.find(node);
  if (found == members_.end()) return {};
  Member& member = found->second.member;
  if (member.state == state || member.state == v1::NODE_STATE_LEFT) return {};
  member.state = state;
  member.state_reason = reason;
  member.state_since = now;
  switch (state) {
    case v1::NODE_STATE_ALIVE:
      member.last_heard = std::max(member.last_heard, now);
      return {{MembershipChange::kAlive, node, reason}};
    case v1::NODE_STATE_SUSPECT:
      return {{MembershipChange::kSuspect, node, reason}};
    case v1::NODE_STATE_DEAD:
      return {{MembershipChange::kDead, node, reason}};
    case v1::NODE_STATE_LEFT:
      return {{MembershipChange::kLeft, node, reason}};
    default:
      return {};
  }
}

MembershipEvents MembershipTable::Leave(const NodeId& node, Incarnation run, MonotonicTime now) {
  const Member* member = Find(node);
  const bool is_overtaken =
      member != nullptr && run != Incarnation(0) && member->identity.incarnation() > run.value();
  if (is_overtaken) return {};
  candidates_.erase(node);
  return SetState(node, v1::NODE_STATE_LEFT,
                  MakeReason(reasons::kNodeLeft,
                             absl::StrCat(DisplayName(node), " left the cluster"), node.value()),
                  now);
}

absl::StatusOr<MembershipEvents> MembershipTable::Forget(const NodeId& node) {
  const auto found = members_.find(node);
  if (found == members_.end()) {
    return absl::NotFoundError(absl::StrCat("no member has the node id ", node.value(),
                                            "; 'clusterctl devices list' shows those there are"));
  }
  const v1::NodeState state = found->second.member.state;
  if (state != v1::NODE_STATE_DEAD && state != v1::NODE_STATE_LEFT) {
    return absl::FailedPreconditionError(
        absl::StrCat(DisplayName(node), " is alive; stop its agentd first"));
  }
  members_.erase(found);
  return MembershipEvents{{MembershipChange::kForgotten, node, {}}};
}

bool MembershipTable::Evict(MembershipEvents& events) {
  if (members_.size() < kMembersMax) return true;
  for (const v1::NodeState state : {v1::NODE_STATE_LEFT, v1::NODE_STATE_DEAD}) {
    auto oldest = members_.end();
    for (auto it = members_.begin(); it != members_.end(); ++it) {
      if (it->second.member.state != state) continue;
      if (oldest == members_.end() ||
          it->second.member.state_since < oldest->second.member.state_since) {
        oldest = it;
      }
    }
    if (oldest == members_.end()) continue;
    events.push_back({MembershipChange::kForgotten, oldest->first,
                      MakeReason(reasons::kMembersFull,
                                 absl::StrCat(Who(oldest->second.member.identity),
                                              " was forgotten for a new member: the list is full"),
                                 oldest->first.value())});
    members_.erase(oldest);
    return true;
  }
  return false;
}

MembershipEvents MembershipTable::HearUnknownNode(const v1::UnknownNode& unknown_node,
                                                  MonotonicTime now) {
  const NodeId node(unknown_node.node_id());
  const auto found = unknown_nodes_.find(node);
  if (found != unknown_nodes_.end()) {
    const bool same = found->second.unknown_node.reason().code() == unknown_node.reason().code();
    const uint64_t heard = found->second.unknown_node.beacons_heard() + 1;
    found->second = UnknownNodeEntry{unknown_node, now};
    found->second.unknown_node.set_beacons_heard(heard);
    if (same) return {};
  } else {
    if (unknown_nodes_.size() >= kUnknownNodesMax) {
      unknown_nodes_.erase(std::min_element(
          unknown_nodes_.begin(), unknown_nodes_.end(),
          [](const auto& a, const auto& b) { return a.second.last_heard < b.second.last_heard; }));
    }
    UnknownNodeEntry& entry = unknown_nodes_[node];
    entry = UnknownNodeEntry{unknown_node, now};
    entry.unknown_node.set_beacons_heard(1);
  }
  return {{MembershipChange::kUnknownNode, node, unknown_node.reason()}};
}

MembershipEvents MembershipTable::HearOwnIdElsewhere(const std::string& hostname,
                                                     const std::string& address,
                                                     MonotonicTime now) {
  const bool told = own_clash_at_.has_value() && now - *own_clash_at_ <= kClashWindow;
  own_clash_at_ = now;
  own_clash_ = MakeReason(
      reasons::kNodeIdClash,
      absl::StrCat("this node's id ", self_.node_id().substr(0, 8), " is also used by ",
                   hostname.empty() ? "a host" : hostname, address.empty() ? "" : " at ", address),
      self_.node_id());
  if (told) return {};
  return {{MembershipChange::kIdClash, NodeId(self_.node_id()), own_clash_}};
}

void MembershipTable::Tick(MonotonicTime now) {
  std::erase_if(candidates_, [now](const auto& entry) {
    return now - entry.second.last_named > kCandidateKeptFor;
  });
  std::erase_if(unknown_nodes_, [now](const auto& entry) {
    return now - entry.second.last_heard > kUnknownNodeKeptFor;
  });
}

const Member* MembershipTable::Find(const NodeId& node) const {
  const auto found = members_.find(node);
  return found == members_.end() ? nullptr : &found->second.member;
}

std::vector<const Member*> MembershipTable::Members() const {
  std::vector<const Member*> members;
  for (const auto& [node, entry] : members_) members.push_back(&entry.member);
  return members;
}

std::vector<const Member*> MembershipTable::LiveMembers() const {
  std::vector<const Member*> members;
  for (const auto& [node, entry] : members_) {
    if (entry.member.state == v1::NODE_STATE_ALIVE ||
        entry.member.state == v1::NODE_STATE_SUSPECT) {
      members.push_back(&entry.member);
    }
  }
  return members;
}

std::vector<v1::UnknownNode> MembershipTable::UnknownNodes() const {
  std::vector<v1::UnknownNode> unknown_nodes;
  for (const auto& [node, entry] : unknown_nodes_) unknown_nodes.push_back(entry.unknown_node);
  return unknown_nodes;
}

std::vector<v1::NodeAddress> MembershipTable::Reachable(
    std::vector<v1::NodeAddress> addresses, const std::vector<v1::NodeAddress>& observed) const {
  SortAddresses(addresses);
  std::vector<v1::NodeAddress> met = observed;
  SortAddresses(met);
  const auto& own = self_.addresses();
  const bool uses_loopback = std::any_of(own.begin(), own.end(), [](const auto& address) {
    return address.interface_kind() == v1::INTERFACE_KIND_LOOPBACK;
  });
  const auto on_link = [&](const v1::NodeAddress& address) {
    return std::any_of(met.begin(), met.end(),
                       [&](const auto& seen) { return seen.ip() == address.ip(); }) ||
           std::any_of(own.begin(), own.end(), [&](const v1::NodeAddress& mine) {
             return InSameSubnet(mine.ip(), address.ip(), mine.prefix_length());
           });
  };
  std::stable_partition(addresses.begin(), addresses.end(), on_link);
  // Met, though the node does not list it: link-local ones, and those behind address translation.
  for (const auto& seen : met) {
    if (std::none_of(addresses.begin(), addresses.end(),
                     [&](const auto& address) { return address.ip() == seen.ip(); })) {
      addresses.push_back(seen);
    }
  }
  if (!uses_loopback) {
    std::erase_if(addresses, [](const v1::NodeAddress& address) {
      return address.interface_kind() == v1::INTERFACE_KIND_LOOPBACK;
    });
  }
  return addresses;
}

std::vector<HeartbeatTarget> MembershipTable::HeartbeatTargets() const {
  std::vector<HeartbeatTarget> targets;
  for (const auto& [node, entry] : members_) {
    const v1::NodeIdentity* identity = &entry.member.identity;
    const auto candidate = candidates_.find(node);
    const bool is_back = candidate != candidates_.end();
    // One that left is not called; its next incarnation is a candidate like any other.
    if (entry.member.state == v1::NODE_STATE_LEFT && !is_back) continue;
    if (is_back) identity = &candidate->second.identity;
    targets.push_back({node,
                       Reachable({identity->addresses().begin(), identity->addresses().end()},
                                 is_back ? std::vector<v1::NodeAddress>() : entry.observed),
                       identity->control_port(), entry.member.state});
  }
  for (const auto& [node, candidate] : candidates_) {
    if (members_.contains(node)) continue;
    const auto& identity = candidate.identity;
    targets.push_back({node,
                       Reachable({identity.addresses().begin(), identity.addresses().end()}, {}),
                       identity.control_port(), v1::NODE_STATE_UNSPECIFIED});
  }
  return targets;
}

std::vector<v1::NodeIdentity> MembershipTable::KnownIdentities() const {
  std::vector<v1::NodeIdentity> known;
  for (const auto& [node, entry] : members_) {
    if (entry.member.state != v1::NODE_STATE_LEFT && entry.member.state != v1::NODE_STATE_DEAD) {
      known.push_back(entry.member.identity);
    }
  }
  return known;
}

bool MembershipTable::AllMembersAlive() const {
  return candidates_.empty() &&
         std::all_of(members_.begin(), members_.end(), [](const auto& entry) {
           return entry.second.member.state == v1::NODE_STATE_ALIVE ||
                  entry.second.member.state == v1::NODE_STATE_LEFT;
         });
}

bool MembershipTable::SharesHostname(const v1::NodeIdentity& identity) const {
  const std::string name = ComparableHostname(identity.hostname());
  if (identity.node_id() != self_.node_id() && ComparableHostname(self_.hostname()) == name) {
    return true;
  }
  return std::any_of(members_.begin(), members_.end(), [&](const auto& entry) {
    const v1::NodeIdentity& other = entry.second.member.identity;
    return other.node_id() != identity.node_id() && ComparableHostname(other.hostname()) == name;
  });
}

std::string MembershipTable::DisplayName(const NodeId& node) const {
  const Member* member = Find(node);
  const bool is_self = node.value() == self_.node_id();
  if (member == nullptr && !is_self) return ShortId(node);
  const v1::NodeIdentity& identity = is_self ? self_ : member->identity;
  if (identity.hostname().empty()) return ShortId(node);
  if (!SharesHostname(identity)) return identity.hostname();
  return absl::StrCat(identity.hostname(), "-", node.value().substr(0, 4));
}

void MembershipTable::NoteHostnameClash(const v1::NodeIdentity& identity,
                                        MembershipEvents& events) const {
  if (identity.hostname().empty() || !SharesHostname(identity)) return;
  const NodeId node(identity.node_id());
  events.push_back({MembershipChange::kHostnameClash, node,
                    MakeReason(reasons::kHostnameClash,
                               absl::StrCat("more than one node is called ", identity.hostname(),
                                            "; this one is shown as ", DisplayName(node)),
                               node.value())});
}

void MembershipTable::NoteVersionSkew(const v1::NodeIdentity& identity,
                                      MembershipEvents& events) const {
  if (identity.agent_version() == self_.agent_version()) return;
  events.push_back(
      {MembershipChange::kVersionSkew, NodeId(identity.node_id()),
       MakeReason(reasons::kVersionSkew,
                  absl::StrCat(Who(identity), " runs agentd ", identity.agent_version(),
                               ", this node ", self_.agent_version()),
                  identity.node_id())});
}

std::vector<v1::Reason> MembershipTable::Problems(MonotonicTime now) const {
  std::vector<v1::Reason> problems;
  if (own_clash_at_ && now - *own_clash_at_ <= kClashWindow) problems.push_back(own_clash_);
  MembershipEvents events;
  for (const auto& [node, entry] : members_) {
    if (entry.clash_at && now - *entry.clash_at <= kClashWindow) problems.push_back(entry.clash);
    if (entry.member.state == v1::NODE_STATE_LEFT) continue;
    NoteHostnameClash(entry.member.identity, events);
    NoteVersionSkew(entry.member.identity, events);
  }
  for (auto& event : events) problems.push_back(std::move(event.reason));
  return problems;
}

}  // namespace macrame::discovery
