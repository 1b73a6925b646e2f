#include "agentd/services/load_watches.h"

#include "absl/strings/str_cat.h"
#include "proto/reasons.h"
#include "proto/replicas.h"

namespace macrame::agentd {

void LoadWatches::Add(transport::ServerStream stream, std::string deployment,
                      std::string resolved_name, uint64_t after_epoch, uint32_t timeout_ms) {
  if (watches_.size() >= kLoadWatchesMax) {
    return stream.Finish(absl::ResourceExhaustedError("too many wait for models to load"));
  }
  Watch watch;
  watch.stream = std::move(stream);
  watch.deployment = std::move(deployment);
  watch.resolved_name = std::move(resolved_name);
  watch.after_epoch = after_epoch;
  watch.ends = dispatcher_.Now() +
               std::chrono::milliseconds(timeout_ms == 0 ? kLoadTimeoutDefaultMs : timeout_ms);
  watches_.push_back(std::move(watch));
  Tick();
}

void LoadWatches::Tick() {
  if (watches_.empty()) return;
  const std::vector<v1::DeploymentStatus> statuses = gang_controller_.Statuses();
  watches_.remove_if([&](Watch& watch) {
    // The replicas come one after the other: told is of the first that is not ready.
    std::optional<v1::DeploymentStatus> found;
    for (const v1::DeploymentStatus& status : statuses) {
      const std::string& name = status.deployment().name();
      if (DeploymentOfReplica(name) != watch.deployment) continue;
      if (name == watch.deployment || (found.has_value() && IsReady(watch, *found))) found = status;
    }
    return Tell(watch, found);
  });
}

bool LoadWatches::IsReady(const Watch& watch, const v1::DeploymentStatus& status) {
  return status.state() == v1::DEPLOYMENT_STATE_READY && IsCurrent(watch, status);
}

bool LoadWatches::IsCurrent(const Watch& watch, const v1::DeploymentStatus& status) {
  return status.deployment().name() != watch.deployment || status.epoch() > watch.after_epoch;
}

bool LoadWatches::Tell(Watch& watch, const std::optional<v1::DeploymentStatus>& status) {
  if (!status.has_value()) {
    watch.stream.Finish(absl::AbortedError(
        absl::StrCat(watch.deployment, " was unloaded while it was being loaded")));
    return true;
  }
  v1::LoadModelProgress progress;
  *progress.mutable_status() = *status;
  *progress.mutable_plan() = status->plan();
  progress.set_resolved_name(watch.resolved_name);
  const std::string bytes = progress.SerializeAsString();
  if (bytes != watch.last_sent) {
    watch.last_sent = bytes;
    // Nobody listens any more; the load itself goes on.
    if (!watch.stream.Write(progress)) return true;
  }
  const bool is_current = IsCurrent(watch, *status);
  if (IsReady(watch, *status)) {
    watch.stream.Finish(absl::OkStatus());
    return true;
  }
  const bool failed_often = is_current && status->state() == v1::DEPLOYMENT_STATE_BACKING_OFF &&
                            status->attempts() >= kAttemptsUntilTold;
  // Nothing is tried any more: there is nothing to wait for.
  const bool is_over = is_current && status->state() == v1::DEPLOYMENT_STATE_PENDING &&
                       IsFaultOfModel(status->failure().code());
  if (is_over) {
    watch.stream.Finish(ReasonStatus(absl::StatusCode::kDataLoss, status->failure()));
    return true;
  }
  const MonotonicTime now = dispatcher_.Now();
  if (status->state() != v1::DEPLOYMENT_STATE_PENDING) {
    watch.pending_since.reset();
  } else if (!watch.pending_since.has_value()) {
    watch.pending_since = now;
  }
  const bool refused =
      watch.pending_since.has_value() && now - *watch.pending_since >= kPendingUntilTold &&
      !status->failure().code().empty() && status->failure().code() != reasons::kAwaitsRoom;
  if (failed_often || refused) {
    watch.stream.Finish(ReasonStatus(
        refused ? absl::StatusCode::kFailedPrecondition : absl::StatusCode::kUnavailable,
        status->failure()));
    return true;
  }
  if (now < watch.ends) return false;
  watch.stream.Finish(absl::DeadlineExceededError(absl::StrCat(
      watch.deployment, " is not ready yet; the load goes on, 'clusterctl status' shows it",
      status->failure().message().empty() ? "" : ". Last failure: ", status->failure().message())));
  return true;
}

void LoadWatches::EndAll(const absl::Status& status) {
  for (const Watch& watch : watches_) watch.stream.Finish(status);
  watches_.clear();
}

}  // namespace macrame::agentd
