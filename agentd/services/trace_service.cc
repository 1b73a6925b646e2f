#include "agentd/services/trace_service.h"

#include <algorithm>
#include <memory>
#include <set>
#include <utility>

#include "absl/strings/str_cat.h"
#include "agentd/base/rpc_methods.h"
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

// What the nodes answered so far.
struct TraceGathering {
  v1::TraceModelResponse response;
  size_t awaited = 0;
  RpcServer::Reply<v1::TraceModelResponse> reply;

  void Add(const NodeId& node, const absl::StatusOr<v1::TraceRankResponse>& answer) {
    if (answer.ok()) {
      response.mutable_ranks()->MergeFrom(answer->ranks());
    } else {
      v1::Reason why = ReasonOf(answer.status());
      if (why.node_id().empty()) why.set_node_id(node.value());
      *response.add_missing() = std::move(why);
    }
    if (--awaited > 0) return;
    std::sort(response.mutable_ranks()->begin(), response.mutable_ranks()->end(),
              [](const v1::RankTrace& a, const v1::RankTrace& b) { return a.rank() < b.rank(); });
    reply(std::move(response));
  }
};

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
  server.HandleUnary(kTraceModel, [this](const Caller& caller, v1::TraceRankRequest request,
                                         Reply<v1::TraceModelResponse> reply) {
    Trace(caller, request, std::move(reply));
  });
}

void TraceService::Trace(const Caller& caller, const v1::TraceRankRequest& request,
                         Reply<v1::TraceModelResponse> reply) {
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
  auto gathering = std::make_shared<TraceGathering>();
  gathering->reply = std::move(reply);
  gathering->awaited = nodes.size();
  gathering->response.set_deployment(request.deployment());
  gathering->response.set_epoch(gang->epoch());
  for (const NodeId& node : nodes) {
    const auto done = [gathering, node](absl::StatusOr<v1::TraceRankResponse> answer) {
      gathering->Add(node, answer);
    };
    if (node == parts_.self) {
      parts_.supervisor.TraceRanks(request, done);
      continue;
    }
    transport::PeerChannel* channel = caller.local ? parts_.channels.For(node) : nullptr;
    if (channel == nullptr) {
      done(ReasonStatus(absl::StatusCode::kUnavailable, reasons::kEntryUnreachable,
                        absl::StrCat("node ", ShortId(node), " can't be reached"), node.value()));
      continue;
    }
    channel->Call(kTraceRanks, request,
                  std::chrono::milliseconds(request.duration_ms()) + kAnswerSlack, done);
  }
}

}  // namespace macrame::agentd
