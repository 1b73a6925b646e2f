#include "agentd/node/rank_orders.h"

#include <spdlog/spdlog.h>

#include "absl/strings/str_cat.h"
#include "proto/reasons.h"

namespace macrame::agentd {

RankOrders::RankOrders(Election& election, ModelLibrary& library,
                       runtime::RankSupervisor& supervisor, Callbacks callbacks)
    : election_(election),
      library_(library),
      supervisor_(supervisor),
      callbacks_(std::move(callbacks)) {}

absl::Status RankOrders::CheckOrder(const NodeId& from, const v1::Fence& fence) const {
  const FencePair pair = FromProto(fence);
  if (pair.coordinator != from) {
    return absl::PermissionDeniedError("the caller is not the coordinator that its order names");
  }
  return election_.CheckFence(pair);
}

absl::Status RankOrders::CheckTaking(const NodeId& from, const v1::Fence& fence) const {
  absl::Status obeyed = CheckOrder(from, fence);
  if (!obeyed.ok() || !callbacks_.draining()) return obeyed;
  return ReasonStatus(absl::StatusCode::kUnavailable, reasons::kNodeLeft,
                      "this node is about to stop and takes no ranks");
}

void RankOrders::Reserve(const NodeId& from, const v1::ReserveRequest& request,
                         Reply<v1::ReserveResponse> reply) {
  absl::Status obeyed = CheckTaking(from, request.fence());
  if (!obeyed.ok()) return reply(obeyed);
  library_.Find(request.model(),
                [this, from, request, reply](absl::StatusOr<DescribedModel> found) {
                  if (!found.ok()) return reply(found.status());
                  // Looking took a moment in which another may have been granted the lease.
                  absl::Status still_obeyed = CheckTaking(from, request.fence());
                  if (!still_obeyed.ok()) return reply(still_obeyed);
                  v1::ReserveRequest local = request;
                  local.mutable_model()->set_path(found->description.path());
                  if (local.has_draft_model()) return ReserveWithDraft(from, local, reply);
                  reply(supervisor_.Reserve(local, callbacks_.local_ip(), callbacks_.memory()));
                });
}

void RankOrders::ReserveWithDraft(const NodeId& from, const v1::ReserveRequest& request,
                                  Reply<v1::ReserveResponse> reply) {
  library_.Find(request.draft_model(),
                [this, from, request, reply](absl::StatusOr<DescribedModel> found) {
                  if (!found.ok()) {
                    v1::Reason reason = ReasonOf(found.status());
                    reason.set_message(absl::StrCat(
                        "the draft model ", request.draft_model().name(), ": ", reason.message()));
                    return reply(ReasonStatus(found.status().code(), reason));
                  }
                  absl::Status still_obeyed = CheckTaking(from, request.fence());
                  if (!still_obeyed.ok()) return reply(still_obeyed);
                  v1::ReserveRequest local = request;
                  local.mutable_draft_model()->set_path(found->description.path());
                  reply(supervisor_.Reserve(local, callbacks_.local_ip(), callbacks_.memory()));
                });
}

void RankOrders::Launch(const NodeId& from, const v1::LaunchRequest& request,
                        Reply<v1::LaunchResponse> reply) {
  absl::Status obeyed = CheckTaking(from, request.fence());
  if (!obeyed.ok()) return reply(obeyed);
  absl::StatusOr<v1::LaunchResponse> launched = supervisor_.Launch(request.spec());
  if (launched.ok()) {
    spdlog::info("rank {} of {} (epoch {}) started, pid {}", request.spec().rank(),
                 request.spec().deployment(), request.spec().epoch(), launched->pid());
  }
  reply(std::move(launched));
}

void RankOrders::StopRanks(const NodeId& from, const v1::StopRanksRequest& request,
                           Reply<v1::StopRanksResponse> reply) {
  absl::Status obeyed = CheckOrder(from, request.fence());
  if (!obeyed.ok()) return reply(obeyed);
  v1::StopRanksResponse response;
  response.set_ended(supervisor_.StopRanks(request.deployment(), request.up_to_epoch(),
                                           request.why(), request.at_once(), request.from_epoch()));
  if (response.ended() > 0) {
    spdlog::info("{} ranks of {} (up to epoch {}) told to stop: {}", response.ended(),
                 request.deployment(), request.up_to_epoch(), request.why());
  }
  reply(std::move(response));
}

}  // namespace macrame::agentd
