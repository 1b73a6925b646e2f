#include "agentd/cores/cluster_pause.h"

#include <set>

#include "absl/strings/str_cat.h"
#include "agentd/cores/gang_reconciler.h"
#include "agentd/cores/state_keys.h"
#include "proto/reasons.h"

namespace macrame::agentd {
namespace {

std::string StoppedKey(const std::string& name) { return absl::StrCat(kStoppedPrefix, name); }

PauseChange DecideStart(const DesiredState& desired) {
  PauseChange change;
  for (const auto& [name, model] : desired.stopped()) {
    // What was loaded under this name meanwhile stays.
    if (desired.FindDeployment(name) == nullptr) {
      change.steps.push_back({DeploymentKey(name), model.SerializeAsString()});
    }
    change.steps.push_back({StoppedKey(name), ""});
    change.response.add_models(name);
  }
  if (desired.pause() != nullptr) change.steps.push_back({std::string(kPauseKey), ""});
  change.response.set_changed(!change.steps.empty());
  return change;
}

}  // namespace

std::optional<PauseChange> DecidePause(v1::PauseOrder order, const DesiredState& desired,
                                       uint64_t now_unix_ms) {
  if (order == v1::PAUSE_ORDER_START) return DecideStart(desired);
  const bool stops = order == v1::PAUSE_ORDER_STOP;
  if (!stops && order != v1::PAUSE_ORDER_DRAIN) return std::nullopt;
  PauseChange change;
  v1::ClusterPause pause;
  if (desired.pause() != nullptr) {
    pause = *desired.pause();
  } else {
    pause.set_since_unix_ms(now_unix_ms);
  }
  if (stops) pause.set_stopped(true);
  const bool is_new = desired.pause() == nullptr ||
                      desired.pause()->SerializeAsString() != pause.SerializeAsString();
  if (is_new) change.steps.push_back({std::string(kPauseKey), pause.SerializeAsString()});
  std::set<std::string> remembered;
  for (const auto& [name, model] : desired.stopped()) remembered.insert(name);
  if (stops) {
    for (const auto& [name, model] : desired.deployments()) {
      change.steps.push_back({StoppedKey(name), model.SerializeAsString()});
      change.steps.push_back({DeploymentKey(name), ""});
      remembered.insert(name);
    }
  }
  for (const std::string& name : remembered) change.response.add_models(name);
  *change.response.mutable_pause() = std::move(pause);
  change.response.set_changed(!change.steps.empty());
  return change;
}

std::optional<v1::Reason> PausedReason(const DesiredState& desired) {
  if (desired.pause() == nullptr) return std::nullopt;
  const size_t models = desired.stopped().size();
  std::string what = "the cluster is drained: it takes no new requests";
  if (desired.pause()->stopped()) {
    what = absl::StrCat("the cluster is stopped: it takes no requests, and loads ", models,
                        models == 1 ? " model" : " models", " when it is started");
  }
  v1::Reason reason = MakeReason(reasons::kClusterPaused, what);
  reason.set_remedy("clusterctl cluster start");
  return reason;
}

}  // namespace macrame::agentd
