#pragma once

// Whom a majority is counted of: the members of the cluster as its coordinators wrote them down.
//
// The list is one entry of the desired state, so it is on every member's disk and survives
// restarts: a node that starts again inside a partition knows how few of the others it sees. Only
// the coordinator writes it, one write at a time, each committed before the next.
//
// Consistency::kAvailable: it follows the live members. Who granted the coordinator its lease is
// listed at once, who was not live for `settle` is not listed any more; so one death after another
// leaves a cluster that goes on, and half of it at once does not.
// Consistency::kQuorum: it grows by one node at a time, which has been live for `settle`, and never
// shrinks but by Forget. Majorities of the list before and after a change have a node in common, so
// two can never be counted apart (Ongaro's thesis, 4.1). A coordinator first writes the list that
// it found under its own term.
//
// Contract: pure. Owner: the agent's owner thread. Bound: kListedMax.

#include <map>
#include <optional>
#include <set>
#include <string>
#include <string_view>

#include "absl/status/statusor.h"
#include "agentd/cores/election.h"
#include "agentd/cores/state_table.h"
#include "macrame/v1/agent.pb.h"
#include "proto/ids.h"
#include "proto/monotonic_time.h"

namespace macrame::agentd {

inline constexpr std::string_view kMembersKey = "meta/members";
inline constexpr size_t kListedMax = 64;
inline constexpr int kForgottenMax = 32;

// Empty: none was written yet.
std::set<NodeId> ListedMembers(const StateTable& table);
// Whom a person forgot and who did not come back.
std::set<NodeId> ForgottenMembers(const StateTable& table);

class MemberList {
 public:
  explicit MemberList(NodeId self, Consistency consistency,
                      Duration settle = std::chrono::milliseconds(3000));

  // From BecameCoordinator on.
  void BeginLeading(MonotonicTime now);
  // What the coordinator has to write now. `granted`: whose lease it holds, itself included;
  // `live`: alive or suspect. `committed`: nothing that it wrote to the list is on its way.
  // kQuorum: whether the list was proposed under this coordinator's own term.
  bool confirmed() const { return confirmed_; }
  std::optional<v1::MemberList> Due(const StateTable& table, const std::set<NodeId>& granted,
                                    const std::set<NodeId>& live, bool committed,
                                    MonotonicTime now);

 private:
  std::set<NodeId> Wanted(const std::set<NodeId>& listed, const std::set<NodeId>& granted,
                          MonotonicTime now) const;

  const NodeId self_;
  const Consistency consistency_;
  const Duration settle_;
  bool confirmed_ = false;  // kQuorum: the list was written under this term
  std::map<NodeId, MonotonicTime> live_since_, away_since_;
};

// The list without `node`. NOT_FOUND: it is neither listed nor known (`known`);
// FAILED_PRECONDITION: it is live; INVALID_ARGUMENT: it is the last one.
absl::StatusOr<v1::MemberList> WithoutMember(const StateTable& table, const std::set<NodeId>& live,
                                             bool known, const NodeId& node);

}  // namespace macrame::agentd
