#include "agentd/services/retention_service.h"

#include <algorithm>
#include <chrono>
#include <map>
#include <set>
#include <tuple>
#include <utility>

#include "absl/strings/str_cat.h"
#include "agentd/base/rpc_methods.h"
#include "agentd/cores/tenant_limits.h"
#include "agentd/services/gathering.h"
#include "proto/reasons.h"

namespace macrame::agentd {
namespace {

using transport::Caller;
using transport::RpcServer;

constexpr Duration kPurgePause = std::chrono::seconds(1);
constexpr Duration kDropTimeout = std::chrono::seconds(5);

// What each node answered, by node.
struct Erasure {
  std::map<NodeId, v1::ErasedAnswers> nodes;

  void Add(const NodeId& id, const absl::StatusOr<v1::DropAnswersResponse>& answer) {
    v1::ErasedAnswers& node = nodes[id];
    if (answer.ok()) {
      node.set_answers(answer->answers());
      node.set_bytes(answer->bytes());
    } else {
      *node.mutable_failure() = ReasonOf(answer.status());
      if (node.failure().node_id().empty()) node.mutable_failure()->set_node_id(id.value());
    }
  }
  v1::EraseTenantResponse Response(const std::string& tenant) const {
    v1::EraseTenantResponse response;
    response.set_name(tenant);
    for (const auto& [id, node] : nodes) *response.add_nodes() = node;
    std::sort(response.mutable_nodes()->begin(), response.mutable_nodes()->end(),
              [](const v1::ErasedAnswers& a, const v1::ErasedAnswers& b) {
                return std::tie(a.hostname(), a.node_id()) < std::tie(b.hostname(), b.node_id());
              });
    return response;
  }
};

}  // namespace

void RetentionService::RegisterAgent(RpcServer& server) {
  server.HandleUnary(kDropAnswers, [this](const Caller&, v1::DropAnswersRequest request,
                                          RpcServer::Reply<v1::DropAnswersResponse> reply) {
    if (absl::Status fits = CheckTenantName(request.tenant()); !fits.ok()) return reply(fits);
    reply(DropHere(request.tenant()));
  });
}

void RetentionService::RegisterCluster(RpcServer& server) {
  server.HandleUnary(kEraseTenant, [this](const Caller&, v1::EraseTenantRequest request,
                                          RpcServer::Reply<v1::EraseTenantResponse> reply) {
    Erase(request, std::move(reply));
  });
}

void RetentionService::Tick() {
  const MonotonicTime now = parts_.dispatcher.Now();
  if (now < purge_due_) return;
  purge_due_ = now + kPurgePause;
  parts_.access->PurgeAnswers();
  parts_.access->CheckKeys();
}

v1::DropAnswersResponse RetentionService::DropHere(const std::string& tenant) {
  const StoredAnswers::Dropped dropped = parts_.access->EraseAnswers(tenant);
  v1::DropAnswersResponse response;
  response.set_answers(static_cast<uint32_t>(dropped.turns));
  response.set_bytes(dropped.bytes);
  return response;
}

void RetentionService::Erase(const v1::EraseTenantRequest& request,
                             RpcServer::Reply<v1::EraseTenantResponse> reply) {
  if (absl::Status fits = CheckTenantName(request.name()); !fits.ok()) return reply(fits);
  auto erasure = std::make_shared<Erasure>();
  const auto add = [&](const NodeId& node, const std::string& hostname) {
    v1::ErasedAnswers& asked = erasure->nodes[node];
    asked.set_node_id(node.value());
    asked.set_hostname(hostname);
  };
  add(parts_.own.id(), parts_.own.identity().hostname());
  erasure->Add(parts_.own.id(), DropHere(request.name()));
  const std::set<NodeId> live = parts_.members.Live();
  for (const discovery::Member* member : parts_.members.table().Members()) {
    const NodeId node(member->identity.node_id());
    add(node, member->identity.hostname());
    if (live.contains(node)) continue;
    erasure->Add(
        node, ReasonStatus(absl::StatusCode::kUnavailable, reasons::kNodeDead,
                           absl::StrCat("node ", ShortId(node), " is not heard of"), node.value()));
  }
  v1::DropAnswersRequest order;
  order.set_tenant(request.name());
  AskEach(
      parts_.channels, live, kDropAnswers, order, kDropTimeout,
      [erasure](const NodeId& node, const absl::StatusOr<v1::DropAnswersResponse>& answer) {
        erasure->Add(node, answer);
      },
      [erasure, tenant = request.name(), reply = std::move(reply)] {
        reply(erasure->Response(tenant));
      });
}

}  // namespace macrame::agentd
