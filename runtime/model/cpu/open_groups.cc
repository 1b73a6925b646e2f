#include "runtime/model/cpu/open_groups.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "runtime/model/step/slot_tables.h"

namespace macrame::runtime::engine {

OpenGroups::OpenGroups(size_t layers, size_t width) : layers_(layers), width_(width) {}

absl::Status OpenGroups::Check(const ForwardStep& step) const {
  if (empty()) return absl::OkStatus();
  for (const Segment& segment : step.segments) {
    if (segment.begin % kBlockTokens == 0) continue;
    const auto& closed = step.closed_slots;
    const auto found = slots_.find(segment.slot);
    if (found == slots_.end() ||
        std::find(closed.begin(), closed.end(), segment.slot) != closed.end()) {
      return MalformedStep(segment, "begins within a block that it did not compute");
    }
    if (segment.begin + kBackMax < found->second.end) {
      return MalformedStep(segment, absl::StrCat("goes back from ", found->second.end, " to ",
                                                 segment.begin, ", more than ", kBackMax));
    }
  }
  return absl::OkStatus();
}

void OpenGroups::Apply(const ForwardStep& step) {
  if (empty()) return;
  for (const uint32_t slot : step.closed_slots) slots_.erase(slot);
  for (const Segment& segment : step.segments) {
    Slot& slot = slots_[segment.slot];
    slot.numbers.Reserve(layers_ * kPositions * width_);
    slot.end = std::max(slot.end, segment.begin + segment.tokens.size());
  }
}

uint64_t OpenGroups::memory_bytes() const {
  uint64_t bytes = 0;
  for (const auto& [id, slot] : slots_) bytes += slot.numbers.bytes();
  return bytes;
}

}  // namespace macrame::runtime::engine
