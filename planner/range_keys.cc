#include "planner/range_keys.h"

#include <array>
#include <cstddef>
#include <map>

#include "planner/memory_model.h"

namespace macrame::planner {
namespace {

constexpr uint32_t kBits = 11;  // holds kLayersMax
constexpr size_t kKindsMax = 5;

}  // namespace

RangeKeys::RangeKeys(const v1::ModelDescription& model) {
  std::map<std::array<uint64_t, 4>, uint32_t> kinds;
  for (uint32_t i = 0; i < model.layer_count(); ++i) {
    const int layer = static_cast<int>(i);
    const std::array<uint64_t, 4> kind = {
        model.layer_bytes(layer), model.layer_divisible_bytes(layer), LayerExpertBytes(model, i),
        AttendsToAll(model, i) ? 1u : 0u};
    kinds_.push_back(kinds.emplace(kind, static_cast<uint32_t>(kinds.size())).first->second);
  }
  before_.assign(kinds_.size() + 1, 0);
  usable_ = kinds.size() <= kKindsMax;
  for (size_t i = 0; usable_ && i < kinds_.size(); ++i) {
    before_[i + 1] = before_[i] + (uint64_t{1} << (kBits * kinds_[i]));
  }
}

uint64_t RangeKeys::Of(uint32_t begin, uint32_t end) const {
  const uint64_t ends = (begin == 0 ? 1u : 0u) + (end + 1 == before_.size() ? 2u : 0u);
  if (!usable_) return (uint64_t{begin} << 32 | end) << 2 | ends;
  return (before_[end] - before_[begin]) << 2 | ends;
}

}  // namespace macrame::planner
