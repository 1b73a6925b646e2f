#pragma once

// Whether this machine is the node that its disk says: a disk that was copied carries the id of a
// node that may still run elsewhere.
//
// Intuition: a node that last ran on this very machine is sure of itself. One whose disk comes from
// another machine looks first: was the disk moved, or copied? Until it knows it takes no part. Whom
// members refuse because the other machine answers them, or who hears the other itself, is a copy
// and stays out until a person makes it a node of its own; it does not wait for the other to go
// away. When nothing answers the disk was moved, and the node goes on here.
//
// A refused node that last ran on this very machine looks again when nothing was heard of the other
// for `look_again`, doubled with each refusal up to `look_again_max`: where a cable was cut, each
// of two machines may have been refused for the other's sake, and none would be the node.
//
// A node that has just started is refused as easily, whatever its machine: whoever runs has the
// place, also where a copy took it in good faith while the other was switched off. It is settled as
// soon as a member takes it, or when nobody refused it for `settle`. Where two that are settled
// meet (a cable was cut while the copy was started), the lower pair (incarnation, machine) stays: a
// copy has started once more than what it was copied from.
//
// When it may stop looking: after `look`, if no other member is listed or one of them has taken it
// for who it says (members keep the place of one that they count as alive); after `alone` in any
// case, as somebody who sees none of the members for so long changes nothing without them before.
// With Consistency::kQuorum so many of the others have to take it that they are a majority of the
// listed members with it, however long that lasts: else one vote could be counted on two machines.
//
// Copies of one container or image say that they are one machine. They are sure of themselves at
// once, as after a restart, and refused like others by members, which hold what is elsewhere for
// another agent (AreTwoAgents).
//
// Contract: pure. Beacons prove nothing here; what is handed in came over mutual TLS. Owner: the
// agent's owner thread.

#include <optional>
#include <set>
#include <string>

#include "absl/status/status.h"
#include "agentd/cores/election.h"
#include "macrame/v1/common.pb.h"
#include "macrame/v1/node.pb.h"
#include "proto/ids.h"
#include "proto/monotonic_time.h"

namespace macrame::agentd {

struct IdentityGuardOptions {
  Duration look = std::chrono::milliseconds(3000);
  Duration alone = std::chrono::seconds(30);
  Duration settle = std::chrono::milliseconds(2000);
  // Longer than signs of life of the other may stay away.
  Duration look_again = std::chrono::seconds(10);
  Duration look_again_max = std::chrono::minutes(10);
  Consistency consistency = Consistency::kAvailable;
};

enum class Standing {
  kSure,     // it is the node
  kLooking,  // it takes no part yet
  kRefused,  // another machine has its place
};

// A node that is sure of itself tells of another machine with its id for so long after it was met.
inline constexpr Duration kHolderTold = std::chrono::seconds(30);

// Of two machines with the id of `member` the one that has its place alone is granted leases and
// gives orders: NODE_ID_CLASH when `fence` names another. OK when either machine is not known.
absl::Status CheckMachine(const v1::NodeIdentity& member, const v1::Fence& fence);

class IdentityGuard {
 public:
  // `last_machine`: NodeIdentity.machine of the last run of this state folder; empty: not known.
  IdentityGuard(std::string last_machine, IdentityGuardOptions options, MonotonicTime now);

  Standing standing() const { return standing_; }
  bool is_sure() const { return standing_ == Standing::kSure; }

  // As this node is now: id, incarnation, machine, names and addresses. To be called first, and
  // whenever it changes.
  void SetSelf(const v1::NodeIdentity& self);
  // The listed members (cores/member_list.h), with this node or without.
  void SetListed(const std::set<NodeId>& listed);
  // `by` answered a heartbeat of this node as it answers a member.
  void OnTaken(const NodeId& by);
  // `holder` has this node's id on another machine and its place: an agent that answered itself, or
  // as a member told that refused this node. True: this node is refused from now on.
  bool OnRefused(const v1::NodeIdentity& holder);
  // A sign of life with this node's id came from there: that machine stands for the node, or means
  // to. One that was refused sends none, so of two that are refused the one that ran here last
  // looks again.
  void OnOtherHeard(const v1::NodeIdentity& other);
  // Each 100 ms or so. True: nothing answers elsewhere, and this node is sure of itself.
  bool OnTick(MonotonicTime now);

  // Whether it refuses others that carry its id on another machine.
  bool KeepsPlace() const { return is_sure() && is_settled_; }

  // NODE_ID_CLASH while it looks or is refused; and of one that is sure, who else claims to be it.
  std::optional<v1::Reason> Problem() const;

 private:
  bool MayGoOn(MonotonicTime now) const;

  const IdentityGuardOptions options_;
  const std::string last_machine_;
  MonotonicTime started_;  // to look, as to be this node
  Standing standing_ = Standing::kSure;
  bool is_settled_ = false;
  bool is_elsewhere_ = false;  // the disk was last used on another machine
  Duration look_again_;
  v1::NodeIdentity self_;
  bool has_list_ = false;
  std::set<NodeId> others_;  // listed, without this node
  std::set<NodeId> taken_by_;
  std::optional<v1::NodeIdentity> holder_;
  MonotonicTime now_;        // of the last tick
  MonotonicTime holder_at_;  // when it was heard of last
};

}  // namespace macrame::agentd
