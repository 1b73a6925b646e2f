#pragma once

// How a rank comes up whose model the second engine runs: the worker process is started and has
// imported mlx_lm before any other rank waits for this one; the step channel is as ever, the group
// is the workers' own.

#include "runtime/process/rank_boot.h"

namespace macrame::runtime::engine {

bool IsForSecondEngine(const v1::LaunchSpec& spec);

// All but the warm-up. `spec` is complete but for its context length, which is set. ENGINE_MISSING,
// ENGINE_LIMIT (an uneven share, stages of tensor groups, 8 bits of KV cache), and what BootRank
// says.
absl::StatusOr<std::unique_ptr<BootedRank>> BootSecondEngine(v1::LaunchSpec& spec,
                                                             Watchdog& watchdog,
                                                             const BootOptions& options);

}  // namespace macrame::runtime::engine
