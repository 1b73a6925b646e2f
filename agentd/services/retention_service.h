#pragma once

// What is kept of tenants' answers, at this node and, for `clusterctl tenant erase`, at all others:
// clusterctl asks any agent, which has every live member's gateway drop them at the same time.
// Owner thread.

#include <memory>
#include <string>

#include "agentd/gateway/access/gateway_access.h"
#include "agentd/node/member_monitor.h"
#include "agentd/node/own_node.h"
#include "agentd/node/peer_channels.h"
#include "macrame/v1/access.pb.h"
#include "proto/monotonic_time.h"
#include "transport/dispatcher.h"
#include "transport/rpc_server.h"

namespace macrame::agentd {

class RetentionService {
 public:
  struct Parts {
    transport::Dispatcher& dispatcher;
    const OwnNode& own;
    PeerChannels& channels;
    const MemberMonitor& members;
    std::shared_ptr<GatewayAccess> access;
  };
  explicit RetentionService(Parts parts) : parts_(std::move(parts)) {}

  // Between agents; the caller's certificate must be a member's.
  void RegisterAgent(transport::RpcServer& server);
  // For clusterctl.
  void RegisterCluster(transport::RpcServer& server);
  // Every second what is too old goes, whether somebody asks for it or not.
  void Tick();

 private:
  v1::DropAnswersResponse DropHere(const std::string& tenant);
  void Erase(const v1::EraseTenantRequest& request,
             transport::RpcServer::Reply<v1::EraseTenantResponse> reply);

  Parts parts_;
  MonotonicTime purge_due_{};
};

}  // namespace macrame::agentd
