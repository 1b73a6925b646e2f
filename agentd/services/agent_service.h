#pragma once

// AgentService: what other agents may ask of this one, over mutual TLS. Owner thread.

#include <functional>

#include "agentd/cores/identity_guard.h"
#include "agentd/links/link_table.h"
#include "agentd/node/member_monitor.h"
#include "agentd/node/model_library.h"
#include "agentd/node/own_node.h"
#include "agentd/node/rank_orders.h"
#include "agentd/node/report_table.h"
#include "agentd/services/generate_router.h"
#include "agentd/state/lease_client.h"
#include "agentd/state/state_replicator.h"
#include "proto/rpc_method.h"
#include "transport/rpc_server.h"

namespace macrame::agentd {

class AgentService {
 public:
  struct Parts {
    transport::Dispatcher& dispatcher;
    OwnNode& own;
    const IdentityGuard& guard;
    MemberMonitor& members;
    ReportTable& reports;
    LeaseClient& leases;
    StateReplicator& replicator;
    RankOrders& orders;
    ModelLibrary& library;
    GenerateRouter& router;
    LinkTable& links;
    // This node's own heartbeat, without inventory and known members.
    std::function<v1::HeartbeatRequest()> make_heartbeat;
    // After each heartbeat: `changed` when ranks or inventory did.
    std::function<void(const NodeId& from, bool changed)> on_heartbeat;
  };

  explicit AgentService(Parts parts) : parts_(std::move(parts)) {}
  void Register(transport::RpcServer& server);

 private:
  void RegisterMembership(transport::RpcServer& server);
  void RegisterOrders(transport::RpcServer& server);
  template <typename Request, typename Response, typename Obey>
  void HandleOrder(transport::RpcServer& server, const Method<Request, Response>& method,
                   Obey obey);
  absl::StatusOr<v1::HeartbeatResponse> OnHeartbeat(const transport::Caller& caller,
                                                    v1::HeartbeatRequest request);
  // Of another machine that has the caller's place, or of one that carries this node's own id.
  v1::HeartbeatResponse AnswerRival(const v1::NodeIdentity& caller) const;
  absl::StatusOr<v1::HeartbeatResponse> AnswerOwnId(const transport::Caller& caller,
                                                    const v1::NodeIdentity& identity);
  // Of an order or a request for a lease: the caller is the machine that has the member's place.
  absl::Status CheckMachine(const transport::Caller& caller, const v1::Fence& fence) const;
  absl::Status CheckOrder(const transport::Caller& caller, const v1::Fence& fence) const;
  // NODE_ID_CLASH while this node can't be sure that it is the one that its disk says.
  absl::Status CheckSure() const;

  Parts parts_;
};

// Passes an answer on to whoever asked for it over the wire, and stops it when they go away. Owner
// thread; chunks may come on any other.
using StartGenerateCall = std::function<transport::CallHandle(InferenceBackend::ChunkCallback,
                                                              InferenceBackend::DoneCallback)>;
void ServeGenerate(transport::Dispatcher& dispatcher, transport::ServerStream stream,
                   const StartGenerateCall& start);

}  // namespace macrame::agentd
