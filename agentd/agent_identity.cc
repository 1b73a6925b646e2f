// Whether this machine is the node that its disk says, and who can be reached from it.

#include <spdlog/spdlog.h>

#include "absl/strings/str_cat.h"
#include "agentd/agent_impl.h"
#include "agentd/base/log_text.h"
#include "agentd/base/rpc_methods.h"
#include "agentd/cores/member_list.h"
#include "agentd/node/lost_nodes.h"
#include "proto/reasons.h"

namespace macrame::agentd {
namespace {

// To ask whoever sends beacons under this node's id.
constexpr Duration kOwnIdTimeout = std::chrono::seconds(1);
// Without a coordinator for so long, members that can't be called are not waited for.
constexpr Duration kLeaderlessLimit = std::chrono::seconds(10);

}  // namespace

void Agent::Impl::TellSelf() {
  parts_.members.SetSelf(parts_.own.identity());
  parts_.guard.SetSelf(parts_.own.identity());
}

void Agent::Impl::StartIdentity() {
  const std::string& machine = parts_.own.identity().machine();
  parts_.guard.SetListed(ListedMembers(parts_.replicator.table()));
  if (!parts_.guard.is_sure()) {
    spdlog::warn("{}", parts_.guard.Problem()->message());
  } else if (!machine.empty() && machine != parts_.store->last_machine()) {
    // Should it not be written, the next start writes it.
    parts_.store->SaveMachine(machine).IgnoreError();
  }
}

void Agent::Impl::WatchIdentity() {
  if (!parts_.guard.is_sure()) {
    parts_.guard.SetListed(ListedMembers(parts_.replicator.table()));
  }
  if (!parts_.guard.OnTick(dispatcher_.Now())) return;
  const bool is_moved = parts_.store->last_machine() != parts_.own.identity().machine();
  spdlog::warn("no agent on another machine answers as node {}: {} {}, where the node goes on",
               ShortId(parts_.self), is_moved ? "its disk was moved to" : "it is",
               parts_.own.identity().hostname());
  const absl::Status saved = parts_.store->SaveMachine(parts_.own.identity().machine());
  if (!saved.ok()) spdlog::error("the machine of this node is not written: {}", LogText(saved));
  parts_.election.SkipTerms();
  if (departure_.has_value()) parts_.leases.Resign();
  MembersChanged();
  parts_.heartbeats.SendToAll();
  parts_.changes.Note(Change::kIdentity);
}

// A beacon is no proof, but it says whom to ask.
void Agent::Impl::OnOwnIdBeacon(const v1::NodeIdentity& other, bool is_sign_of_life) {
  const std::string ip = other.addresses().empty() ? "" : other.addresses(0).ip();
  if (parts_.guard.is_sure()) parts_.members.HeardOwnIdElsewhere(other.hostname(), ip);
  if (is_sign_of_life) parts_.guard.OnOtherHeard(other);
  const MonotonicTime now = dispatcher_.Now();
  if (parts_.guard.standing() == Standing::kRefused || now - own_id_asked_ < kOwnIdTimeout ||
      !discovery::AreTwoAgents(other, parts_.own.identity())) {
    return;
  }
  own_id_asked_ = now;
  // Whoever takes this node for the copy says so in an answer.
  parts_.heartbeats.KeepFresh();
  if (!parts_.channels.SetAddresses(parts_.self,
                                    {other.addresses().begin(), other.addresses().end()},
                                    other.control_port())) {
    return;
  }
  parts_.channels.For(parts_.self)
      ->Call(kHeartbeat, MakeHeartbeat(), kOwnIdTimeout,
             [this](absl::StatusOr<v1::HeartbeatResponse> answer) {
               if (answer.ok() && answer->has_refused()) OnRefused(*answer);
             });
}

void Agent::Impl::OnRefused(const v1::HeartbeatResponse& answer) {
  const bool was_sure = parts_.guard.is_sure();
  for (const v1::NodeIdentity& holder : answer.own().known()) {
    if (!parts_.guard.OnRefused(holder)) continue;
    const v1::Reason why = *parts_.guard.Problem();
    spdlog::critical("{}; {}", why.message(), why.remedy());
    if (was_sure) {
      parts_.leases.Resign();
      parts_.supervisor->StopRanks("", ~uint64_t{0}, why.message());
    }
    parts_.changes.Note(Change::kIdentity);
  }
}

void Agent::Impl::WatchDials() {
  const MonotonicTime now = dispatcher_.Now();
  if (parts_.election.Coordinator(now).has_value()) {
    leaderless_since_.reset();
  } else if (!leaderless_since_.has_value()) {
    leaderless_since_ = now;
  }
  std::set<NodeId> unasked = parts_.members.Undialled();
  if (!leaderless_since_.has_value() || now - *leaderless_since_ < kLeaderlessLimit) {
    std::erase_if(unasked, [this](const NodeId& node) { return !parts_.unasked.contains(node); });
  }
  if (unasked == parts_.unasked) return;
  parts_.unasked = std::move(unasked);
  MembersChanged();
}

void Agent::Impl::AddOneWay(std::vector<v1::Reason>& problems) const {
  const std::vector<NodeFacts> all = parts_.views.All();
  for (const NodeFacts& from : all) {
    std::set<NodeId> undialled;
    if (from.is_self) {
      undialled = parts_.members.Undialled();
    } else if (const NodeReport* report = parts_.reports.Find(from.id);
               report != nullptr && from.state == v1::NODE_STATE_ALIVE) {
      undialled = report->undialled;
    }
    for (const NodeFacts& to : all) {
      if (undialled.contains(to.id)) problems.push_back(OneWayReachable(from, to));
    }
  }
}

}  // namespace macrame::agentd
