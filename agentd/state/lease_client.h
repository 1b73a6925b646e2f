#pragma once

// Carries out what Election decides: grants to disk, requests to peers, answers to callers. Owner
// thread.
//
// A lease is asked for in the heartbeat to its granter: one call renews it and carries both sides'
// load and ranks. What changes nothing (a pre-vote) or is given back goes by itself, and so does
// everything to an agent whose answers to heartbeats have no lease in them.

#include <functional>
#include <optional>
#include <set>

#include "agentd/cores/election.h"
#include "agentd/cores/state_store.h"
#include "agentd/node/peer_channels.h"
#include "agentd/state/state_replicator.h"
#include "macrame/v1/agent.pb.h"
#include "transport/dispatcher.h"
#include "transport/rpc_server.h"

namespace macrame::agentd {

// A coordinator that could write nothing for so long resigns.
inline constexpr Duration kDiskTroubleLimit = std::chrono::seconds(1);

class LeaseClient {
 public:
  using LeaseReply = transport::RpcServer::Reply<v1::LeaseResponse>;
  using LeaseDone = std::function<void(absl::StatusOr<v1::LeaseResponse>)>;
  struct Callbacks {
    std::function<void(const FencePair&)> on_became_coordinator;
    std::function<void()> on_lost_coordination;
    std::function<void()> on_obeys_changed;
    // A node was asked for its lease: it was reached, or not.
    std::function<void(const NodeId&, bool reached)> on_call;
    // Asks in a heartbeat (HeartbeatSender::SendLease).
    std::function<void(const NodeId&, const v1::LeaseRequest&, LeaseDone)> send_lease;
  };

  LeaseClient(transport::Dispatcher& dispatcher, Election& election, StateStore& store,
              StateReplicator& replicator, PeerChannels& channels, Duration timeout,
              Callbacks callbacks);

  void Tick();
  // When Tick has something to do at the soonest.
  MonotonicTime NextDue() const { return election_.NextDue(); }
  void OnMembersChanged(const std::set<NodeId>& live, const std::set<NodeId>& all);
  void OnMemberList(const std::set<NodeId>& listed);
  // As Election has it.
  void OnGone(const NodeId& node);
  void OnLeaseRequest(const NodeId& from, const v1::LeaseRequest& request, LeaseReply reply);
  void Resign();

 private:
  void Carry(ElectionEffects effects, const LeaseReply& reply = nullptr);
  // Writes again what the disk refused, and resigns where that lasts.
  void WatchDisk();
  // False: the rest of the effects must not be carried out.
  bool Persist(const PersistGrant& effect, const LeaseReply& reply);
  void Answer(const AnswerLease& effect, const LeaseReply& reply);
  void Send(const SendLeaseRequest& effect);
  void SendApart(const SendLeaseRequest& effect);
  void Take(const SendLeaseRequest& effect, const absl::StatusOr<v1::LeaseResponse>& response);

  transport::Dispatcher& dispatcher_;
  Election& election_;
  StateStore& store_;
  StateReplicator& replicator_;
  PeerChannels& channels_;
  const Duration timeout_;
  Callbacks callbacks_;
  std::optional<MonotonicTime> failing_since_;
  MonotonicTime tried_at_;
  bool unable_ = false;
};

}  // namespace macrame::agentd
