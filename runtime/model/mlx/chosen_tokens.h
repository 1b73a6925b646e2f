#pragma once

// The ids of a step's tokens where some of them are what the step before chose. Builds a graph:
// nothing is evaluated. Engine thread only.

#include <cstdint>
#include <span>

#include "mlx/mlx.h"

namespace macrame::runtime::engine {

// int32 [tokens.size()]: each token's id, or for one below zero (TokenOfChosenRow, forward_step.h)
// that row of `chosen`, int32 [rows]. At most one array is made on the host; none where the tokens
// are all of `chosen` in its order, as in a step of nothing but answers that go on.
mlx::core::array TokensOf(std::span<const int32_t> tokens, const mlx::core::array& chosen);

}  // namespace macrame::runtime::engine
