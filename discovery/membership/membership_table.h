#pragma once

// Who belongs to the cluster, as this node sees it. Pure; one owner thread.
//
// Three kinds of entries. A *candidate* was named by a signed beacon, a seed or another member: an
// address worth a heartbeat. A *member* has shown its certificate in a heartbeat, either way. A
// *unknown node* was heard and can't be a member: another cluster's, or one without the secret.
//
// Members are told apart by NodeId alone: one node on many addresses is one node. Of two agents
// that carry one id (a disk or a container was copied) the one that is a member and answers keeps
// its place, whatever the other's incarnation and whatever either says of its machine: the other
// is asked to wait, and is refused as soon as the first was heard in a way that only an agent which
// lives can be. One that does not answer is dead in the end, and its place free.
//
// A dead member stays listed, and counts for nothing. All three lists are bounded; what makes room
// is the longest left, then the longest dead; a live member never does.

#include <map>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "macrame/v1/node.pb.h"
#include "proto/ids.h"
#include "proto/monotonic_time.h"

namespace macrame::discovery {

inline constexpr size_t kMembersMax = 64;
inline constexpr size_t kCandidatesMax = 64;
inline constexpr size_t kUnknownNodesMax = 64;
inline constexpr size_t kAddressesPerNodeMax = 32;
// A candidate that nobody names any more is forgotten; an unknown node likewise.
inline constexpr Duration kCandidateKeptFor = std::chrono::seconds(30);
inline constexpr Duration kUnknownNodeKeptFor = std::chrono::seconds(60);
// Two machines with one id contradict each other within this time; one machine that moves does not.
inline constexpr Duration kClashWindow = std::chrono::seconds(30);
// What a process said before it ended does not come in later than this after its successor spoke.
inline constexpr Duration kLastEcho = std::chrono::seconds(3);

// What a copied disk has to do to be a node of its own.
std::string NewIdentityRemedy(const std::string& where);
// "weaver-2 (10.0.0.2:7000)".
std::string NameAndAddress(const v1::NodeIdentity& identity);
// Both name their machine, and these are two.
bool AreTwoMachines(const v1::NodeIdentity& a, const v1::NodeIdentity& b);
// They may run at the same time: on two machines; or on what says that it is one machine, as copies
// of a container or image do, but elsewhere. One that was started again is elsewhere when it has
// another name or shares no address with its former run; one and the same run when it has both.
bool AreTwoAgents(const v1::NodeIdentity& a, const v1::NodeIdentity& b);

enum class MembershipChange {
  kJoined,     // a new member
  kRestarted,  // a known member with a higher incarnation
  kAlive,      // heard again after suspect or dead
  kSuspect,
  kDead,
  kLeft,
  kChanged,        // addresses, ports, hostname or version
  kIdClash,        // NODE_ID_CLASH; the news was not taken over
  kHostnameClash,  // HOSTNAME_CLASH; both get a suffix
  kVersionSkew,    // VERSION_SKEW with this node
  kForgotten,      // made room, or removed by a person
  kRefused,        // MEMBERS_FULL
  kUnknownNode,    // an unknown node that was not listed before
};
std::string_view MembershipChangeName(MembershipChange change);

struct MembershipEvent {
  MembershipChange change;
  NodeId node;
  v1::Reason reason;  // empty where the change needs none
};
using MembershipEvents = std::vector<MembershipEvent>;

struct Member {
  v1::NodeIdentity identity;  // addresses best first
  v1::NodeState state = v1::NODE_STATE_ALIVE;
  v1::Reason state_reason;  // why suspect, dead or left
  MonotonicTime last_heard;
  MonotonicTime state_since;
};

// How news stands beside what is known of its node.
enum class Admission {
  kTaken,    // it is the member's own, or a new member's
  kAsked,    // of another machine than the member, which is being asked whether it is there
  kRefused,  // of another machine than the member, which is there
};

// Where to send a heartbeat.
struct HeartbeatTarget {
  NodeId node;
  std::vector<v1::NodeAddress> addresses;  // best first
  uint32_t control_port = 0;
  v1::NodeState state = v1::NODE_STATE_UNSPECIFIED;  // UNSPECIFIED: a candidate
};

class MembershipTable {
 public:
  // `self` is kept up to date with SetSelf; it is no member.
  explicit MembershipTable(v1::NodeIdentity self);
  void SetSelf(v1::NodeIdentity self) { self_ = std::move(self); }

  // An address to try: from a signed beacon (one address) or another member's list. Older
  // incarnations and this node itself are ignored.
  void HearCandidate(const v1::NodeIdentity& identity, MonotonicTime now);
  // The peer's certificate said that it is `identity.node_id`: it becomes or stays a member.
  // `observed`: the address that it was reached at or came from, kept as well; may be null.
  // `asked_at`: when the question was sent that this answers; unset: it came by itself.
  MembershipEvents HearMember(const v1::NodeIdentity& identity, const v1::NodeAddress* observed,
                              MonotonicTime now,
                              std::optional<MonotonicTime> asked_at = std::nullopt);
  // To be asked after HearMember: with anything but kTaken the news was not taken over.
  Admission AdmissionOf(const v1::NodeIdentity& identity) const;
  // What the failure monitor decided. Unknown nodes and repeats give no event. A member that left
  // is only brought back by HearMember with a higher incarnation.
  MembershipEvents SetState(const NodeId& node, v1::NodeState state, const v1::Reason& reason,
                            MonotonicTime now);
  // Its run `run` said goodbye; zero: whichever runs. A goodbye that a later run has overtaken on
  // its way is nothing.
  MembershipEvents Leave(const NodeId& node, Incarnation run, MonotonicTime now);
  // Forgets a member that is dead or left. FAILED_PRECONDITION for a live one,
  // NOT_FOUND for none.
  absl::StatusOr<MembershipEvents> Forget(const NodeId& node);
  // `unknown node` as BeaconService gives it; its count and time are kept here.
  MembershipEvents HearUnknownNode(const v1::UnknownNode& unknown_node, MonotonicTime now);
  // This node's own id was heard from elsewhere (BeaconVerdict::kIdClash).
  MembershipEvents HearOwnIdElsewhere(const std::string& hostname, const std::string& address,
                                      MonotonicTime now);
  // Forgets candidates and unknown nodes that nobody speaks of.
  void Tick(MonotonicTime now);

  const Member* Find(const NodeId& node) const;
  std::vector<const Member*> Members() const;         // by node id
  std::vector<const Member*> LiveMembers() const;     // alive and suspect
  std::vector<v1::UnknownNode> UnknownNodes() const;  // by node id
  // Members that have not left, and candidates.
  std::vector<HeartbeatTarget> HeartbeatTargets() const;
  // Of all members, for HeartbeatRequest.known.
  std::vector<v1::NodeIdentity> KnownIdentities() const;
  bool AllMembersAlive() const;  // no candidate and none suspect or dead

  // The hostname; with "-1a2b" of the node id behind it when another member or this node has the
  // same one (compared without case and ".local"). The id's first digits when there is no hostname.
  std::string DisplayName(const NodeId& node) const;
  // Clashes of the last kClashWindow (node ids), and hostname clashes that last.
  std::vector<v1::Reason> Problems(MonotonicTime now) const;

 private:
  // Where an identity says that it lives; two machines with one id contradict each other in this.
  struct Whereabouts {
    std::string hostname;
    uint32_t control_port = 0;
    std::set<std::string> ips;
    bool Contradicts(const Whereabouts& other) const;
  };
  struct Entry {
    Member member;
    std::vector<v1::NodeAddress> observed;  // where it was really met
    Whereabouts whereabouts;
    std::optional<Whereabouts> previous;
    MonotonicTime moved;  // when whereabouts took the place of previous
    MonotonicTime incarnation_since;
    // Another machine that carries the same id, and since when it has been heard.
    std::optional<v1::NodeIdentity> rival;
    MonotonicTime rival_since;
    MonotonicTime rival_heard;
    std::optional<MonotonicTime> answered;  // the latest question that the member answered
    std::optional<MonotonicTime> clash_at;
    v1::Reason clash;
  };
  struct Candidate {
    v1::NodeIdentity identity;
    MonotonicTime last_named;
  };
  struct UnknownNodeEntry {
    v1::UnknownNode unknown_node;
    MonotonicTime last_heard;
  };

  // `identity` is of another agent than the member, which may still run, and no echo of the past.
  static bool IsRival(const v1::NodeIdentity& member, const v1::NodeIdentity& identity);
  static Whereabouts WhereaboutsOf(const v1::NodeIdentity& identity);
  MembershipEvents AddMember(const v1::NodeIdentity& identity, const v1::NodeAddress* observed,
                             MonotonicTime now);
  // True when the news is not to be believed; says so once in each kClashWindow.
  bool IsClash(Entry& entry, const v1::NodeIdentity& identity, MonotonicTime now,
               MembershipEvents& events) const;
  // It is live and was heard since its rival appeared.
  static bool IsProven(const Entry& entry);
  void HearRival(Entry& entry, const v1::NodeIdentity& identity, MonotonicTime now,
                 MembershipEvents& events) const;
  void Clash(Entry& entry, v1::Reason reason, MonotonicTime now, MembershipEvents& events) const;
  void Update(Entry& entry, const v1::NodeIdentity& identity, const v1::NodeAddress* observed,
              MonotonicTime now, MembershipEvents& events);
  void NoteHostnameClash(const v1::NodeIdentity& identity, MembershipEvents& events) const;
  void NoteVersionSkew(const v1::NodeIdentity& identity, MembershipEvents& events) const;
  bool Evict(MembershipEvents& events);
  bool SharesHostname(const v1::NodeIdentity& identity) const;
  // Those on a network that this node is on come first; loopback only for a node that uses it
  // itself.
  std::vector<v1::NodeAddress> Reachable(std::vector<v1::NodeAddress> addresses,
                                         const std::vector<v1::NodeAddress>& observed) const;

  v1::NodeIdentity self_;
  std::map<NodeId, Entry> members_;
  std::map<NodeId, Candidate> candidates_;
  std::map<NodeId, UnknownNodeEntry> unknown_nodes_;
  std::optional<MonotonicTime> refused_at_;
  std::optional<MonotonicTime> own_clash_at_;
  v1::Reason own_clash_;
};

}  // namespace macrame::discovery
