#include "agentd/node/member_monitor.h"

#include <spdlog/spdlog.h>

namespace macrame::agentd {
namespace {

using discovery::MembershipChange;

bool IsTrouble(MembershipChange change) {
  switch (change) {
    case MembershipChange::kSuspect:
    case MembershipChange::kDead:
    case MembershipChange::kIdClash:
    case MembershipChange::kHostnameClash:
    case MembershipChange::kVersionSkew:
    case MembershipChange::kRefused:
    case MembershipChange::kUnknownNode:
      return true;
    default:
      return false;
  }
}

void LogEvent(const discovery::MembershipTable& table, const discovery::MembershipEvent& event) {
  std::string line;
  if (event.change == MembershipChange::kUnknownNode) {
    // Anybody on the network chooses these words: the first one keeps them apart from what is
    // logged of members (agentd/cores/log_guard.h).
    line = fmt::format("unknown node {}: {}", ShortId(event.node), event.reason.message());
  } else {
    line = fmt::format("node {} ({}): {}{}{}", table.DisplayName(event.node), ShortId(event.node),
                       discovery::MembershipChangeName(event.change),
                       event.reason.message().empty() ? "" : ": ", event.reason.message());
  }
  if (IsTrouble(event.change)) {
    spdlog::warn("{}", line);
  } else {
    spdlog::info("{}", line);
  }
}

// A copy of the member's disk signs beacons with its id, too, on another machine or at another
// port.
bool IsOfMember(const discovery::HeardBeacon& beacon, const discovery::Member& member) {
  const std::string& machine = member.identity.machine();
  if (!machine.empty() && !beacon.machine.empty()) {
    if (beacon.machine != machine) return false;
  }
  // A later run may have another port.
  return beacon.incarnation > member.identity.incarnation() ||
         beacon.control_port == member.identity.control_port();
}

}  // namespace

MemberMonitor::MemberMonitor(transport::Dispatcher& dispatcher, const v1::NodeIdentity& self,
                             discovery::FailureLimits limits, Callbacks callbacks)
    : dispatcher_(dispatcher), table_(self), failures_(limits), callbacks_(std::move(callbacks)) {}

void MemberMonitor::HeardCandidate(const v1::NodeIdentity& identity) {
  if (revoked_.contains(NodeId(identity.node_id()))) return;
  table_.HearCandidate(identity, dispatcher_.Now());
}

void MemberMonitor::HeardUnknownNode(const v1::UnknownNode& unknown_node) {
  Tell(table_.HearUnknownNode(unknown_node, dispatcher_.Now()));
}

void MemberMonitor::HeardOwnIdElsewhere(const std::string& hostname, const std::string& address) {
  Tell(table_.HearOwnIdElsewhere(hostname, address, dispatcher_.Now()));
}

discovery::Admission MemberMonitor::HeardMember(const v1::NodeIdentity& identity,
                                                const std::string& observed_ip, bool answered,
                                                std::optional<MonotonicTime> asked_at) {
  const MonotonicTime now = dispatcher_.Now();
  const NodeId node(identity.node_id());
  // Its calls are refused where they come in; nobody else has its place.
  if (revoked_.contains(node)) return discovery::Admission::kTaken;
  v1::NodeAddress observed;
  observed.set_ip(observed_ip);
  Tell(table_.HearMember(identity, observed_ip.empty() ? nullptr : &observed, now, asked_at));
  const discovery::Admission admission = table_.AdmissionOf(identity);
  if (admission == discovery::Admission::kTaken) {
    if (answered) dials_.NoteCall(node, /*reached=*/true, now);
    Carry(answered ? failures_.HeartbeatAnswered(node, now)
                   : failures_.HeartbeatReceived(node, now));
  } else if (admission == discovery::Admission::kAsked) {
    callbacks_.on_probe(node);  // whoever has the place, at its own address
  }
  return admission;
}

MemberMonitor::BeaconWorth MemberMonitor::HeardBeacon(const discovery::HeardBeacon& beacon) {
  const discovery::Member* member = table_.Find(beacon.node);
  if (member == nullptr || member->state == v1::NODE_STATE_LEFT ||
      beacon.incarnation < member->identity.incarnation() || !IsOfMember(beacon, *member)) {
    return BeaconWorth::kNothing;
  }
  LastBeacon& last = beacons_[beacon.node];
  const bool is_later =
      std::pair(beacon.incarnation, beacon.sequence) > std::pair(last.incarnation, last.sequence);
  if (beacon.machine == last.machine && !is_later) return BeaconWorth::kNothing;
  last = {beacon.machine, beacon.incarnation, beacon.sequence};
  const bool is_later_run = beacon.incarnation > member->identity.incarnation();
  if (!is_later_run) failures_.BeaconOfDeadReceived(beacon.node);
  if (is_later_run || member->state == v1::NODE_STATE_DEAD) return BeaconWorth::kWantsHeartbeat;
  Carry(failures_.BeaconReceived(beacon.node, dispatcher_.Now()));
  return BeaconWorth::kHeard;
}

void MemberMonitor::HeartbeatFailed(const NodeId& node, discovery::HeartbeatFailure failure) {
  dials_.NoteCall(node, /*reached=*/false, dispatcher_.Now());
  Carry(failures_.HeartbeatFailed(node, failure, dispatcher_.Now()));
}

void MemberMonitor::NoteCall(const NodeId& node, bool reached) {
  dials_.NoteCall(node, reached, dispatcher_.Now());
}

std::set<NodeId> MemberMonitor::Undialled() const {
  // Asked at each tick and for each beacon, and nearly always nobody.
  if (dials_.IsClear()) return {};
  return dials_.Undialled(Live(), dispatcher_.Now());
}

void MemberMonitor::Leave(const NodeId& node, Incarnation run) {
  Tell(table_.Leave(node, run, dispatcher_.Now()));
}

void MemberMonitor::SetRevoked(std::set<NodeId> nodes) {
  revoked_ = std::move(nodes);
  for (const NodeId& node : revoked_) {
    if (!IsMember(node)) continue;
    Leave(node);
    Forget(node);
  }
}

void MemberMonitor::Forget(const NodeId& node) {
  const auto events = table_.Forget(node);
  if (events.ok()) Tell(*events);
}

void MemberMonitor::Tick() {
  const MonotonicTime now = dispatcher_.Now();
  table_.Tick(now);
  Carry(failures_.Tick(now));
}

std::set<NodeId> MemberMonitor::Live() const {
  std::set<NodeId> live;
  for (const discovery::Member* member : table_.LiveMembers()) {
    live.insert(NodeId(member->identity.node_id()));
  }
  return live;
}

std::set<NodeId> MemberMonitor::All() const {
  std::set<NodeId> all;
  for (const discovery::Member* member : table_.Members()) {
    if (member->state != v1::NODE_STATE_LEFT) all.insert(NodeId(member->identity.node_id()));
  }
  return all;
}

bool MemberMonitor::IsAlive(const NodeId& node) const {
  const discovery::Member* member = table_.Find(node);
  return member != nullptr && member->state == v1::NODE_STATE_ALIVE;
}

void MemberMonitor::Tell(const discovery::MembershipEvents& events) {
  const MonotonicTime now = dispatcher_.Now();
  for (const discovery::MembershipEvent& event : events) {
    if (event.change == MembershipChange::kJoined || event.change == MembershipChange::kRestarted) {
      failures_.Add(event.node, now);
    }
    if (event.change == MembershipChange::kLeft || event.change == MembershipChange::kForgotten) {
      failures_.Remove(event.node);
    }
    const bool comes_or_goes =
        event.change == MembershipChange::kJoined || event.change == MembershipChange::kRestarted ||
        event.change == MembershipChange::kDead || event.change == MembershipChange::kAlive;
    if (comes_or_goes) dials_.Forget(event.node);
    if (event.change == MembershipChange::kForgotten) beacons_.erase(event.node);
    LogEvent(table_, event);
    callbacks_.on_event(event);
  }
}

void MemberMonitor::Carry(const discovery::FailureEffects& effects) {
  using Kind = discovery::FailureEffect::Kind;
  const MonotonicTime now = dispatcher_.Now();
  for (const discovery::FailureEffect& effect : effects) {
    switch (effect.kind) {
      case Kind::kProbe:
        callbacks_.on_probe(effect.node);
        break;
      case Kind::kAsk:
        failures_.NoteAsked(effect.node, callbacks_.on_ask(effect.node));
        break;
      case Kind::kBecameSuspect:
        Tell(table_.SetState(effect.node, v1::NODE_STATE_SUSPECT, effect.reason, now));
        break;
      case Kind::kBecameDead:
        Tell(table_.SetState(effect.node, v1::NODE_STATE_DEAD, effect.reason, now));
        break;
      case Kind::kGone:
        callbacks_.on_gone(effect.node);
        break;
      case Kind::kBecameAlive:
        Tell(table_.SetState(effect.node, v1::NODE_STATE_ALIVE, effect.reason, now));
        break;
    }
  }
}

}  // namespace macrame::agentd
