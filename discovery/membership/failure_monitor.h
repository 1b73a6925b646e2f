#pragma once

// Decides from heartbeats whether a member is alive, suspect or dead. Pure; one owner thread.
//
// A member is heard when its heartbeat arrives or when it answers ours, and when a beacon of it
// comes in: that shows that its owner thread runs, but neither that its port answers nor that
// nobody kept the beacon back. So beacons count for beacons_trusted_for after the last heartbeat
// that was exchanged, and never raise the dead. Silence of suspect_after
// makes it suspect, and from then on the monitor asks for extra probes (twice as often), so that
// plain loss of packets seldom goes on to look like death; silence of dead_after makes it dead. So
// does silence of unanswered_after, where the member's beacons used to come in and it left
// asks_until_dead beacons that asked for an answer without one (kAsk: from ask_after on, some each
// tick). So do two refused connections in a row after refused_after, as the machine is there and
// the agent is not. Who stays silent until gone_after then is gone.
//
// What loss does, where each datagram is lost with 30 %: death after unanswered_after needs three
// beacons in a row to be lost (0.3^3 = 0.027), the four heartbeats of each side that follow a
// silence of 875 ms (0.51^4 x 0.3^4 = 5e-4), and of 20 asked beacons each one or its answer
// (0.51^20 = 1.4e-6): 2e-11 for each beacon, once in 800 years for each pair; by the datagrams
// alone, as if TCP carried nothing, once in five months. Who is not heard by beacons is asked by
// heartbeats alone and has dead_after: six beacons, seven heartbeats of each side and the five
// probes of a suspect, 5e-11 or once in 300 years.
//
// Slow is not dead, least of all when the slow one is we. A Tick that comes more than late_tick
// after its time means that this process was paused: nobody's silence in that time counts, and the
// limits are doubled (up to widen_max) until ten seconds pass without another. When two or more
// members, and at least half of them, fall silent at once, this node's own network is the likelier
// culprit: those that would die get one further dead_after first. So a member that is gone is dead
// after unanswered_after at the soonest and 2 × dead_after at the latest, unless this node was
// itself paused.

#include <map>
#include <vector>

#include "macrame/v1/node.pb.h"
#include "proto/ids.h"
#include "proto/monotonic_time.h"

namespace macrame::discovery {

struct FailureLimits {
  Duration heartbeat_interval = std::chrono::milliseconds(500);
  Duration suspect_after = std::chrono::milliseconds(1500);
  Duration dead_after = std::chrono::milliseconds(3000);
  Duration unanswered_after = std::chrono::milliseconds(1875);
  // One beacon, and the time until it is read, is missing.
  Duration ask_after = std::chrono::milliseconds(875);
  // Of the 20 and more that are sent in time: a pause of the sender is no silence of the other.
  int asks_until_dead = 14;
  Duration tick_interval = std::chrono::milliseconds(100);
  Duration late_tick = std::chrono::milliseconds(500);
  int widen_max = 8;
  Duration narrow_after = std::chrono::seconds(10);
  int refusals_until_dead = 2;
  // A node whose own heartbeats still come in is alive, whatever its port says.
  Duration refused_after = std::chrono::milliseconds(750);
  // Two beacons and the time until they are read: of a process that lives behind a firewall that
  // refuses, one comes in before.
  Duration gone_after = std::chrono::milliseconds(1000);
  // Above the longest time between two heartbeats of a pair that hears each other's beacons: 25 s
  // (HeartbeatOptions.full_interval_max and a quarter). In the rest, failed ones are sent again.
  Duration beacons_trusted_for = std::chrono::seconds(35);
};

enum class HeartbeatFailure { kRefused, kTimeout };

struct FailureEffect {
  enum class Kind {
    kBecameSuspect,
    kBecameDead,
    kBecameAlive,
    kProbe,  // send it a heartbeat now, besides the regular ones
    kAsk,    // ask it for a beacon; NoteAsked
    kGone,   // dead by refusals, and no process of it runs: not a sign of life for gone_after
  };
  Kind kind;
  NodeId node;
  v1::Reason reason;  // NODE_SUSPECT or NODE_DEAD with the figures
};
using FailureEffects = std::vector<FailureEffect>;

class FailureMonitor {
 public:
  explicit FailureMonitor(FailureLimits limits = {}) : limits_(limits) {}

  // A member that was just heard; of a known one it starts the count anew (a restart).
  void Add(const NodeId& node, MonotonicTime now);
  // A member that left or was forgotten.
  void Remove(const NodeId& node) { peers_.erase(node); }

  FailureEffects HeartbeatReceived(const NodeId& node, MonotonicTime now) {
    return Hear(node, now);
  }
  FailureEffects HeartbeatAnswered(const NodeId& node, MonotonicTime now) {
    return Hear(node, now);
  }
  // Signed, of the member's present run, and newer than any before it.
  FailureEffects BeaconReceived(const NodeId& node, MonotonicTime now);
  // Signed, of the dead member's present run: it stays dead until a heartbeat says more, and its
  // process is not gone.
  void BeaconOfDeadReceived(const NodeId& node);
  // All addresses of the member were tried. Unknown nodes are ignored everywhere.
  FailureEffects HeartbeatFailed(const NodeId& node, HeartbeatFailure failure, MonotonicTime now);
  // So many beacons that ask for an answer were sent to it.
  void NoteAsked(const NodeId& node, int asks);
  // Each tick_interval.
  FailureEffects Tick(MonotonicTime now);

  // UNSPECIFIED for an unknown node.
  v1::NodeState StateOf(const NodeId& node) const;
  Duration SilenceOf(const NodeId& node, MonotonicTime now) const;
  // 1 when this process runs smoothly.
  int widening() const { return widening_; }

 private:
  struct Peer {
    v1::NodeState state = v1::NODE_STATE_ALIVE;
    MonotonicTime last_heard;
    MonotonicTime last_exchange;  // a heartbeat, either way
    MonotonicTime last_probe;
    int refusals = 0;
    int asks = 0;             // since it was heard last
    bool is_refused = false;  // dead by refusals, and not heard since
    Duration grace{0};        // given once for each silence, when we blamed ourselves
  };

  FailureEffects Hear(const NodeId& node, MonotonicTime now);
  FailureEffects Revive(const NodeId& node, Peer& peer, MonotonicTime now);
  void NoteOwnPause(MonotonicTime now);
  void BlameSelfFirst(MonotonicTime now);
  void Judge(const NodeId& node, Peer& peer, MonotonicTime now, FailureEffects& effects);
  FailureEffect Die(const NodeId& node, Peer& peer, std::string message);

  FailureLimits limits_;
  std::map<NodeId, Peer> peers_;
  MonotonicTime last_tick_{};
  MonotonicTime last_late_{};
  bool ticked_ = false;
  int widening_ = 1;
};

}  // namespace macrame::discovery
