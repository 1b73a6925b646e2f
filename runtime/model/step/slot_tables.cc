#include "runtime/model/step/slot_tables.h"

#include <algorithm>
#include <set>

#include "absl/strings/str_cat.h"

namespace macrame::runtime::engine {

absl::Status MalformedStep(const Segment& segment, const std::string& what) {
  return absl::InternalError(
      absl::StrCat("rank 0 sent a step in which slot ", segment.slot, " ", what));
}

SlotTables::SlotTables(int blocks_total, int positions_max)
    : blocks_total_(blocks_total), positions_max_(positions_max) {}

absl::Status SlotTables::Check(const Segment& segment, size_t blocks_before, int vocab_size) const {
  if (segment.tokens.empty()) return MalformedStep(segment, "has no tokens");
  for (const int32_t token : segment.tokens) {
    if (token >= vocab_size || (IsChosenRow(token) && ChosenRowOf(token) >= chosen_rows_)) {
      return MalformedStep(segment, absl::StrCat("has token ", token));
    }
  }
  for (const int32_t block : segment.new_blocks) {
    if (block < 0 || block >= blocks_total_) {
      return MalformedStep(segment, absl::StrCat("gets block ", block, " of ", blocks_total_));
    }
  }
  const uint64_t end = uint64_t{segment.begin} + segment.tokens.size();
  if (end > static_cast<uint64_t>(positions_max_)) {
    return MalformedStep(segment, absl::StrCat("reaches position ", end, " of ", positions_max_));
  }
  const size_t blocks = blocks_before + segment.new_blocks.size();
  // After drafts that were wrong a table may have a block more than it needs.
  const auto needed = static_cast<size_t>(BlocksFor(static_cast<int>(end)));
  if (blocks != std::max(needed, blocks_before)) {
    return MalformedStep(segment, absl::StrCat("has ", blocks, " blocks for ", end, " positions"));
  }
  return absl::OkStatus();
}

absl::Status SlotTables::Apply(const ForwardStep& step, int vocab_size) {
  for (const BlockCopy& copy : step.copies) {
    const auto [low, high] = std::minmax(copy.from, copy.to);
    if (low < 0 || high >= blocks_total_) {
      return absl::InternalError(absl::StrCat("rank 0 sent a step that copies block ", copy.from,
                                              " to ", copy.to, " of ", blocks_total_));
    }
  }
  const std::set<uint32_t> closed(step.closed_slots.begin(), step.closed_slots.end());
  std::set<uint32_t> seen;
  for (const Segment& segment : step.segments) {
    if (!seen.insert(segment.slot).second) return MalformedStep(segment, "stands twice");
    const auto table = tables_.find(segment.slot);
    const bool is_open = table != tables_.end() && !closed.contains(segment.slot);
    const absl::Status good = Check(segment, is_open ? table->second.size() : 0, vocab_size);
    if (!good.ok()) return good;
  }
  for (const uint32_t slot : step.closed_slots) tables_.erase(slot);
  for (const Segment& segment : step.segments) {
    std::vector<int32_t>& table = tables_[segment.slot];
    table.insert(table.end(), segment.new_blocks.begin(), segment.new_blocks.end());
  }
  if (!step.segments.empty()) chosen_rows_ = CountChosenRows(step);
  return absl::OkStatus();
}

}  // namespace macrame::runtime::engine
