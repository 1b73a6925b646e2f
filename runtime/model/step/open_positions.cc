#include "runtime/model/step/open_positions.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "runtime/model/step/slot_tables.h"

namespace macrame::runtime::engine {

absl::Status OpenPositions::Check(const ForwardStep& step) const {
  for (const Segment& segment : step.segments) {
    if (segment.begin % kBlockTokens == 0) continue;
    const auto& closed = step.closed_slots;
    const auto found = ends_.find(segment.slot);
    if (found == ends_.end() ||
        std::find(closed.begin(), closed.end(), segment.slot) != closed.end()) {
      return MalformedStep(segment, "begins within a block that it did not compute");
    }
    if (segment.begin + kBackMax < found->second) {
      return MalformedStep(segment, absl::StrCat("goes back from ", found->second, " to ",
                                                 segment.begin, ", more than ", kBackMax));
    }
  }
  return absl::OkStatus();
}

void OpenPositions::Apply(const ForwardStep& step) {
  for (const uint32_t slot : step.closed_slots) ends_.erase(slot);
  for (const Segment& segment : step.segments) {
    size_t& end = ends_[segment.slot];
    end = std::max(end, segment.begin + segment.tokens.size());
  }
}

}  // namespace macrame::runtime::engine
