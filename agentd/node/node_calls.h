#pragma once

// The coordinator's calls to nodes, itself among them: the same order takes the wire or goes
// straight to this node's own RankOrders. Owner thread; every call ends by its timeout.

#include <functional>

#include "agentd/node/model_library.h"
#include "agentd/node/peer_channels.h"
#include "agentd/node/rank_orders.h"
#include "macrame/v1/agent.pb.h"

namespace macrame::agentd {

class NodeCalls {
 public:
  template <typename Response>
  using Done = std::function<void(absl::StatusOr<Response>)>;

  NodeCalls(NodeId self, PeerChannels& channels, RankOrders& orders, ModelLibrary& library)
      : self_(std::move(self)), channels_(channels), orders_(orders), library_(library) {}

  void Reserve(const NodeId& node, const v1::ReserveRequest& request,
               Done<v1::ReserveResponse> done);
  void Launch(const NodeId& node, const v1::LaunchRequest& request, Done<v1::LaunchResponse> done);
  void StopRanks(const NodeId& node, const v1::StopRanksRequest& request,
                 Done<v1::StopRanksResponse> done);
  void DescribeModel(const NodeId& node, const std::string& name_or_path,
                     Done<v1::DescribeModelResponse> done);

 private:
  template <typename Response, typename Request>
  void Remote(const NodeId& node, const Method<Request, Response>& method,
              const std::type_identity_t<Request>& request, Duration timeout,
              std::type_identity_t<Done<Response>> done);

  const NodeId self_;
  PeerChannels& channels_;
  RankOrders& orders_;
  ModelLibrary& library_;
};

}  // namespace macrame::agentd
