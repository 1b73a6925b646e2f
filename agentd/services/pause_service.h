#pragma once

// The RPC edge of `clusterctl cluster drain|stop|start`. The coordinator writes the order into the
// desired state (cores/cluster_pause.h); routers refuse new requests by what they find there, and
// the ranks of models that are not wanted any more end as after an unload. Owner thread.

#include <functional>
#include <utility>

#include "agentd/cores/cluster_pause.h"
#include "agentd/services/coordinator_way.h"
#include "agentd/state/state_replicator.h"
#include "macrame/v1/operation.pb.h"
#include "transport/rpc_server.h"

namespace macrame::agentd {

class PauseService {
 public:
  PauseService(CoordinatorWay::Parts way, StateReplicator& replicator)
      : dispatcher_(way.dispatcher), way_(way), replicator_(replicator) {}

  // For clusterctl, and for agents that pass its orders on.
  void Register(transport::RpcServer& server);

 private:
  using Reply = transport::RpcServer::Reply<v1::PauseClusterResponse>;
  using Written = std::function<void(const absl::Status&)>;

  void Pause(v1::PauseOrder order, Reply reply);
  // All steps at once, so that no other order comes between; `done` when each is acknowledged or
  // one has failed.
  void CarryOut(const std::vector<PauseChange::Step>& steps, Written done);

  transport::Dispatcher& dispatcher_;
  CoordinatorWay way_;
  StateReplicator& replicator_;
};

}  // namespace macrame::agentd
