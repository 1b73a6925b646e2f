#include "agentd/services/trace_service.h"

#include <algorithm>
#include <memory>
#include <set>
#include <utility>

#include "absl/strings/str_cat.h"
#include "agentd/base/rpc_methods.h"
#include "agentd/services/gathering.h"
#include "proto/reasons.h"

namespace macrame::agentd {
namespace {

using transport::Caller;
using transport::RpcServer;

// Beyond the trace itself: for the answer to come.
constexpr Duration kAnswerSlack = std::chrono::seconds(10);

absl::Status CheckDuration(const v1::TraceRankRequest& request) {
  if (request.duration_ms() > 0 && request.duration_ms() <= kTraceMsMax) return absl::OkStatus();
  return ReasonStatus(absl::StatusCode::kInvalidArgument, reasons::kBadRequest,
                      absl::StrCat("a trace takes from 1 to ", kTraceMsMax, " ms"));
}

// What a node answered, or why it did not.
void Add(const NodeId& node, const absl::StatusOr<v1::TraceRankResponse>& answer,
         v1::TraceModelResponse* response) {
  if (answer.ok()) return response->mutable_ranks()->MergeFrom(answer->ranks());
  v1::Reason why = ReasonOf(answer.status());
  if (why.node_id().empty()) why.set_node_id(node.value());
  *response->add_missing() = std::move(why);
}

}  // namespace

void TraceService::RegisterAgent(RpcServer& server) {
  server.HandleUnary(kTraceRanks, [this](const Caller&, v1::TraceRankRequest request,
                                         Reply<v1::TraceRankResponse> reply) {
    const absl::Status good = CheckDuration(request);
    if (!good.ok()) return reply(good);
    parts_.supervisor.TraceRanks(request, std::move(reply));
  });
}

void TraceService::RegisterCluster(RpcServer& server) {
  server.HandleUnary(kTraceModel, [this](const Caller&, v1::TraceRankRequest request,
                                         Reply<v1::TraceModelResponse> reply) {
    Trace(request, std::move(reply));
  });
}

void TraceService::Trace(const v1::TraceRankRequest& request, Reply<v1::TraceModelResponse> reply) {
  const absl::Status good = CheckDuration(request);
  if (!good.ok()) return reply(good);
  const v1::GangRecord* gang = parts_.replicator.desired().FindGang(request.deployment());
  if (gang == nullptr) {
    return reply(ReasonStatus(
        absl::StatusCode::kNotFound, reasons::kModelNotLoaded,
        absl::StrCat("no model '", request.deployment().substr(0, 128), "' is loaded")));
  }
  std::set<NodeId> nodes;
  for (const v1::Assignment& assignment : gang->plan().assignments()) {
    nodes.insert(NodeId(assignment.node_id()));
  }
  if (nodes.empty()) {
    return reply(
        ReasonStatus(absl::StatusCode::kUnavailable, reasons::kNotReady,
                     absl::StrCat(request.deployment(), " is not placed on any node yet")));
  }
  auto response = std::make_shared<v1::TraceModelResponse>();
  response->set_deployment(request.deployment());
  response->set_epoch(gang->epoch());
  const OwnAnswer<v1::TraceRankResponse> own = {parts_.self, [this, request](const auto& answered) {
                                                  parts_.supervisor.TraceRanks(request, answered);
                                                }};
  AskEach(
      parts_.channels, nodes, kTraceRanks, request,
      std::chrono::milliseconds(request.duration_ms()) + kAnswerSlack,
      [response](const NodeId& node, const absl::StatusOr<v1::TraceRankResponse>& answer) {
        Add(node, answer, response.get());
      },
      [response, reply = std::move(reply)] {
        std::sort(
            response->mutable_ranks()->begin(), response->mutable_ranks()->end(),
            [](const v1::RankTrace& a, const v1::RankTrace& b) { return a.rank() < b.rank(); });
        reply(std::move(*response));
      },
      own);
}

}  // namespace macrame::agentd
