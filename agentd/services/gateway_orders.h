#pragma once

// Carries out what the dashboard's page orders: over this agent's own socket, the way that
// clusterctl's orders take, so that both meet the same checks and the same coordinator. The audit
// log is told who gave the order; that it came over the socket stands there as well. Owner thread.

#include <functional>

#include "agentd/gateway/http/cluster_orders.h"
#include "agentd/node/node_views.h"
#include "agentd/node/own_socket.h"
#include "agentd/state/audit_log.h"

namespace macrame::agentd {

// Loads that are followed to their end, for the audit log; the page is answered before.
inline constexpr size_t kFollowedLoadsMax = 16;

class GatewayOrders {
 public:
  struct Parts {
    AuditLog& audit;
    OwnSocket& own_socket;
    const NodeViews& views;
  };
  using Done = std::function<void(OrderAnswer)>;

  explicit GatewayOrders(Parts parts);

  void Give(const Orderer& who, const ClusterOrder& order, Done done);

 private:
  using OnEnded = std::function<void(const absl::Status&)>;

  void Load(const v1::LoadModelRequest& request, OnEnded ended, Done done);
  // Writes the order's line when it has ended; nothing for what is not audited.
  OnEnded Audit(const Orderer& who, std::string_view method,
                const google::protobuf::MessageLite& request);
  template <typename Rpc, typename Request>
  void Call(const Rpc& rpc, const Orderer& who, const Request& request, Done done);

  Parts parts_;
  size_t loads_ = 0;
};

}  // namespace macrame::agentd
