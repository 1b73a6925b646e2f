#pragma once

// The RPC edge of links: what other agents ask of this node (meters, probes, reachability) and what
// clusterctl asks of the cluster (links, doctor, host files, addresses, verified transports). Owner
// thread.

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "agentd/gangs/gang_controller.h"
#include "agentd/links/link_table.h"
#include "agentd/node/node_views.h"
#include "agentd/node/peer_channels.h"
#include "agentd/services/gathering.h"
#include "runtime/supervisor/rank_supervisor.h"
#include "transport/rpc_server.h"

namespace macrame::agentd {

// Probing and measuring all pairs again, on all nodes.
inline constexpr Duration kRecheckLimit = std::chrono::seconds(25);
inline constexpr Duration kVerifyTimeout = std::chrono::seconds(90);

class LinkService {
 public:
  struct Parts {
    transport::Dispatcher& dispatcher;
    LinkTable& links;
    const NodeViews& views;
    const Election& election;
    const StateReplicator& replicator;
    const MemberMonitor& members;
    PeerChannels& channels;
    GangController& gang_controller;
    runtime::RankSupervisor& supervisor;
    NodeId self;
    // The cluster's, as `status` lists them.
    std::function<std::vector<v1::Reason>()> problems;
  };

  explicit LinkService(Parts parts) : parts_(std::move(parts)) {}

  // Between agents; the caller's certificate must be a member's.
  void RegisterAgent(transport::RpcServer& server);
  // For clusterctl.
  void RegisterCluster(transport::RpcServer& server);

 private:
  template <typename Response>
  using Reply = transport::RpcServer::Reply<Response>;

  // Of this node to all others.
  OwnAnswer<v1::MeasureLinkResponse> OwnMeasurements();
  void Measure(const v1::MeasureLinkRequest& request, Reply<v1::MeasureLinkResponse> reply);
  void Diagnose(const v1::DiagnoseRequest& request, Reply<v1::Diagnosis> reply);
  void Recheck(const transport::Caller& caller, const v1::RecheckLinksRequest& request,
               Reply<v1::RecheckLinksResponse> reply);
  void RecheckNodes(v1::RecheckLinksResponse response, Reply<v1::RecheckLinksResponse> reply);
  void Bench(const v1::BenchLinksRequest& request, transport::ServerStream stream);
  void Export(const v1::ExportHostfileRequest& request, Reply<v1::ExportHostfileResponse> reply);
  void Verify(const transport::Caller& caller, const v1::VerifyTransportRequest& request,
              Reply<v1::VerifyTransportResponse> reply);
  void VerifyHere(const v1::VerifyTransportRequest& request,
                  Reply<v1::VerifyTransportResponse> reply);
  absl::StatusOr<std::vector<std::string>> NodesOf(
      const google::protobuf::RepeatedPtrField<std::string>& asked) const;
  v1::LinksView View();

  Parts parts_;
};

}  // namespace macrame::agentd
