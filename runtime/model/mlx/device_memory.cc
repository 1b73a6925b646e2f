#include "runtime/model/mlx/device_memory.h"

#include <algorithm>
#include <limits>
#include <variant>

#include "absl/strings/str_cat.h"
#include "mlx/mlx.h"
#include "proto/bytes.h"

namespace macrame::runtime::engine {

namespace mx = mlx::core;

namespace {

class MlxDeviceMemory final : public DeviceMemory {
 public:
  explicit MlxDeviceMemory(EngineDevice device) : device_(device) {}

  std::optional<uint64_t> WorkingSetBytes() override {
    if (device_ != EngineDevice::kGpu) return std::nullopt;
    const auto& facts = mx::device_info(mx::Device::gpu);
    const auto found = facts.find("max_recommended_working_set_size");
    if (found == facts.end() || !std::holds_alternative<size_t>(found->second)) {
      return std::nullopt;
    }
    return std::get<size_t>(found->second);
  }
  void SetWiredLimit(uint64_t bytes) override { mx::set_wired_limit(bytes); }
  void SetMemoryLimit(uint64_t bytes) override { mx::set_memory_limit(bytes); }
  void SetCacheLimit(uint64_t bytes) override { mx::set_cache_limit(bytes); }
  void ClearCache() override { mx::clear_cache(); }
  uint64_t HeldBytes() override { return mx::get_active_memory() + mx::get_cache_memory(); }

 private:
  const EngineDevice device_;
};

// A segment of one token is an answer's, also where a prompt's last chunk has one token alone: it
// leaves no larger buffers than a token of an answer.
bool EndsPrompt(const ForwardStep& step) {
  return std::any_of(step.segments.begin(), step.segments.end(), [](const Segment& segment) {
    const LogitRows rows = segment.logit_rows;
    return segment.tokens.size() > 1 && (rows == LogitRows::kLast || rows == LogitRows::kChosen ||
                                         rows == LogitRows::kHiddenLast);
  });
}

}  // namespace

std::unique_ptr<DeviceMemory> MakeDeviceMemory(EngineDevice device) {
  return std::make_unique<MlxDeviceMemory>(device);
}

DeviceLimits DeviceLimitsOf(const PlannedMemory& planned, std::optional<uint64_t> working_set) {
  DeviceLimits limits;
  if (planned.wired == 0) {
    limits.wired = working_set;
    return limits;
  }
  constexpr uint64_t kMost = std::numeric_limits<uint64_t>::max();
  const uint64_t most = working_set.value_or(kMost);
  limits.wired = std::min(planned.wired, most);
  limits.memory = std::min(planned.wired + std::min(planned.headroom, kMost - planned.wired), most);
  return limits;
}

std::string LimitDeviceMemory(EngineDevice device, const PlannedMemory& planned,
                              DeviceMemory& memory) {
  if (!UsesMlxGraph(device)) return "";
  const std::optional<uint64_t> working_set = memory.WorkingSetBytes();
  const DeviceLimits limits = DeviceLimitsOf(planned, working_set);
  memory.SetCacheLimit(limits.cache);
  if (limits.memory.has_value()) memory.SetMemoryLimit(*limits.memory);
  if (limits.wired.has_value()) memory.SetWiredLimit(*limits.wired);
  if (!working_set.has_value() || planned.wired <= *working_set) return "";
  return absl::StrCat(
      "the plan keeps ", FormatBytes(Bytes(planned.wired)),
      " resident for the GPU, but MLX reports a working set of ", FormatBytes(Bytes(*working_set)),
      ": only that much is wired, and the rest "
      "may be paged. Load a smaller copy of the model, or raise the limit with "
      "'sudo sysctl iogpu.wired_limit_mb=MIB', which is lost when the Mac restarts");
}

bool CacheClearing::IsDueAfter(const ForwardStep& step) {
  if (memory_ == nullptr || step.segments.empty()) return false;
  if (++steps_ < kStepsBetweenClears && !EndsPrompt(step)) return false;
  steps_ = 0;
  return true;
}

void CacheClearing::Clear() {
  if (memory_ != nullptr) memory_->ClearCache();
}

void CacheClearing::AfterStep(const ForwardStep& step) {
  if (IsDueAfter(step)) Clear();
}

uint64_t RankMemory::With(uint64_t held_by_mlx) const {
  return outside_mlx + held_by_mlx - std::min(held_by_mlx, counted_already);
}

RankMemory RankMemoryOf(EngineDevice device, uint64_t loaded_bytes, uint64_t held_by_mlx) {
  if (UsesMlxGraph(device)) return {};
  return {loaded_bytes, std::min(loaded_bytes, held_by_mlx)};
}

}  // namespace macrame::runtime::engine
