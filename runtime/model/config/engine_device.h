#pragma once

// What a rank computes its layers with. Chosen once at boot (process/rank_boot.h) and handed down:
// nothing below asks MLX for its default device.

#include <cstdint>

namespace macrame::runtime::engine {

enum class EngineDevice : uint8_t {
  kCpu,     // our CPU kernels (model/cpu)
  kMlxCpu,  // the graph of a GPU (model/mlx) on MLX's CPU device: slow, for tests
  kGpu,     // that graph on the machine's GPU
};

// Whether layers are MLX graphs over MLX arrays.
inline bool UsesMlxGraph(EngineDevice device) { return device != EngineDevice::kCpu; }

}  // namespace macrame::runtime::engine
