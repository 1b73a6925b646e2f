#pragma once

// One node with its election, disk, replicated state and member list, and other nodes that a test
// plays. It leads as soon as time passes, as long as no other member lives.

#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "agentd/cores/election.h"
#include "agentd/cores/state_store.h"
#include "agentd/node/member_monitor.h"
#include "agentd/state/lease_client.h"
#include "agentd/state/member_writer.h"
#include "agentd/state/state_replicator.h"
#include "proto/check.h"
#include "proto/reasons.h"
#include "tests/support/fake_dispatcher.h"
#include "tests/unit/agentd/fake_peers.h"

namespace macrame::tests {

// A disk that the test fills up.
class MemoryStore final : public agentd::StateStore {
 public:
  explicit MemoryStore(NodeId node) : node_(std::move(node)) {}

  const NodeId& node_id() const override { return node_; }
  Incarnation incarnation() const override { return Incarnation(1); }
  const std::string& last_machine() const override { return machine_; }
  const std::string& loaded_revocations() const override { return revocations; }
  const std::optional<agentd::GrantRecord>& loaded_grant() const override { return grant; }
  const std::vector<v1::StateEntry>& loaded_entries() const override { return entries_; }
  const std::optional<v1::Reason>& failure() const override { return failure_; }

  absl::Status SaveMachine(const std::string& machine) override {
    machine_ = machine;
    return absl::OkStatus();
  }
  absl::Status SaveRevocations(const std::string& list) override {
    if (const absl::Status room = CheckRoom(); !room.ok()) return room;
    revocations = list;
    return absl::OkStatus();
  }
  absl::Status SaveGrant(const agentd::GrantRecord& record) override {
    if (const absl::Status room = CheckRoom(); !room.ok()) return room;
    grant = record;
    return absl::OkStatus();
  }
  absl::Status SaveChange(const agentd::StateChange& change) override {
    if (const absl::Status room = CheckRoom(); !room.ok()) return room;
    for (const v1::StateEntry& entry : change.put) saved[entry.key()] = entry;
    return absl::OkStatus();
  }

  bool is_full = false;
  std::string revocations;
  std::optional<agentd::GrantRecord> grant;
  std::map<std::string, v1::StateEntry> saved;

 private:
  absl::Status CheckRoom() {
    failure_.reset();
    if (!is_full) return absl::OkStatus();
    failure_ = MakeReason(reasons::kStateDiskFull, "the disk of the state folder is full");
    return ReasonStatus(absl::StatusCode::kResourceExhausted, *failure_);
  }

  const NodeId node_;
  std::string machine_;
  const std::vector<v1::StateEntry> entries_;
  std::optional<v1::Reason> failure_;
};

class LoneNode {
 public:
  LoneNode() { channels.UsePlain(); }

  // Time passes, with a tick each 50 ms as the agent has them.
  void Pass(Duration duration) {
    for (Duration passed{}; passed < duration; passed += std::chrono::milliseconds(50)) {
      dispatcher.AdvanceBy(std::chrono::milliseconds(50));
      leases.Tick();
      members.Tick();
      if (writes_members) member_writer.Tick();
      replicator.Tick();
      dispatcher.RunPosted();
    }
  }
  bool Leads() const { return election.Leading(dispatcher.Now()).has_value(); }
  // Another node is a member that lives, as heartbeats from it tell.
  void Meet(const NodeId& node) {
    members.HeardMember(IdentityOf(node), "10.0.0.1", true);
    NoteMembers();
  }
  void NoteMembers() { leases.OnMembersChanged(members.Live(), members.All()); }
  // `node` has this node's lease for two seconds; what was answered.
  absl::StatusOr<v1::LeaseResponse> GrantTo(const NodeId& node, uint64_t term) {
    v1::LeaseRequest request;
    *request.mutable_fence() = agentd::ToProto({Term(term), node});
    request.set_lease_ms(2000);
    absl::StatusOr<v1::LeaseResponse> answer = absl::UnknownError("not answered");
    leases.OnLeaseRequest(node, request, [&](absl::StatusOr<v1::LeaseResponse> response) {
      answer = std::move(response);
    });
    return answer;
  }
  // It is granted, and `node` obeyed.
  void Obey(const NodeId& node, uint64_t term) {
    const absl::StatusOr<v1::LeaseResponse> answer = GrantTo(node, term);
    MACRAME_CHECK(answer.ok() && answer->granted()) << "the lease is not free";
  }

  const NodeId self = IdOf('a');
  transport::FakeDispatcher dispatcher;
  FakePeers peers;
  agentd::PeerChannels channels{peers.Maker()};
  MemoryStore store{self};
  agentd::MemberMonitor members{dispatcher,
                                IdentityOf(self, "10.0.0.9"),
                                discovery::FailureLimits(),
                                {[](const auto&) {}, [](const NodeId&) {},
                                 [](const NodeId&) { return 0; }, [](const NodeId&) {}}};
  agentd::Election election{self, agentd::ElectionOptions(), std::nullopt, [] { return 0u; },
                            dispatcher.Now()};
  agentd::StateReplicator replicator{
      dispatcher,
      self,
      store,
      election,
      channels,
      {},
      {[this] {
         std::set<NodeId> electorate = members.Live();
         electorate.insert(self);
         return electorate;
       },
       [this] { return members.Live(); }, [this] { return members.All(); }, [] { return true; },
       [this] { ++state_changes; }, [](const v1::GangRecord&) {}}};
  // What the callbacks of the lease client were told, in order.
  std::vector<std::string> told;
  struct AskedInHeartbeat {
    NodeId node;
    v1::LeaseRequest request;
    agentd::LeaseClient::LeaseDone done;
  };
  std::vector<AskedInHeartbeat> asked;
  agentd::LeaseClient leases{
      dispatcher,
      election,
      store,
      replicator,
      channels,
      std::chrono::milliseconds(500),
      {[this](const FencePair& fence) {
         told.push_back("leads");
         replicator.BeginLeading(fence);
         member_writer.BeginLeading();
       },
       [this] {
         told.push_back("leads no more");
         replicator.StopLeading();
       },
       [this] { told.push_back("obeys"); },
       [this](const NodeId& node, bool reached) {
         told.push_back((reached ? "reached " : "missed ") + node.value().substr(0, 1));
       },
       [this](const NodeId& node, const v1::LeaseRequest& request,
              agentd::LeaseClient::LeaseDone done) {
         asked.push_back({node, request, std::move(done)});
       }}};
  agentd::MemberWriter member_writer{{dispatcher, election, leases, replicator, members, self},
                                     agentd::Consistency::kAvailable};
  bool writes_members = false;
  int state_changes = 0;
};

}  // namespace macrame::tests
