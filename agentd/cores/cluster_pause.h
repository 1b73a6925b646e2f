#pragma once

// What an order to drain, stop or start the whole cluster changes. Pure.
//
// What was loaded is remembered under a key a model, so that a merge of two halves, of which one
// was stopped, loses none.

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "agentd/cores/desired_state.h"
#include "macrame/v1/cluster.pb.h"
#include "macrame/v1/operation.pb.h"

namespace macrame::agentd {

// To be written in this order and at once: what is remembered before it is removed, and what was
// remembered is back before it is forgotten.
struct PauseChange {
  struct Step {
    std::string key;
    std::string value;  // empty: the key is removed
  };
  std::vector<Step> steps;
  v1::PauseClusterResponse response;
};

// One that is stopped stays so when it is drained. Nullopt: the order is none.
std::optional<PauseChange> DecidePause(v1::PauseOrder order, const DesiredState& desired,
                                       uint64_t now_unix_ms);

// Why requests are refused: CLUSTER_PAUSED. Nullopt: they are not.
std::optional<v1::Reason> PausedReason(const DesiredState& desired);

}  // namespace macrame::agentd
