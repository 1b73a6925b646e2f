#pragma once

// The RPC edge of `clusterctl model profile`. The coordinator writes what changes into the desired
// state (cores/model_profile.h); routers put it into requests, gateways know its aliases, and the
// coordinator unloads by it. Owner thread.

#include "agentd/cores/model_profile.h"
#include "agentd/services/coordinator_way.h"
#include "agentd/services/status_reporter.h"
#include "agentd/state/state_replicator.h"
#include "macrame/v1/operation.pb.h"
#include "transport/rpc_server.h"

namespace macrame::agentd {

class ProfileService {
 public:
  ProfileService(CoordinatorWay::Parts way, StateReplicator& replicator,
                 const StatusReporter& reporter)
      : way_(way), replicator_(replicator), reporter_(reporter) {}

  // For clusterctl, and for agents that pass its orders on.
  void Register(transport::RpcServer& server);

 private:
  using Reply = transport::RpcServer::Reply<v1::ChangeProfileResponse>;

  void Change(const v1::ChangeProfileRequest& request, Reply reply);
  // MODEL_NOT_FOUND: it is not loaded, no live node has its files, and it has no profile.
  absl::Status CheckKnown(const std::string& model) const;

  CoordinatorWay way_;
  StateReplicator& replicator_;
  const StatusReporter& reporter_;
};

}  // namespace macrame::agentd
