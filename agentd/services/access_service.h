#pragma once

// AccessService: keys of the HTTP API and limits of tenants, which the coordinator keeps in the
// desired state, and the audit log of this agent. Owner thread.

#include <string>
#include <string_view>

#include "agentd/services/coordinator_way.h"
#include "agentd/state/audit_log.h"
#include "agentd/state/state_replicator.h"
#include "macrame/v1/access.pb.h"
#include "transport/rpc_server.h"

namespace macrame::agentd {

// How the audit log tells of a caller: "local", "this agent" (a load that a request asked for, or
// what the gateway was told to do), "key" and its id for an access file's, or "node"
// and the first digits of its id.
std::string AuditName(const transport::Caller& caller);
// What it says of an order: what and to whom; nullopt: such orders have no line.
std::optional<AuditEntry> AuditedOrder(std::string_view method,
                                       const google::protobuf::MessageLite& request);
// What orders of management it has a line for, as an observer of a server (RpcServer). Others pass
// without a word.
transport::RpcServer::Observer AuditObserver(AuditLog& log);

class AccessService {
 public:
  struct Parts {
    CoordinatorWay::Parts way;
    StateReplicator& replicator;
    const AuditLog& audit;
  };
  explicit AccessService(Parts parts) : parts_(parts), way_(parts.way) {}

  // Of keys and tenants: on this machine's socket, and for members, which pass calls on to the
  // coordinator.
  void RegisterCluster(transport::RpcServer& server);
  // At the coordinator.
  void CreateKey(const transport::Caller& caller, const v1::CreateKeyRequest& request,
                 transport::RpcServer::Reply<v1::CreateKeyResponse> reply);
  // Of the audit log.
  void RegisterLocal(transport::RpcServer& server);

 private:
  template <typename Response>
  using Reply = transport::RpcServer::Reply<Response>;

  void RegisterTenants(transport::RpcServer& server);
  void SetTenantHere(const v1::SetTenantRequest& request, Reply<v1::SetTenantResponse> reply);
  void CreateHere(const v1::CreateKeyRequest& request, Reply<v1::CreateKeyResponse> reply);
  void RevokeHere(const std::string& name, Reply<v1::RevokeKeyResponse> reply);
  void RotateHere(const std::string& name, Reply<v1::RotateKeyResponse> reply);
  template <typename Response>
  void Write(const v1::ApiKey& key, const Response& response, const Reply<Response>& reply);
  // By its id, or a name that one key alone has that has not ended. KEY_NOT_FOUND.
  absl::StatusOr<v1::ApiKey> Find(const std::string& name) const;
  // Room for one more: the oldest that has ended goes. RESOURCE_EXHAUSTED when all are in use.
  absl::Status MakeRoom();

  Parts parts_;
  CoordinatorWay way_;
};

}  // namespace macrame::agentd
