#include "agentd/cores/idle_models.h"

#include <algorithm>
#include <numeric>
#include <utility>

#include "proto/replicas.h"

namespace macrame::agentd {
namespace {

// Of all replicas of a deployment together: requests take any of them.
struct Use {
  bool now = false;
  uint64_t begun = 0;
  uint64_t epochs = 0;
  bool has_priority = false;
};

void AddUse(const v1::DeploymentStatus& deployment, Use& use) {
  use.epochs += deployment.epoch();
  use.has_priority = use.has_priority || deployment.deployment().priority() > 0;
  use.now = use.now || deployment.state() != v1::DEPLOYMENT_STATE_READY;
  for (const v1::RankStatus& rank : deployment.ranks()) {
    if (rank.rank() != 0) continue;
    use.now = use.now || rank.requests_running() > 0 || rank.requests_queued() > 0;
    const auto& counts = rank.timings().queue_us().counts();
    use.begun += rank.tokens_generated_total();
    use.begun = std::accumulate(counts.begin(), counts.end(), use.begun);
  }
}

}  // namespace

// 0: never.
Duration IdleModels::LimitOf(const v1::ModelProfile& profile) const {
  if (profile.pinned()) return Duration(0);
  return profile.has_idle_unload_s() ? std::chrono::seconds(profile.idle_unload_s()) : limit_;
}

std::vector<std::string> IdleModels::Look(const std::vector<v1::DeploymentStatus>& deployments,
                                          MonotonicTime now, const Profiles& profiles) {
  std::vector<std::string> idle;
  std::map<std::string, Use> uses;
  for (const v1::DeploymentStatus& deployment : deployments) {
    AddUse(deployment, uses[DeploymentOfReplica(deployment.deployment().name())]);
  }
  std::map<std::string, Seen> seen;
  for (const auto& [name, use] : uses) {
    const auto before = seen_.find(name);
    const auto found = profiles.find(name);
    const v1::ModelProfile profile = found == profiles.end() ? v1::ModelProfile() : found->second;
    Seen& one = seen[name];
    one = {use.begun, use.epochs, now, use.has_priority || profile.pinned()};
    if (before == seen_.end() || use.now) continue;
    if (before->second.begun != use.begun || before->second.epochs != use.epochs) continue;
    one.used_at = before->second.used_at;
    const Duration limit = LimitOf(profile);
    if (limit > Duration(0) && now - one.used_at >= limit) idle.push_back(name);
  }
  seen_ = std::move(seen);
  return idle;
}

std::vector<std::string> IdleModels::LeastRecentlyUsed(MonotonicTime now,
                                                       Duration unused_for) const {
  std::vector<std::pair<MonotonicTime, std::string>> unused;
  for (const auto& [name, seen] : seen_) {
    if (!seen.stays && now - seen.used_at >= unused_for) unused.emplace_back(seen.used_at, name);
  }
  std::sort(unused.begin(), unused.end());
  std::vector<std::string> names;
  for (auto& [used_at, name] : unused) names.push_back(std::move(name));
  return names;
}

}  // namespace macrame::agentd
