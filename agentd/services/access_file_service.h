#pragma once

// Access files for clusterctl on machines without an agent (transport/access_file.h), made on a
// keeper, and whether the key of one may do what its clusterctl asks. Owner thread.

#include <functional>
#include <string>
#include <utility>

#include "agentd/node/member_monitor.h"
#include "agentd/node/node_trust.h"
#include "agentd/node/own_node.h"
#include "agentd/state/state_replicator.h"
#include "macrame/v1/access.pb.h"
#include "transport/rpc_server.h"

namespace macrame::agentd {

class AccessFileService {
 public:
  struct Parts {
    transport::Dispatcher& dispatcher;
    const OwnNode& own;
    const StateReplicator& replicator;
    const NodeTrust& trust;
    const MemberMonitor& members;
    // Makes the key, at the coordinator (AccessService::CreateKey).
    std::function<void(const transport::Caller&, const v1::CreateKeyRequest&,
                       transport::RpcServer::Reply<v1::CreateKeyResponse>)>
        create_key;
  };
  explicit AccessFileService(Parts parts) : parts_(std::move(parts)) {}

  // On this machine's socket.
  void RegisterLocal(transport::RpcServer& server);
  // For RpcServer::SetPersonCheck.
  absl::Status CheckPerson(const std::string& key_id, Remote needed) const;

 private:
  using Reply = transport::RpcServer::Reply<v1::CreateAccessFileResponse>;

  void Create(const transport::Caller& caller, const v1::CreateAccessFileRequest& request,
              Reply reply);
  absl::StatusOr<v1::AccessFile> MakeFile(const transport::ClusterSecret& secret,
                                          const v1::ApiKey& key) const;

  Parts parts_;
};

}  // namespace macrame::agentd
