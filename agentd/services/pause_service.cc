#include "agentd/services/pause_service.h"

#include <memory>
#include <string>

#include "absl/strings/str_cat.h"
#include "agentd/base/rpc_methods.h"
#include "agentd/cores/gang_reconciler.h"
#include "agentd/cores/state_keys.h"
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
  const DesiredState& desired = replicator_.desired();
  std::optional<PauseChange> change =
      DecidePause(order, desired.pause(), desired.deployments(), dispatcher_.UnixMs());
  if (!change.has_value()) {
    return reply(ReasonStatus(absl::StatusCode::kInvalidArgument, reasons::kBadRequest,
                              "drain, stop or start: the request names none of them"));
  }
  const v1::PauseClusterResponse response = change->response;
  CarryOut(*std::move(change), [reply, response](const absl::Status& status) {
    if (!status.ok()) return reply(status);
    reply(response);
  });
}

void PauseService::CarryOut(PauseChange change, Written done) {
  const auto next = [this, rest = std::make_shared<PauseChange>(),
                     done](PauseChange left) -> Written {
    *rest = std::move(left);
    return [this, rest, done](const absl::Status& status) {
      if (!status.ok()) return done(status);
      CarryOut(std::move(*rest), done);
    };
  };
  if (!change.restored.empty()) {
    const v1::Deployment model = std::move(change.restored.back());
    change.restored.pop_back();
    replicator_.Write(DeploymentKey(model.name()), model.SerializeAsString(),
                      next(std::move(change)));
  } else if (change.pause.has_value()) {
    const std::string value = *std::exchange(change.pause, std::nullopt);
    replicator_.Write(std::string(kPauseKey), value, next(std::move(change)));
  } else if (!change.removed.empty()) {
    const std::string name = std::move(change.removed.back());
    change.removed.pop_back();
    replicator_.Remove(DeploymentKey(name), "", next(std::move(change)));
  } else if (std::exchange(change.is_lifted, false)) {
    replicator_.Remove(std::string(kPauseKey), "", next(std::move(change)));
  } else {
    done(absl::OkStatus());
  }
}

}  // namespace macrame::agentd
