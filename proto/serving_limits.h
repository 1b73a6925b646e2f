#pragma once

// What the agents plan with and the ranks do: limits that both sides must know.

#include <cstdint>

namespace macrame {

// Answers that one gang gives at the same time, memory allowing; further requests wait.
inline constexpr uint32_t kAnsweredAtOnceMax = 16;

}  // namespace macrame
