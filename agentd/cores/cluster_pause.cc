#include "agentd/cores/cluster_pause.h"

#include "absl/strings/str_cat.h"
#include "proto/reasons.h"

namespace macrame::agentd {
namespace {

std::optional<PauseChange> DecideStart(const v1::ClusterPause* present,
                                       const std::map<std::string, v1::Deployment>& deployments) {
  PauseChange change;
  if (present == nullptr) return change;
  for (const v1::Deployment& model : present->models()) {
    // What was loaded under this name meanwhile stays.
    if (!deployments.contains(model.name())) change.restored.push_back(model);
    change.response.add_models(model.name());
  }
  change.is_lifted = true;
  change.response.set_changed(true);
  return change;
}

}  // namespace

std::optional<PauseChange> DecidePause(v1::PauseOrder order, const v1::ClusterPause* present,
                                       const std::map<std::string, v1::Deployment>& deployments,
                                       uint64_t now_unix_ms) {
  if (order == v1::PAUSE_ORDER_START) return DecideStart(present, deployments);
  const bool stops = order == v1::PAUSE_ORDER_STOP;
  if (!stops && order != v1::PAUSE_ORDER_DRAIN) return std::nullopt;
  PauseChange change;
  v1::ClusterPause pause;
  if (present != nullptr) pause = *present;
  if (present == nullptr) pause.set_since_unix_ms(now_unix_ms);
  if (stops) {
    pause.set_stopped(true);
    std::map<std::string, v1::Deployment> models;
    for (const v1::Deployment& model : pause.models()) models[model.name()] = model;
    for (const auto& [name, model] : deployments) {
      models[name] = model;
      change.removed.push_back(name);
    }
    pause.clear_models();
    for (auto& [name, model] : models) {
      change.response.add_models(name);
      *pause.add_models() = std::move(model);
    }
  }
  const std::string value = pause.SerializeAsString();
  if (present == nullptr || present->SerializeAsString() != value) change.pause = value;
  *change.response.mutable_pause() = std::move(pause);
  change.response.set_changed(change.pause.has_value() || !change.removed.empty());
  return change;
}

v1::Reason PausedReason(const v1::ClusterPause& pause) {
  std::string what = "the cluster is drained: it takes no new requests";
  if (pause.stopped()) {
    what = absl::StrCat("the cluster is stopped: it takes no requests, and holds ",
                        pause.models_size(), pause.models_size() == 1 ? " model" : " models",
                        " to be loaded when it is started");
  }
  v1::Reason reason = MakeReason(reasons::kClusterPaused, what);
  reason.set_remedy("clusterctl cluster start");
  return reason;
}

}  // namespace macrame::agentd
