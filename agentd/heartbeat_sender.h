#pragma once

// Exchanges heartbeats with every member and candidate. Owner thread.
//
// One exchange serves both ways: the answer to a heartbeat carries what the answering node would
// send. So of two nodes one calls, and the other calls only when that is late: half the traffic,
// and a call that is refused still tells the caller at once.

#include <functional>
#include <map>
#include <string>

#include "agentd/member_monitor.h"
#include "agentd/peer_channels.h"
#include "macrame/v1/agent.pb.h"
#include "transport/dispatcher.h"

namespace macrame::agentd {

// Heartbeats to one node that wait for an answer; with more the node is not sent further ones.
inline constexpr int kHeartbeatsUnansweredMax = 3;
// So many handshakes fail in a row before it is told: one fails with each process that ends.
inline constexpr int kRefusalsTold = 3;

struct HeartbeatOptions {
  Duration interval = std::chrono::milliseconds(500);
  Duration timeout = std::chrono::milliseconds(1500);
  // To members that are dead and candidates that did not answer.
  Duration slow_interval = std::chrono::milliseconds(2000);
  // Members name each other so often.
  Duration gossip_interval = std::chrono::milliseconds(5000);
};

class HeartbeatSender {
 public:
  struct Callbacks {
    // Everything but inventory and known; called once for a round of sending.
    std::function<v1::HeartbeatRequest()> make;
    std::function<const v1::Inventory&()> inventory;
    // Of that node's inventory, as it is known here; 0: none.
    std::function<uint64_t(const NodeId&)> known_revision;
    // The same two for links.
    std::function<const v1::NodeLinks&()> links;
    std::function<uint64_t(const NodeId&)> known_links_revision;
    std::function<void(const NodeId&, v1::HeartbeatResponse)> on_answer;
  };

  HeartbeatSender(transport::Dispatcher& dispatcher, PeerChannels& channels, MemberMonitor& members,
                  HeartbeatOptions options, Callbacks callbacks);

  // Sends what is due. At least each 100 ms or so; costs nothing while nothing is due.
  void Tick();
  // Members, candidates or their addresses changed: looks again at the next Tick.
  void Wake() { next_due_ = MonotonicTime(); }
  // To every live member, now: something changed that others wait for.
  void SendToAll();
  void SendTo(const NodeId& node);
  // Nodes whose heartbeats fail again and again because the connection is not taken, with its own
  // words.
  std::map<NodeId, std::string> Refused() const;
  // Why the others don't take this node for a member any more; empty as long as they do.
  const v1::Reason& own_refusal() const { return own_refusal_; }
  // A heartbeat of that node came in and was answered: it knows what ours would say.
  void NoteReceived(const NodeId& node);

 private:
  struct Link {
    MonotonicTime last_sent;
    MonotonicTime last_received;
    MonotonicTime last_gossip;
    int unanswered = 0;
    int failures = 0;        // in a row
    int refusals = 0;        // handshakes that failed, in a row
    std::string refused_by;  // the words of the last
    std::string tried;       // addresses that were called last
    bool wants_inventory = true;
    uint64_t inventory_sent = 0;
    bool wants_links = true;
    uint64_t links_sent = 0;
  };

  void Send(const discovery::HeartbeatTarget& target, Link& link, v1::HeartbeatRequest request);
  void OnAnswer(const NodeId& node, MonotonicTime asked_at,
                absl::StatusOr<v1::HeartbeatResponse> response);
  MonotonicTime DueAt(const discovery::HeartbeatTarget& target, const Link& link) const;

  transport::Dispatcher& dispatcher_;
  PeerChannels& channels_;
  MemberMonitor& members_;
  const HeartbeatOptions options_;
  Callbacks callbacks_;
  std::map<NodeId, Link> links_;
  v1::Reason own_refusal_;
  MonotonicTime next_due_;
};

}  // namespace macrame::agentd
