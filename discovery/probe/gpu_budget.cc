#include "discovery/probe/gpu_budget.h"

#include <algorithm>
#include <limits>

namespace macrame::discovery {

GpuBudget MacGpuBudget(std::optional<uint64_t> wired_limit_mb,
                       std::optional<uint64_t> mlx_working_set_bytes,
                       std::optional<uint64_t> memory_bytes) {
  const uint64_t most = memory_bytes.value_or(std::numeric_limits<uint64_t>::max());
  constexpr uint64_t kMegabytesMax = std::numeric_limits<uint64_t>::max() >> 20;
  if (wired_limit_mb.value_or(0) > 0) {
    const uint64_t bytes = std::min(*wired_limit_mb, kMegabytesMax) << 20;
    return {std::min(bytes, most), false, "iogpu.wired_limit_mb"};
  }
  if (mlx_working_set_bytes.value_or(0) > 0) {
    return {std::min(*mlx_working_set_bytes, most), false, "MLX"};
  }
  if (!memory_bytes.has_value()) return {};
  return {*memory_bytes / 4 * 3, true, "0.75 of memory"};
}

}  // namespace macrame::discovery
