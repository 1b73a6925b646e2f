#pragma once

// When two agents tell of one event: agents merge by it what they list, clusterctl what it follows.

#include <cstdint>

namespace macrame {

// Two agents that tell of the same within so long tell of one event.
inline constexpr uint64_t kSameEventMs = 10'000;

}  // namespace macrame
