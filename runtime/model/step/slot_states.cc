#include "runtime/model/step/slot_states.h"

#include <algorithm>
#include <set>
#include <string>

#include "absl/strings/str_cat.h"
#include "proto/check.h"
#include "runtime/model/step/slot_tables.h"

namespace macrame::runtime::engine {

SlotStates::SlotStates(int sequences_max, int snapshots)
    : sequences_max_(sequences_max), snapshots_(static_cast<size_t>(snapshots)) {}

absl::Status SlotStates::CheckSnapshots(const Segment& segment) const {
  const auto count = static_cast<int>(snapshots_.size());
  for (const SnapshotId id : {segment.state_from, segment.state_to}) {
    if (id != kNoSnapshot && (id < 0 || id >= count)) {
      return MalformedStep(segment, absl::StrCat("names snapshot ", id, " of ", count));
    }
  }
  return absl::OkStatus();
}

absl::Status SlotStates::Check(const ForwardStep& step) const {
  const std::set<uint32_t> closed(step.closed_slots.begin(), step.closed_slots.end());
  size_t open = 0;
  for (const auto& [slot, state] : slots_) open += closed.contains(slot) ? 0 : 1;
  for (const Segment& segment : step.segments) {
    if (const absl::Status good = CheckSnapshots(segment); !good.ok()) return good;
    const auto found = slots_.find(segment.slot);
    std::optional<uint64_t> stands = 0;
    if (found != slots_.end() && !closed.contains(segment.slot)) {
      if (segment.state_from != kNoSnapshot)
        return MalformedStep(segment, "takes a state once more");
      stands = found->second.position;
    } else {
      ++open;
      const bool from_snapshot = segment.state_from != kNoSnapshot;
      if (from_snapshot) stands = snapshots_[static_cast<size_t>(segment.state_from)];
    }
    if (stands != segment.begin) {
      const std::string where = stands.has_value() ? absl::StrCat(*stands) : "nowhere";
      return MalformedStep(
          segment, absl::StrCat("begins at ", segment.begin, ", its state stands at ", where));
    }
  }
  if (open > static_cast<size_t>(sequences_max_)) {
    return absl::InternalError(absl::StrCat("rank 0 sent a step with ", open,
                                            " sequences; there are states for ", sequences_max_));
  }
  return absl::OkStatus();
}

int SlotStates::FreeState() const {
  for (int state = 0; state < sequences_max_; ++state) {
    const bool taken = std::any_of(slots_.begin(), slots_.end(),
                                   [&](const auto& slot) { return slot.second.state == state; });
    if (!taken) return state;
  }
  MACRAME_CHECK(false) << "no state is free";
  return 0;
}

void SlotStates::Apply(const ForwardStep& step) {
  opened_.clear();
  kept_.clear();
  for (const uint32_t slot : step.closed_slots) slots_.erase(slot);
  for (const Segment& segment : step.segments) {
    auto found = slots_.find(segment.slot);
    if (found == slots_.end()) {
      found = slots_.emplace(segment.slot, Slot{FreeState(), segment.begin}).first;
      opened_.push_back({found->second.state, segment.state_from});
    }
    found->second.position += segment.tokens.size();
    if (segment.state_to != kNoSnapshot) kept_.push_back({found->second.state, segment.state_to});
  }
  for (const Segment& segment : step.segments) {
    if (segment.state_to == kNoSnapshot) continue;
    snapshots_[static_cast<size_t>(segment.state_to)] = slots_.at(segment.slot).position;
  }
}

}  // namespace macrame::runtime::engine
