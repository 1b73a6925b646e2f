#pragma once

// Who is a member and who is alive: the membership table and the failure monitor, fed by beacons
// and heartbeats, and the log lines that come of it. Owner thread.

#include <functional>
#include <map>
#include <optional>
#include <set>
#include <string>

#include "agentd/cores/dial_table.h"
#include "discovery/beacons/heard_beacon.h"
#include "discovery/membership/failure_monitor.h"
#include "discovery/membership/membership_table.h"
#include "macrame/v1/node.pb.h"
#include "proto/ids.h"
#include "transport/dispatcher.h"

namespace macrame::agentd {

class MemberMonitor {
 public:
  struct Callbacks {
    std::function<void(const discovery::MembershipEvent&)> on_event;
    // A silent member: send it a heartbeat besides the regular ones.
    std::function<void(const NodeId&)> on_probe;
    // The same by beacons that ask for an answer: how many go, 0 where none of its beacons came in.
    std::function<int(const NodeId&)> on_ask;
    // A member's process runs no more: its machine refuses connections, and nothing is heard of it
    // (FailureEffect::kGone).
    std::function<void(const NodeId&)> on_gone;
  };

  MemberMonitor(transport::Dispatcher& dispatcher, const v1::NodeIdentity& self,
                discovery::FailureLimits limits, Callbacks callbacks);

  void SetSelf(const v1::NodeIdentity& self) { table_.SetSelf(self); }
  void HeardCandidate(const v1::NodeIdentity& identity);
  void HeardUnknownNode(const v1::UnknownNode& unknown_node);
  void HeardOwnIdElsewhere(const std::string& hostname, const std::string& address);
  // Its certificate named it. `observed_ip`: where it was met; may be empty. `asked_at`: when the
  // heartbeat was sent that it answered, where that is known. With anything but kTaken it counts
  // for nothing: another machine has the node's place.
  discovery::Admission HeardMember(const v1::NodeIdentity& identity, const std::string& observed_ip,
                                   bool answered,
                                   std::optional<MonotonicTime> asked_at = std::nullopt);
  enum class BeaconWorth {
    kNothing,         // no member's, another machine's, or one that was overtaken by a later one
    kHeard,           // counts as heard
    kWantsHeartbeat,  // of a later run, or of a member that is dead: only a heartbeat says more
  };
  // A signed beacon: of that member, machine, control port and run alone. Its number must rise:
  // what is played again is nothing.
  BeaconWorth HeardBeacon(const discovery::HeardBeacon& beacon);
  void HeartbeatFailed(const NodeId& node, discovery::HeartbeatFailure failure);
  // Another call than a heartbeat was answered, or could not reach the node.
  void NoteCall(const NodeId& node, bool reached);
  // Live members that this node can't call.
  std::set<NodeId> Undialled() const;
  // It said so, or is taken out; of `run` or an earlier one. Zero: of any.
  void Leave(const NodeId& node, Incarnation run = Incarnation(0));
  // They are members no more: left and forgotten at once, and never listened to again.
  void SetRevoked(std::set<NodeId> nodes);
  // One that is dead or left is not listed any more; others stay.
  void Forget(const NodeId& node);
  void Tick();

  const discovery::MembershipTable& table() const { return table_; }
  const discovery::FailureMonitor& failures() const { return failures_; }
  // Alive and suspect, without this node.
  std::set<NodeId> Live() const;
  // Every one that has not left, without this node.
  std::set<NodeId> All() const;
  bool IsMember(const NodeId& node) const { return table_.Find(node) != nullptr; }
  bool IsAlive(const NodeId& node) const;

 private:
  void Tell(const discovery::MembershipEvents& events);
  void Carry(const discovery::FailureEffects& effects);

  transport::Dispatcher& dispatcher_;
  discovery::MembershipTable table_;
  discovery::FailureMonitor failures_;
  DialTable dials_;
  std::set<NodeId> revoked_;
  struct LastBeacon {
    std::string machine;
    uint64_t incarnation = 0;
    uint64_t sequence = 0;
  };
  std::map<NodeId, LastBeacon> beacons_;  // of members
  Callbacks callbacks_;
};

}  // namespace macrame::agentd
