#pragma once

// What an order to cordon, drain or uncordon a node changes. Pure.

#include <cstdint>
#include <optional>
#include <string>

#include "macrame/v1/cluster.pb.h"
#include "macrame/v1/operation.pb.h"

namespace macrame::agentd {

// Answers of a node that is drained have so long, unless the order says otherwise; at most a day.
inline constexpr uint32_t kDrainDeadlineDefaultMs = 60'000;
inline constexpr uint32_t kDrainDeadlineMaxMs = 24 * 3600 * 1000;

struct CordonChange {
  std::string value;  // a v1::Cordon, to be written; empty: the key is removed
  v1::SetCordonResponse response;
};

// `present`: null when the node is not cordoned. One that is drained stays so when it is cordoned.
// `changed` of the response: something is to be written. Nullopt: the order is none, or its
// deadline is too long.
std::optional<CordonChange> DecideCordon(const v1::SetCordonRequest& request,
                                         const v1::Cordon* present, uint64_t now_unix_ms);

}  // namespace macrame::agentd
