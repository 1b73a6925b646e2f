#pragma once

// What an order to drain, stop or start the whole cluster changes. Pure.

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "macrame/v1/cluster.pb.h"
#include "macrame/v1/operation.pb.h"

namespace macrame::agentd {

// In this order: what is remembered is on disk before it is removed, and what was remembered is
// back before it is forgotten. Each step may be carried out twice.
struct PauseChange {
  std::vector<v1::Deployment> restored;  // to be written
  std::optional<std::string> pause;      // the key's value, to be written
  std::vector<std::string> removed;      // deployments
  bool is_lifted = false;                // the key is removed
  v1::PauseClusterResponse response;
};

// `present`: null when the cluster serves. One that is stopped stays so when it is drained.
// Nullopt: the order is none.
std::optional<PauseChange> DecidePause(v1::PauseOrder order, const v1::ClusterPause* present,
                                       const std::map<std::string, v1::Deployment>& deployments,
                                       uint64_t now_unix_ms);

// Why requests are refused: CLUSTER_PAUSED.
v1::Reason PausedReason(const v1::ClusterPause& pause);

}  // namespace macrame::agentd
