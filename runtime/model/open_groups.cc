#include "runtime/model/open_groups.h"

#include <algorithm>

#include "runtime/model/slot_tables.h"

namespace macrame::runtime::engine {

OpenGroups::OpenGroups(size_t layers, size_t width) : layers_(layers), width_(width) {}

absl::Status OpenGroups::Check(const ForwardStep& step) const {
  if (empty()) return absl::OkStatus();
  for (const Segment& segment : step.segments) {
    const auto& closed = step.closed_slots;
    const bool is_open = slots_.contains(segment.slot) &&
                         std::find(closed.begin(), closed.end(), segment.slot) == closed.end();
    if (!is_open && segment.begin % kBlockTokens != 0) {
      return MalformedStep(segment, "begins within a block that it did not compute");
    }
  }
  return absl::OkStatus();
}

void OpenGroups::Apply(const ForwardStep& step) {
  if (empty()) return;
  for (const uint32_t slot : step.closed_slots) slots_.erase(slot);
  for (const Segment& segment : step.segments) {
    slots_[segment.slot].Reserve(layers_ * kPositions * width_);
  }
}

uint64_t OpenGroups::memory_bytes() const {
  uint64_t bytes = 0;
  for (const auto& [slot, buffer] : slots_) bytes += buffer.bytes();
  return bytes;
}

}  // namespace macrame::runtime::engine
