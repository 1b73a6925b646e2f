#include "agentd/services/link_service.h"

#include <algorithm>
#include <set>

#include "absl/strings/str_cat.h"
#include "agentd/base/rpc_methods.h"
#include "agentd/cores/health.h"
#include "agentd/node/lost_nodes.h"
#include "agentd/services/coordinator_way.h"
#include "proto/backends.h"
#include "proto/reasons.h"
#include "transport/links/diagnosis.h"
#include "transport/links/mlx_settings.h"
#include "transport/links/net_plan.h"

namespace macrame::agentd {
namespace {

using transport::Caller;
using transport::RpcServer;
using transport::ServerStream;

constexpr Duration kProbeTimeout = std::chrono::seconds(20);
constexpr Duration kMeasureTimeout = std::chrono::seconds(30);

}  // namespace

void LinkService::RegisterAgent(RpcServer& server) {
  server.HandleUnary(kOpenMeter, [this](const Caller&, v1::OpenMeterRequest request,
                                        Reply<v1::OpenMeterResponse> reply) {
    const auto offer = parts_.links.measurer().Open(request.ip());
    if (!offer.ok()) return reply(offer.status());
    v1::OpenMeterResponse response;
    response.set_port(static_cast<uint32_t>(offer->port));
    response.set_token(offer->token);
    response.set_life_ms(static_cast<uint32_t>(transport::kMeterLife.count()));
    reply(std::move(response));
  });
  server.HandleUnary(kProbeLinks, [this](const Caller&, v1::ProbeLinksRequest,
                                         Reply<v1::ProbeLinksResponse> reply) {
    parts_.links.ProbeNow([this, reply] {
      v1::ProbeLinksResponse response;
      *response.mutable_links() = parts_.links.own();
      reply(std::move(response));
    });
  });
  server.HandleUnary(kMeasureLink, [this](const Caller&, v1::MeasureLinkRequest request,
                                          Reply<v1::MeasureLinkResponse> reply) {
    Measure(request, std::move(reply));
  });
  server.HandleUnary(kVerifyGroup, [this](const Caller&, v1::VerifyTransportRequest request,
                                          Reply<v1::VerifyTransportResponse> reply) {
    VerifyHere(request, std::move(reply));
  });
}

void LinkService::RegisterCluster(RpcServer& server) {
  server.HandleUnary(kGetLinks, [this](const Caller&, v1::GetLinksRequest,
                                       Reply<v1::LinksView> reply) { reply(View()); });
  server.HandleUnary(
      kDiagnose, [this](const Caller&, v1::DiagnoseRequest request, Reply<v1::Diagnosis> reply) {
        Diagnose(request, std::move(reply));
      });
  server.HandleUnary(kRecheckLinks, [this](const Caller& caller, v1::RecheckLinksRequest request,
                                           Reply<v1::RecheckLinksResponse> reply) {
    Recheck(caller, request, std::move(reply));
  });
  server.HandleStream(kBenchLinks,
                      [this](const Caller&, v1::BenchLinksRequest request, ServerStream stream) {
                        Bench(request, std::move(stream));
                      });
  server.HandleUnary(kExportHostfile, [this](const Caller&, v1::ExportHostfileRequest request,
                                             Reply<v1::ExportHostfileResponse> reply) {
    Export(request, std::move(reply));
  });
  server.HandleUnary(kVerifyTransport,
                     [this](const Caller& caller, v1::VerifyTransportRequest request,
                            Reply<v1::VerifyTransportResponse> reply) {
                       Verify(caller, request, std::move(reply));
                     });
  server.HandleUnary(kPlanNet,
                     [this](const Caller&, v1::PlanNetRequest request, Reply<v1::NetPlan> reply) {
                       reply(transport::PlanAddresses(parts_.links.Snapshot(), parts_.links.links(),
                                                      request.block(), parts_.links.Absent()));
                     });
}

v1::LinksView LinkService::View() {
  v1::LinksView view = parts_.links.View();
  for (const NodeFacts& facts : parts_.views.All()) {
    v1::NodeIdentity& identity = *view.add_identities();
    identity = facts.identity;
    identity.set_hostname(facts.display_name);
  }
  return view;
}

absl::StatusOr<std::vector<std::string>> LinkService::NodesOf(
    const google::protobuf::RepeatedPtrField<std::string>& asked) const {
  std::vector<std::string> ids;
  const v1::LinkSnapshot snapshot = parts_.links.Snapshot();
  for (const v1::NodeLinks& node : snapshot.nodes()) {
    if (asked.empty()) ids.push_back(node.node_id());
  }
  for (const std::string& id : asked) {
    const bool known = std::any_of(snapshot.nodes().begin(), snapshot.nodes().end(),
                                   [&](const v1::NodeLinks& node) { return node.node_id() == id; });
    if (!known) {
      return ReasonStatus(absl::StatusCode::kNotFound, reasons::kNodeNotFound,
                          absl::StrCat("no live node with id ", id.substr(0, 32)),
                          id.substr(0, 32));
    }
    ids.push_back(id);
  }
  std::sort(ids.begin(), ids.end());
  ids.erase(std::unique(ids.begin(), ids.end()), ids.end());
  return ids;
}

void LinkService::Measure(const v1::MeasureLinkRequest& request,
                          Reply<v1::MeasureLinkResponse> reply) {
  parts_.links.MeasureNow(request.to_node_id(), kRecheckLimit, [this, request, reply] {
    v1::MeasureLinkResponse response;
    for (const v1::LinkMeasurement& measured : parts_.links.own().measurements()) {
      if (request.to_node_id().empty() || measured.to_node_id() == request.to_node_id()) {
        *response.add_measurements() = measured;
      }
    }
    reply(std::move(response));
  });
}

void LinkService::Diagnose(const v1::DiagnoseRequest& request, Reply<v1::Diagnosis> reply) {
  const auto ids = NodesOf(request.node_ids());
  if (!ids.ok()) return reply(ids.status());
  std::vector<v1::Reason> failures;
  for (const v1::DeploymentStatus& status : parts_.gang_controller.Statuses()) {
    for (auto it = status.fallbacks().rbegin(); it != status.fallbacks().rend(); ++it) {
      failures.push_back(*it);
    }
    if (status.state() != v1::DEPLOYMENT_STATE_READY && !status.failure().code().empty()) {
      failures.push_back(status.failure());
    }
  }
  for (v1::Reason& crash : parts_.links.CrashReasons()) failures.push_back(std::move(crash));
  v1::Diagnosis diagnosis =
      transport::Diagnose(parts_.links.Snapshot(), parts_.links.links(), *ids, failures);
  const std::set<std::string> asked(request.node_ids().begin(), request.node_ids().end());
  std::vector<v1::Reason> problems = parts_.problems();
  std::erase_if(problems, [](const v1::Reason& problem) {  // AddLostNodes has more to say of them
    return problem.code() == reasons::kNodeDead || problem.code() == reasons::kNodeSuspect;
  });
  AddProblems(problems, asked, &diagnosis);
  AddLostNodes(parts_.views.All(), asked, &diagnosis);
  reply(std::move(diagnosis));
}

void LinkService::Recheck(const Caller& caller, const v1::RecheckLinksRequest& request,
                          Reply<v1::RecheckLinksResponse> reply) {
  const auto ids = NodesOf(request.node_ids());
  if (!ids.ok()) return reply(ids.status());
  const std::optional<FencePair> coordinator = parts_.election.Coordinator(parts_.dispatcher.Now());
  if (parts_.election.Leading(parts_.dispatcher.Now()).has_value()) {
    v1::RecheckLinksResponse response;
    for (v1::TransportRefusal& refusal :
         parts_.links.ForgetRefusals({request.node_ids().begin(), request.node_ids().end()})) {
      *response.add_forgotten() = std::move(refusal);
    }
    return RecheckNodes(std::move(response), std::move(reply));
  }
  transport::PeerChannel* channel = caller.IsPerson() && coordinator.has_value()
                                        ? parts_.channels.For(coordinator->coordinator)
                                        : nullptr;
  if (channel == nullptr) {
    return reply(CoordinatorWay::NoCoordinator());
  }
  channel->Call(
      kRecheckLinks, request, kRecheckLimit + kProbeTimeout * 2,
      [reply, node = coordinator->coordinator](absl::StatusOr<v1::RecheckLinksResponse> response) {
        if (response.ok()) return reply(std::move(response));
        reply(CoordinatorWay::Told(node, response.status()));
      });
}

// Every node probes, then measures; what they found comes back with their heartbeats.
void LinkService::RecheckNodes(v1::RecheckLinksResponse response,
                               Reply<v1::RecheckLinksResponse> reply) {
  std::set<NodeId> nodes = parts_.members.Live();
  nodes.insert(parts_.self);
  const auto finish = [this, response, reply]() mutable {
    *response.mutable_links() = parts_.links.links();
    reply(response);
  };
  const auto measure = [this, nodes, finish] {
    AskEach(
        parts_.channels, nodes, kMeasureLink, {}, kMeasureTimeout,
        [](const NodeId&, const absl::StatusOr<v1::MeasureLinkResponse>&) {}, finish,
        OwnMeasurements());
  };
  const OwnAnswer<v1::ProbeLinksResponse> own = {
      parts_.self, [this](const auto& answered) {
        parts_.links.ProbeNow([answered] { answered(v1::ProbeLinksResponse()); });
      }};
  AskEach(
      parts_.channels, nodes, kProbeLinks, {}, kProbeTimeout,
      [this](const NodeId& node, absl::StatusOr<v1::ProbeLinksResponse> probed) {
        if (node == parts_.self || !probed.ok()) return;
        parts_.links.Take(node, std::move(*probed->mutable_links()));
      },
      measure, own);
}

OwnAnswer<v1::MeasureLinkResponse> LinkService::OwnMeasurements() {
  return {parts_.self, [this](const auto& answered) { Measure({}, answered); }};
}

void LinkService::Bench(const v1::BenchLinksRequest& request, ServerStream stream) {
  const auto ids = NodesOf(request.node_ids());
  if (!ids.ok()) return stream.Finish(ids.status());
  const std::set<std::string> asked(ids->begin(), ids->end());
  std::set<NodeId> nodes;
  for (const std::string& id : *ids) nodes.insert(NodeId(id));
  AskEach(
      parts_.channels, nodes, kMeasureLink, {}, kMeasureTimeout,
      [stream, asked](const NodeId&, const absl::StatusOr<v1::MeasureLinkResponse>& response) {
        if (!response.ok()) return;
        for (const v1::LinkMeasurement& measured : response->measurements()) {
          if (asked.contains(measured.to_node_id())) stream.Write(measured);
        }
      },
      [stream] { stream.Finish(absl::OkStatus()); }, OwnMeasurements());
}

void LinkService::Export(const v1::ExportHostfileRequest& request,
                         Reply<v1::ExportHostfileResponse> reply) {
  const auto ids = NodesOf(request.node_ids());
  if (!ids.ok()) return reply(ids.status());
  const v1::GroupVerdict group = parts_.links.Group(*ids);
  std::string backend = request.backend();
  if (backend.empty()) {
    const Verdict verdict = VerdictNamed(group.verdict());
    backend = NameOf(verdict == Verdict::kJacclMesh   ? MlxBackend::kJaccl
                     : verdict == Verdict::kJacclRing ? MlxBackend::kJacclRing
                                                      : MlxBackend::kRing);
  }
  std::vector<std::string> names;
  for (const std::string& id : group.node_ids()) {
    // All on this machine: mlx.launch starts the ranks itself.
    names.push_back(group.rendezvous_ip() == "127.0.0.1" ? "127.0.0.1"
                                                         : parts_.views.DisplayName(NodeId(id)));
  }
  const bool fast_synch = parts_.supervisor.metal_fast_synch() != runtime::FastSynch::kOff;
  const auto hostfile = transport::MlxHostfile(group, backend, names, fast_synch);
  if (!hostfile.ok()) return reply(hostfile.status());
  v1::ExportHostfileResponse response;
  response.set_hostfile(*hostfile);
  response.set_backend(backend);
  for (const v1::Reason& warning : group.warnings()) *response.add_warnings() = warning;
  for (int rank = 0; request.environment() && rank < group.node_ids_size(); ++rank) {
    const auto environment =
        transport::MlxEnvironmentOf(group, backend, rank, transport::kJacclPort, fast_synch);
    if (!environment.ok()) return reply(environment.status());
    v1::RankEnvironment& out = *response.add_environments();
    out.set_rank(static_cast<uint32_t>(rank));
    out.set_node_id(group.node_ids(rank));
    for (const auto& [name, value] : environment->settings) {
      out.add_settings(absl::StrCat(name, "=", value));
    }
    for (const auto& [name, content] : environment->files) {
      out.add_settings(absl::StrCat(name, "=FILE with ", content));
    }
  }
  reply(std::move(response));
}

void LinkService::Verify(const Caller& caller, const v1::VerifyTransportRequest& given,
                         Reply<v1::VerifyTransportResponse> reply) {
  v1::VerifyTransportRequest request = given;
  v1::DeploymentStatus found;
  for (const v1::DeploymentStatus& status : parts_.gang_controller.Statuses()) {
    const bool asked =
        request.deployment().empty() || status.deployment().name() == request.deployment();
    if (asked && found.deployment().name().empty()) found = status;
  }
  const std::string& name = found.deployment().name();
  if (name.empty()) {
    return reply(ReasonStatus(
        absl::StatusCode::kNotFound, reasons::kModelNotLoaded,
        request.deployment().empty()
            ? std::string("no model is loaded: there is no group to verify")
            : absl::StrCat("no model '", request.deployment().substr(0, 128), "' is loaded")));
  }
  const v1::GangRecord* gang = parts_.replicator.desired().FindGang(name);
  if (gang == nullptr) {
    return reply(ReasonStatus(absl::StatusCode::kUnavailable, reasons::kNotReady,
                              absl::StrCat(name, " is not placed on any node yet")));
  }
  request.set_deployment(name);
  const auto with_plan = [plan = gang->plan(),
                          reply](absl::StatusOr<v1::VerifyTransportResponse> response) {
    if (response.ok()) {
      response->set_expected_backend(plan.backend());
      response->set_expected_size(plan.world_size());
    }
    reply(std::move(response));
  };
  if (gang->entry_node_id() == parts_.self.value()) return VerifyHere(request, with_plan);
  transport::PeerChannel* channel =
      caller.IsPerson() ? parts_.channels.For(NodeId(gang->entry_node_id())) : nullptr;
  if (channel == nullptr) {
    return reply(ReasonStatus(absl::StatusCode::kUnavailable, reasons::kEntryUnreachable,
                              "the node of the entry rank can't be reached",
                              gang->entry_node_id()));
  }
  channel->Call(kVerifyGroup, request, kVerifyTimeout, with_plan);
}

void LinkService::VerifyHere(const v1::VerifyTransportRequest& request,
                             Reply<v1::VerifyTransportResponse> reply) {
  parts_.supervisor.VerifyGroup(request.deployment(), request.group(),
                                [request, reply](absl::StatusOr<v1::VerifyGroupResponse> group) {
                                  if (!group.ok()) return reply(group.status());
                                  v1::VerifyTransportResponse response;
                                  response.set_deployment(request.deployment());
                                  *response.mutable_group() = *std::move(group);
                                  reply(std::move(response));
                                });
}

}  // namespace macrame::agentd
