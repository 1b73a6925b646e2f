#pragma once

// The RPC edge of traces: clusterctl asks any agent, which asks the agents of all nodes that hold
// ranks of the model, at the same time. Owner thread.

#include <string>

#include "agentd/node/peer_channels.h"
#include "agentd/state/state_replicator.h"
#include "macrame/v1/cluster.pb.h"
#include "macrame/v1/rank.pb.h"
#include "runtime/supervisor/rank_supervisor.h"
#include "transport/rpc_server.h"

namespace macrame::agentd {

inline constexpr uint32_t kTraceMsMax = 60'000;

class TraceService {
 public:
  struct Parts {
    PeerChannels& channels;
    const StateReplicator& replicator;
    runtime::RankSupervisor& supervisor;
    NodeId self;
  };

  explicit TraceService(Parts parts) : parts_(std::move(parts)) {}

  // Between agents; the caller's certificate must be a member's.
  void RegisterAgent(transport::RpcServer& server);
  // For clusterctl.
  void RegisterCluster(transport::RpcServer& server);

 private:
  template <typename Response>
  using Reply = transport::RpcServer::Reply<Response>;

  void Trace(const v1::TraceRankRequest& request, Reply<v1::TraceModelResponse> reply);

  Parts parts_;
};

}  // namespace macrame::agentd
