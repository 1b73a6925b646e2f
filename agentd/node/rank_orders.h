#pragma once

// The coordinator's orders about ranks, as this node obeys them: fences are checked, files and
// memory admitted, ranks started and ended through the supervisor. Owner thread.

#include <functional>
#include <string>

#include "agentd/cores/election.h"
#include "agentd/node/model_library.h"
#include "macrame/v1/agent.pb.h"
#include "runtime/supervisor/rank_supervisor.h"
#include "transport/rpc_server.h"

namespace macrame::agentd {

class RankOrders {
 public:
  template <typename Response>
  using Reply = transport::RpcServer::Reply<Response>;

  struct Callbacks {
    std::function<std::string()> local_ip;  // that ranks listen on
    std::function<runtime::NodeMemory()> memory;
    std::function<bool()> draining;  // this node is about to stop and takes no ranks
  };

  RankOrders(Election& election, ModelLibrary& library, runtime::RankSupervisor& supervisor,
             Callbacks callbacks);

  // `from`: who gives the order, by its certificate; this node itself when it is coordinator.
  void Reserve(const NodeId& from, const v1::ReserveRequest& request,
               Reply<v1::ReserveResponse> reply);
  void Launch(const NodeId& from, const v1::LaunchRequest& request,
              Reply<v1::LaunchResponse> reply);
  void StopRanks(const NodeId& from, const v1::StopRanksRequest& request,
                 Reply<v1::StopRanksResponse> reply);

 private:
  // The model's files were found here; now the draft model's.
  void ReserveWithDraft(const NodeId& from, const v1::ReserveRequest& request,
                        Reply<v1::ReserveResponse> reply);
  absl::Status CheckOrder(const NodeId& from, const v1::Fence& fence) const;
  // That orders obeyed may add a rank here.
  absl::Status CheckTaking(const NodeId& from, const v1::Fence& fence) const;

  Election& election_;
  ModelLibrary& library_;
  runtime::RankSupervisor& supervisor_;
  Callbacks callbacks_;
};

}  // namespace macrame::agentd
