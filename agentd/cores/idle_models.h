#pragma once

// Which models nobody has asked for a while, and in which order. Pure; the coordinator's.
//
// A model is in use while requests run or wait, and when its entry ranks have begun requests or
// made tokens since the last look. One that is not ready is in use, too: somebody has just loaded
// it, or it is being recovered. Replicas of a model are idle together or not at all.

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "macrame/v1/cluster.pb.h"
#include "proto/monotonic_time.h"

namespace macrame::agentd {

class IdleModels {
 public:
  // By model; of one without a profile the limit below holds.
  using Profiles = std::map<std::string, v1::ModelProfile>;

  // `limit` 0: none is ever idle, unless its profile says so; who was used last is known all the
  // same.
  explicit IdleModels(Duration limit) : limit_(limit) {}

  // Names of deployments (not of replicas) that were not used for their limit, as far as looks
  // since the last Forget tell. Each is named at every look until it is gone. One that is pinned
  // never is.
  std::vector<std::string> Look(const std::vector<v1::DeploymentStatus>& deployments,
                                MonotonicTime now, const Profiles& profiles = {});
  // Names of deployments that were not used for `unused_for` at the last look, the least recently
  // used first. One that is pinned or has a priority above 0 is never among them: somebody wants
  // it to stay.
  std::vector<std::string> LeastRecentlyUsed(MonotonicTime now, Duration unused_for) const;
  // This node does not lead (any more): what it saw before says nothing of the time between.
  void Forget() { seen_.clear(); }

 private:
  struct Seen {
    uint64_t begun = 0;   // requests and tokens of all entry ranks together
    uint64_t epochs = 0;  // of all replicas, added up
    MonotonicTime used_at;
    bool stays = false;
  };
  Duration LimitOf(const v1::ModelProfile& profile) const;

  const Duration limit_;
  std::map<std::string, Seen> seen_;
};

}  // namespace macrame::agentd
