#include "runtime/model/mlx/open_groups.h"

#include <algorithm>

#include "proto/check.h"

namespace macrame::runtime::engine {

namespace mx = mlx::core;

namespace {

mx::array Rows(const mx::array& x, int begin, int end) {
  return mx::slice(x, {begin, 0}, {end, x.shape(1)});
}

}  // namespace

absl::Status MlxOpenGroups::Check(const ForwardStep& step) const {
  return layers_ == 0 ? absl::OkStatus() : positions_.Check(step);
}

void MlxOpenGroups::Apply(const ForwardStep& step) {
  if (layers_ == 0) return;
  positions_.Apply(step);
  for (const uint32_t slot : step.closed_slots) slots_.erase(slot);
  for (const Segment& segment : step.segments) slots_[segment.slot].resize(layers_);
}

mx::array MlxOpenGroups::Kept(uint32_t slot, size_t layer, int begin, int end) const {
  const std::optional<Numbers>& kept = slots_.at(slot)[layer];
  MACRAME_CHECK(kept.has_value() && kept->begin <= begin &&
                end <= kept->begin + kept->each.shape(0))
      << "positions [" << begin << ", " << end << ") of slot " << slot << " are not kept";
  return Rows(kept->each, begin - kept->begin, end - kept->begin);
}

void MlxOpenGroups::Keep(uint32_t slot, size_t layer, int begin, const mx::array& rows) {
  std::optional<Numbers>& kept = slots_.at(slot)[layer];
  const int end = begin + rows.shape(0);
  const int first = std::max(0, end - static_cast<int>(OpenPositions::kKept));
  if (first >= begin) {
    // Not to keep a whole prompt's numbers in memory.
    kept.emplace(Numbers{first, mx::contiguous(Rows(rows, first - begin, rows.shape(0)))});
    return;
  }
  const bool goes_on = kept.has_value() && kept->begin <= begin &&
                       begin <= kept->begin + kept->each.shape(0) &&
                       std::max(first, kept->begin) < begin;
  if (!goes_on) {
    kept.emplace(Numbers{begin, mx::contiguous(rows)});  // not a step's whole buffer
    return;
  }
  const int from = std::max(first, kept->begin);
  kept.emplace(Numbers{
      from, mx::concatenate({Rows(kept->each, from - kept->begin, begin - kept->begin), rows}, 0)});
}

void MlxOpenGroups::Append(std::vector<mx::array>& out) const {
  for (const auto& [slot, layers] : slots_) {
    for (const auto& layer : layers) {
      if (layer.has_value()) out.push_back(layer->each);
    }
  }
}

}  // namespace macrame::runtime::engine
