#pragma once

// Exchanges heartbeats with every member and candidate. Owner thread.
//
// One exchange serves both ways: the answer to a heartbeat carries what the answering node would
// send. Of two nodes one has the turn (CallsFirst) and the other calls only when that is late. So a
// pair needs one connection, and whoever starts is not called by everybody at once.
//
// Who is alive is told by beacons where they come in (MemberMonitor::HeardBeacon). A member whose
// beacons are heard gets a heartbeat
//   - as soon as its beacon shows that it has news (NewsOf), later where nobody acts on them;
//   - with each lease that its coordinator asks it for (SendLease), in the same call;
//   - each full_interval, which proves that its port still answers; and each reverse_interval from
//     the one of the pair that never has the turn: it can be called from there too.
// One whose beacons stay away for beacon_silence, and everybody where no beacon gets through, gets
// one each `interval`, and each half of it while none is answered: so the loss of beacons alone
// makes nobody suspect.
//
// What is not connected yet is dialled a few at a time: handshakes cost cores, and many agents that
// start at once on few of these would keep each other from ever finishing one.

#include <functional>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "agentd/node/member_monitor.h"
#include "agentd/node/peer_channels.h"
#include "discovery/beacons/heard_beacon.h"
#include "macrame/v1/agent.pb.h"
#include "transport/dispatcher.h"

namespace macrame::agentd {

// Heartbeats to one node that wait for an answer; with more the node is not sent further ones.
inline constexpr int kHeartbeatsUnansweredMax = 3;
// So many handshakes fail in a row before it is told: one fails with each process that ends.
inline constexpr int kRefusalsTold = 3;
// First calls to nodes that have not answered on their address yet. One that takes longer than
// kDialSlot waits for a machine that is not there, and keeps no other from being dialled.
inline constexpr int kFirstCallsMax = 4;
inline constexpr Duration kDialSlot = std::chrono::milliseconds(1000);
inline constexpr Duration kKeptFresh = std::chrono::seconds(2);

struct HeartbeatOptions {
  Duration interval = std::chrono::milliseconds(500);
  // Beacons come each `interval`, and are heard a quarter of a second later at worst.
  Duration beacon_silence = std::chrono::milliseconds(875);
  Duration timeout = std::chrono::milliseconds(1500);
  // Of the first calls, which have a handshake to make.
  Duration dial_timeout = std::chrono::milliseconds(4000);
  // A candidate whose turn it is to call has this long to do so.
  Duration dial_grace = std::chrono::milliseconds(1200);
  // To members that are dead and candidates that did not answer; doubled with each failure up to
  // slow_interval_max.
  Duration slow_interval = std::chrono::milliseconds(2000);
  Duration slow_interval_max = std::chrono::milliseconds(4000);
  // To members whose beacons are heard, by the number of members (FullInterval); a quarter more is
  // well below FailureLimits.beacons_trusted_for.
  Duration full_interval = std::chrono::milliseconds(10000);
  Duration full_interval_max = std::chrono::milliseconds(20000);
  size_t full_interval_members = 8;
  // Of those that call here first: soon after they were found, then seldom, as each call opens a
  // second connection of the pair for a minute.
  Duration reverse_first = std::chrono::seconds(30);
  Duration reverse_interval = std::chrono::minutes(10);
  // Of news that nobody here acts on.
  Duration news_interval = std::chrono::milliseconds(2000);
  // Members name each other so often, where something about them changed and where nothing did.
  Duration gossip_interval = std::chrono::milliseconds(5000);
  Duration gossip_interval_max = std::chrono::milliseconds(60000);
};

// Of a cluster of `members`. Each exchange wakes both nodes some seven times: above
// full_interval_members nodes the interval grows with their number, so that the wake-ups do not,
// up to full_interval_max.
Duration FullInterval(const HeartbeatOptions& options, size_t members);

// Which of two nodes calls the other. Of each node's peers about half.
bool CallsFirst(const NodeId& node, const NodeId& other);

class HeartbeatSender {
 public:
  using LeaseDone = std::function<void(absl::StatusOr<v1::LeaseResponse>)>;
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
    // NewsOf that node's last heartbeat; 0: there was none.
    std::function<uint64_t(const NodeId&)> news_heard;
    // Whether news of that node are acted on here, or ours there: one of the two is coordinator, or
    // there is none.
    std::function<bool(const NodeId&)> is_urgent;
  };

  HeartbeatSender(transport::Dispatcher& dispatcher, PeerChannels& channels, MemberMonitor& members,
                  NodeId self, HeartbeatOptions options, Callbacks callbacks);

  // Sends what is due. At least each interval / 2; costs nothing while nothing is due.
  void Tick();
  // Members, candidates or their addresses changed: looks again at the next Tick.
  void Wake();
  // The same, and every channel leads to its node's present addresses, called or not.
  void TakeAddresses();
  // To the coordinator, and to live members that are connected: something changed that others wait
  // for. All others see it in the next beacon.
  void SendNews();
  // To every live member: something that all have to know at once.
  void SendToAll();
  void SendTo(const NodeId& node);
  // Nodes whose heartbeats fail again and again because the connection is not taken, with its own
  // words.
  std::map<NodeId, std::string> Refused() const;
  // Why the others don't take this node for a member any more; empty as long as they do.
  const v1::Reason& own_refusal() const { return own_refusal_; }
  // A heartbeat with a lease request in it; `done` once. UNIMPLEMENTED from an agent that does not
  // look for one there, UNAVAILABLE where too many calls wait already.
  void SendLease(const NodeId& node, const v1::LeaseRequest& lease, LeaseDone done);
  // For kKeptFresh from now on, members get one each `interval`, whoever's turn it is: somebody
  // here goes by counters that are no news, or by who takes this node for who it says.
  void KeepFresh();
  // A heartbeat of that node came in and was answered: it knows what ours would say.
  void NoteReceived(const NodeId& node);
  // A beacon of a member that is worth anything.
  void NoteBeacon(const discovery::HeardBeacon& beacon, MemberMonitor::BeaconWorth worth);
  void Forget(const NodeId& node) { links_.erase(node); }
  // Of that node's last answer to a heartbeat of ours, its own time to answer included; nullopt:
  // none came yet.
  std::optional<Duration> RoundTrip(const NodeId& node) const;
  // Some are not heard as they should be, or not found yet.
  bool IsSearching() const { return is_searching_; }

 private:
  struct Link {
    MonotonicTime known_since;
    MonotonicTime last_sent;
    MonotonicTime last_exchange;  // either way
    MonotonicTime last_answer;    // of a call of ours
    std::optional<Duration> round_trip;
    MonotonicTime last_beacon;
    MonotonicTime gossip_looked_at;
    MonotonicTime gossip_told_at;
    size_t gossip_told = 0;   // hash of what was named last
    uint64_t news = 0;        // as its last beacon says
    bool called_for = false;  // by a beacon; until an answer comes
    int unanswered = 0;
    int failures = 0;        // in a row
    int refusals = 0;        // handshakes that failed, in a row
    std::string refused_by;  // the words of the last
    bool connected = false;  // an answer came from where it was called last
    std::string tried;       // addresses that were called last
    bool wants_inventory = true;
    uint64_t inventory_sent = 0;
    bool wants_links = true;
    uint64_t links_sent = 0;
  };
  struct Due {
    const discovery::HeartbeatTarget* target;
    Link* link;
    MonotonicTime at;
  };

  void Send(const discovery::HeartbeatTarget& target, Link& link, v1::HeartbeatRequest request,
            LeaseDone lease_done = nullptr);
  void Fill(const NodeId& node, Link& link, v1::HeartbeatRequest& request);
  void AddGossip(Link& link, v1::HeartbeatRequest& request);
  void OnAnswer(const NodeId& node, MonotonicTime asked_at,
                absl::StatusOr<v1::HeartbeatResponse> response, const LeaseDone& lease_done);
  void OnFailure(const NodeId& node, Link& link, const absl::Status& status);
  void SendDue(std::vector<Due> due);
  void SendNow(const std::function<bool(const NodeId&, const Link&)>& wants);
  // As the table has them, seldom put together anew.
  const std::vector<discovery::HeartbeatTarget>& Targets();
  const discovery::HeartbeatTarget* TargetOf(const NodeId& node);
  Link& LinkOf(const NodeId& node);
  bool IsDialling(const Link& link) const;
  bool IsLost(const discovery::HeartbeatTarget& target, const Link& link) const;
  MonotonicTime DueAt(const discovery::HeartbeatTarget& target, const Link& link) const;
  MonotonicTime CandidateDueAt(const discovery::HeartbeatTarget& target, const Link& link) const;
  MonotonicTime MemberDueAt(const NodeId& node, const Link& link) const;
  Duration TimeoutOf(const Link& link) const;

  transport::Dispatcher& dispatcher_;
  PeerChannels& channels_;
  MemberMonitor& members_;
  const NodeId self_;
  const HeartbeatOptions options_;
  Callbacks callbacks_;
  std::map<NodeId, Link> links_;
  v1::Reason own_refusal_;
  std::vector<discovery::HeartbeatTarget> targets_;
  MonotonicTime targets_at_;
  bool targets_stale_ = true;
  MonotonicTime fresh_until_;
  MonotonicTime next_due_;
  bool is_searching_ = false;
};

}  // namespace macrame::agentd
