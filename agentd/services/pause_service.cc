#include "agentd/services/pause_service.h"

#include <memory>

#include "agentd/base/rpc_methods.h"
#include "proto/reasons.h"

namespace macrame::agentd {
namespace {

constexpr Duration kPauseTimeout = std::chrono::seconds(20);

}  // namespace

void PauseService::Register(transport::RpcServer& server) {
  server.HandleUnary(kPauseCluster, [this](const transport::Caller& caller,
                                           const v1::PauseClusterRequest& request, Reply reply) {
    way_.Unary(kPauseCluster, caller, request, kPauseTimeout, reply,
               [this, order = request.order(), reply] { Pause(order, reply); });
  });
}

void PauseService::Pause(v1::PauseOrder order, Reply reply) {
  const std::optional<PauseChange> change =
      DecidePause(order, replicator_.desired(), dispatcher_.UnixMs());
  if (!change.has_value()) {
    return reply(ReasonStatus(absl::StatusCode::kInvalidArgument, reasons::kBadRequest,
                              "drain, stop or start: the request names none of them"));
  }
  CarryOut(change->steps, AnswerWhenWritten(reply, change->response));
}

void PauseService::CarryOut(const std::vector<PauseChange::Step>& steps, Written done) {
  struct Waiting {
    size_t left;
    Written done;
  };
  auto waiting = std::make_shared<Waiting>(Waiting{steps.size() + 1, std::move(done)});
  const auto acknowledged = [waiting](const absl::Status& status) {
    const bool is_last = --waiting->left == 0;
    if (waiting->done == nullptr || (status.ok() && !is_last)) return;
    std::exchange(waiting->done, nullptr)(status);
  };
  for (const PauseChange::Step& step : steps) {
    replicator_.Set(step.key, step.value, acknowledged);
  }
  acknowledged(absl::OkStatus());
}

}  // namespace macrame::agentd
