#pragma once

// The RPC edge of `clusterctl model profile`. The coordinator writes what changes into the desired
// state (cores/model_profile.h); routers put it into requests, gateways know its aliases, and the
// coordinator unloads by it. Owner thread.

#include <string>
#include <vector>

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
  // Of what is loaded, or loaded again at a start, and of what live nodes have the files of.
  std::vector<std::string> ModelNames() const;
  // MODEL_NOT_FOUND: it is none of these, and has no profile. BAD_REQUEST: an alias is one of them.
  absl::Status CheckNames(const v1::ModelProfile& set) const;

  CoordinatorWay way_;
  StateReplicator& replicator_;
  const StatusReporter& reporter_;
};

}  // namespace macrame::agentd
