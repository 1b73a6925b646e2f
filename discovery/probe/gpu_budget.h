#pragma once

#include <cstdint>
#include <optional>
#include <string>

namespace macrame::discovery {

// The most memory that a Mac's GPU may hold, hence a model may take.
struct GpuBudget {
  uint64_t bytes = 0;  // 0: unknown, as the memory is
  bool is_estimate = false;
  std::string source;  // "iogpu.wired_limit_mb", "MLX", "0.75 of memory"
};

// The limit that an administrator set (`wired_limit_mb` not 0), else what Metal recommends (as MLX
// tells it: 84 % of the memory was seen on a 128 GiB Mac), else 0.75 of the memory, marked as an
// estimate: two thirds are told of small Macs, more of large ones. Never more than the memory.
// Pure.
GpuBudget MacGpuBudget(std::optional<uint64_t> wired_limit_mb,
                       std::optional<uint64_t> mlx_working_set_bytes,
                       std::optional<uint64_t> memory_bytes);

}  // namespace macrame::discovery
