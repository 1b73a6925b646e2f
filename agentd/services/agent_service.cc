#include "agentd/services/agent_service.h"

#include <optional>

#include "absl/strings/str_cat.h"
#include "agentd/base/rpc_methods.h"
#include "proto/reasons.h"

namespace macrame::agentd {
namespace {

using transport::Caller;
using transport::RpcServer;
using transport::ServerStream;

// Members named in one heartbeat; more are not looked at.
constexpr int kKnownMax = 64;

}  // namespace

void ServeGenerate(transport::Dispatcher& dispatcher, ServerStream stream,
                   const StartGenerateCall& start) {
  auto handle = std::make_shared<transport::CallHandle>();
  *handle = start(
      [stream, handle, &dispatcher](const v1::GenerateChunk& chunk) {
        if (!stream.Write(chunk)) dispatcher.Post([handle] { handle->Cancel(); });
      },
      [stream](const absl::Status& status) { stream.Finish(status); });
  stream.OnCancel([handle] { handle->Cancel(); });
}

absl::Status AgentService::CheckMachine(const Caller& caller, const v1::Fence& fence) const {
  const discovery::Member* member = parts_.members.table().Find(caller.node_id);
  return member == nullptr ? absl::OkStatus() : agentd::CheckMachine(member->identity, fence);
}

absl::Status AgentService::CheckOrder(const Caller& caller, const v1::Fence& fence) const {
  absl::Status sure = CheckSure();
  return sure.ok() ? CheckMachine(caller, fence) : sure;
}

absl::Status AgentService::CheckSure() const {
  if (parts_.guard.is_sure()) return absl::OkStatus();
  return ReasonStatus(absl::StatusCode::kFailedPrecondition, *parts_.guard.Problem());
}

v1::HeartbeatResponse AgentService::AnswerRival(const v1::NodeIdentity& caller) const {
  v1::HeartbeatResponse response;
  *response.mutable_identity() = parts_.own.identity();
  if (parts_.members.table().AdmissionOf(caller) != discovery::Admission::kRefused) return response;
  const discovery::Member* holder = parts_.members.table().Find(NodeId(caller.node_id()));
  *response.mutable_own()->add_known() = holder->identity;
  *response.mutable_refused() =
      MakeReason(reasons::kNodeIdClash,
                 absl::StrCat("this id is that of ", discovery::NameAndAddress(holder->identity),
                              ", which answers"),
                 caller.node_id());
  return response;
}

absl::StatusOr<v1::HeartbeatResponse> AgentService::AnswerOwnId(const Caller& caller,
                                                                const v1::NodeIdentity& identity) {
  if (parts_.guard.is_sure()) {
    parts_.members.HeardOwnIdElsewhere(identity.hostname(), caller.address);
  }
  if (!discovery::AreTwoAgents(identity, parts_.own.identity())) {
    return ReasonStatus(absl::StatusCode::kPermissionDenied, reasons::kNodeIdClash,
                        "the caller carries the node id of the node that it calls");
  }
  v1::HeartbeatResponse response;
  *response.mutable_identity() = parts_.own.identity();
  if (parts_.guard.KeepsPlace()) {
    *response.mutable_own()->add_known() = parts_.own.identity();
    *response.mutable_refused() = MakeReason(
        reasons::kNodeIdClash,
        absl::StrCat("this id is that of ", discovery::NameAndAddress(parts_.own.identity())),
        identity.node_id());
  }
  return response;
}

absl::StatusOr<v1::HeartbeatResponse> AgentService::OnHeartbeat(const Caller& caller,
                                                                v1::HeartbeatRequest request) {
  if (request.identity().node_id() != caller.node_id.value()) {
    return absl::PermissionDeniedError(absl::StrCat("the certificate is that of node ",
                                                    ShortId(caller.node_id),
                                                    ", the heartbeat claims to be another"));
  }
  if (parts_.guard.standing() == Standing::kRefused) return CheckSure();
  if (caller.node_id == parts_.own.id()) return AnswerOwnId(caller, request.identity());
  if (parts_.members.HeardMember(request.identity(), caller.address, /*answered=*/false) !=
      discovery::Admission::kTaken) {
    return AnswerRival(request.identity());
  }
  int named = 0;
  for (const v1::NodeIdentity& known : request.known()) {
    if (++named > kKnownMax) break;
    if (IsValidNodeId(known.node_id()) && known.node_id() != parts_.own.id().value()) {
      parts_.members.HeardCandidate(known);
    }
  }
  v1::HeartbeatResponse response;
  *response.mutable_identity() = parts_.own.identity();
  const uint64_t claimed = request.inventory_revision();
  const uint64_t known_revision = request.known_inventory_revision();
  const uint64_t claimed_links = request.links_revision();
  const uint64_t known_links = request.known_links_revision();
  bool changed = false;
  std::optional<v1::LeaseRequest> lease;
  // A refused member (too many, or a clashing id) is not listened to.
  if (parts_.members.IsMember(caller.node_id)) {
    if (request.has_lease() && parts_.guard.is_sure()) lease = std::move(*request.mutable_lease());
    if (request.has_links()) parts_.links.Take(caller.node_id, request.links());
    changed = parts_.reports.Take(caller.node_id, std::move(request), parts_.dispatcher.Now());
  }
  // First of all: what this node says of itself then names the coordinator that it has now.
  if (lease.has_value()) {
    v1::LeaseResponse& answer = *response.mutable_lease();  // not granted, if nothing else is said
    parts_.leases.OnLeaseRequest(caller.node_id, *lease,
                                 [&answer](absl::StatusOr<v1::LeaseResponse> decided) {
                                   if (decided.ok()) answer = *std::move(decided);
                                 });
  }
  response.set_known_inventory_revision(parts_.reports.KnownRevision(caller.node_id));
  response.set_wants_inventory(response.known_inventory_revision() != claimed);
  response.set_known_links_revision(parts_.links.KnownRevision(caller.node_id));
  response.set_wants_links(response.known_links_revision() != claimed_links);
  *response.mutable_own() = parts_.make_heartbeat();
  const v1::Inventory& inventory = parts_.own.inventory();
  response.mutable_own()->set_inventory_revision(inventory.revision());
  if (known_revision != inventory.revision()) {
    *response.mutable_own()->mutable_inventory() = inventory;
  }
  const v1::NodeLinks& links = parts_.links.own();
  response.mutable_own()->set_links_revision(links.revision());
  if (known_links != links.revision()) *response.mutable_own()->mutable_links() = links;
  parts_.on_heartbeat(caller.node_id, changed);
  return response;
}

void AgentService::Register(RpcServer& server) {
  RegisterMembership(server);
  RegisterOrders(server);
  server.HandleUnary(kDescribeModel, [this](const Caller&, v1::DescribeModelRequest request,
                                            RpcServer::Reply<v1::DescribeModelResponse> reply) {
    parts_.library.Resolve(request.name_or_path(), [reply](absl::StatusOr<DescribedModel> found) {
      if (!found.ok()) return reply(found.status());
      v1::DescribeModelResponse response;
      *response.mutable_model() = std::move(found->description);
      reply(std::move(response));
    });
  });
  server.HandleStream(
      kGenerate, [this](const Caller&, v1::GenerateRequest request, ServerStream stream) {
        ServeGenerate(parts_.dispatcher, stream, [&](auto on_chunk, auto on_done) {
          return parts_.router.RouteLocal(request, std::move(on_chunk), std::move(on_done));
        });
      });
}

// Nothing that carries a fence is obeyed before its sender and the fence are checked.
template <typename Request, typename Response, typename Obey>
void AgentService::HandleOrder(RpcServer& server, const Method<Request, Response>& method,
                               Obey obey) {
  server.HandleUnary(method, [this, obey](const Caller& caller, const Request& request,
                                          RpcServer::Reply<Response> reply) {
    const absl::Status taken = CheckOrder(caller, request.fence());
    if (!taken.ok()) return reply(taken);
    obey(caller.node_id, request, std::move(reply));
  });
}

void AgentService::RegisterMembership(RpcServer& server) {
  server.HandleUnary(kHeartbeat, [this](const Caller& caller, v1::HeartbeatRequest request,
                                        RpcServer::Reply<v1::HeartbeatResponse> reply) {
    reply(OnHeartbeat(caller, std::move(request)));
  });
  HandleOrder(server, kRequestLease, [this](const NodeId& from, const auto& request, auto reply) {
    parts_.leases.OnLeaseRequest(from, request, std::move(reply));
  });
  server.HandleUnary(kLeave, [this](const Caller& caller, v1::LeaveRequest request,
                                    RpcServer::Reply<v1::LeaveResponse> reply) {
    if (request.node_id() != caller.node_id.value()) {
      return reply(absl::PermissionDeniedError("a node says goodbye for itself only"));
    }
    parts_.members.Leave(caller.node_id, Incarnation(request.incarnation()));
    reply(v1::LeaveResponse());
  });
}

void AgentService::RegisterOrders(RpcServer& server) {
  HandleOrder(server, kReplicate, [this](const NodeId& from, const auto& request, auto reply) {
    reply(parts_.replicator.OnReplicate(from, request));
  });
  HandleOrder(server, kReserve, [this](const NodeId& from, const auto& request, auto reply) {
    parts_.orders.Reserve(from, request, std::move(reply));
  });
  HandleOrder(server, kLaunch, [this](const NodeId& from, const auto& request, auto reply) {
    parts_.orders.Launch(from, request, std::move(reply));
  });
  HandleOrder(server, kStopRanks, [this](const NodeId& from, const auto& request, auto reply) {
    parts_.orders.StopRanks(from, request, std::move(reply));
  });
}

}  // namespace macrame::agentd
