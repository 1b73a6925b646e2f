#include "runtime/model/cpu/open_groups.h"

#include "runtime/model/config/model_config.h"

namespace macrame::runtime::engine {

// As OpenPositions takes it.
static_assert(CompressTraits::kRatioMax <= static_cast<int>(kBlockTokens));

OpenGroups::OpenGroups(size_t layers, size_t width) : layers_(layers), width_(width) {}

absl::Status OpenGroups::Check(const ForwardStep& step) const {
  return empty() ? absl::OkStatus() : positions_.Check(step);
}

void OpenGroups::Apply(const ForwardStep& step) {
  if (empty()) return;
  positions_.Apply(step);
  for (const uint32_t slot : step.closed_slots) slots_.erase(slot);
  for (const Segment& segment : step.segments) {
    slots_[segment.slot].Reserve(layers_ * kPositions * width_);
  }
}

uint64_t OpenGroups::memory_bytes() const {
  uint64_t bytes = 0;
  for (const auto& [slot, numbers] : slots_) bytes += numbers.bytes();
  return bytes;
}

}  // namespace macrame::runtime::engine
