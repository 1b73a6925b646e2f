#pragma once

// How much memory MLX takes for this process, and when it gives back what it has freed.
//
// By default MLX on a Mac keeps no buffer resident for the GPU, and keeps every buffer that it
// freed until all of its memory is more than the GPU's working set. A model then computes at the
// speed of paging, and one long answer leaves tens of gigabytes of freed buffers. So a rank sets
// three limits before it loads its first weight, and clears the freed buffers while it serves.
//
// MLX's limits hold for the process. Engine thread, unless a function says otherwise.

#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "runtime/model/config/engine_device.h"
#include "runtime/model/step/forward_step.h"

namespace macrame::runtime::engine {

// Of freed buffers that MLX keeps for reuse.
inline constexpr uint64_t kCacheBytesMax = uint64_t{512} << 20;
// After this many steps the freed buffers are given back: their sizes follow the contexts, which
// have grown since.
inline constexpr uint32_t kStepsBetweenClears = 256;

// MLX's calls, so that tests can record them.
class DeviceMemory {
 public:
  virtual ~DeviceMemory() = default;

  // What the GPU can keep resident for all processes together, as MLX reports it
  // (`max_recommended_working_set_size`). Unset: there is no such limit, as on a CPU, or MLX does
  // not report it, as for CUDA.
  virtual std::optional<uint64_t> WorkingSetBytes() = 0;
  // Of bytes that stay resident for the GPU. MLX throws for more than the working set; without
  // Metal it ignores the call.
  virtual void SetWiredLimit(uint64_t bytes) = 0;
  // From here on MLX gives back freed buffers first and then waits for work under way, before it
  // takes more.
  virtual void SetMemoryLimit(uint64_t bytes) = 0;
  // Of freed buffers that are kept.
  virtual void SetCacheLimit(uint64_t bytes) = 0;
  virtual void ClearCache() = 0;
  // Buffers in use and freed buffers that are kept. Any thread.
  virtual uint64_t HeldBytes() = 0;
};

// MLX's own. `device`: kCpu and kMlxCpu have no working set.
std::unique_ptr<DeviceMemory> MakeDeviceMemory(EngineDevice device);

// What a plan gives a rank on its device, in bytes. All 0: there is no plan (a rank that was
// started by hand).
struct PlannedMemory {
  uint64_t wired = 0;     // weights, KV cache, states, activations
  uint64_t headroom = 0;  // for what estimates miss
};

struct DeviceLimits {
  // Unset: the call is not made.
  std::optional<uint64_t> wired{};   // bytes
  std::optional<uint64_t> memory{};  // bytes
  uint64_t cache = kCacheBytesMax;   // bytes
  bool operator==(const DeviceLimits&) const = default;
};

// Wired: the plan. Memory: the plan with its headroom. Neither is above the working set. Without a
// plan the working set is wired, and MLX's own memory limit stays. Pure.
DeviceLimits DeviceLimitsOf(const PlannedMemory& planned, std::optional<uint64_t> working_set);

// Sets them, where layers are MLX graphs. Returns a sentence for the rank's log where the working
// set is smaller than the plan; else nothing.
std::string LimitDeviceMemory(EngineDevice device, const PlannedMemory& planned,
                              DeviceMemory& memory);

// Clears the freed buffers behind the last chunk of a prompt, and every kStepsBetweenClears steps.
class CacheClearing {
 public:
  // `memory` outlives this. Null: nothing is cleared.
  explicit CacheClearing(DeviceMemory* memory) : memory_(memory) {}

  // Counts a step that is submitted: whether freed buffers are to be cleared once its results are
  // there. Before that its own buffers are still in use.
  bool IsDueAfter(const ForwardStep& step);
  void Clear();
  // Both, for a step whose results are there.
  void AfterStep(const ForwardStep& step);

 private:
  DeviceMemory* const memory_;
  uint32_t steps_ = 0;  // since the cache was cleared
};

// What a rank holds, each byte once. MLX counts its arrays; mapped weights and our kernels' own
// copies are outside of MLX.
struct RankMemory {
  uint64_t outside_mlx = 0;      // bytes
  uint64_t counted_already = 0;  // of what MLX held after loading, what is part of `outside_mlx`
  uint64_t With(uint64_t held_by_mlx) const;
};

// Of a rank that has loaded this many bytes of weights, while MLX holds so many. MLX graphs have
// all of them in MLX arrays. Our CPU kernels have none there but vectors, which MLX counts as well.
// Pure.
RankMemory RankMemoryOf(EngineDevice device, uint64_t loaded_bytes, uint64_t held_by_mlx);

}  // namespace macrame::runtime::engine
