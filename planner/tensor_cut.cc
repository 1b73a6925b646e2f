#include "planner/tensor_cut.h"

#include <algorithm>
#include <numeric>

#include "planner/saturating.h"

namespace macrame::planner {
namespace {

uint64_t GroupOf(const v1::ModelDescription& model) {
  return model.quantization().bits() == 0 ? 1 : std::max(1u, model.quantization().group_size());
}

// What a rank gets of [0, whole) in units: no more than the slice's part, rounded up to whole ones.
uint64_t UpTo(uint64_t whole, uint64_t unit, Slice slice, bool* even) {
  const uint64_t units = DivideRoundingUp(whole, unit) * slice.width;
  if (units % slice.of != 0 || whole % unit != 0) *even = slice.width == slice.of && *even;
  return std::min(whole, SaturatingMultiply(DivideRoundingUp(units, slice.of), unit));
}

double PartOf(uint64_t part, uint64_t whole) {
  return whole == 0 ? 0 : static_cast<double>(part) / static_cast<double>(whole);
}

}  // namespace

namespace {

uint32_t SliceCountOf(const v1::ModelDescription& model, uint32_t kv_heads) {
  const uint64_t group = GroupOf(model);
  const uint64_t attention = uint64_t{model.attention_heads()} * model.head_dim();
  uint64_t slices = std::gcd(model.attention_heads(), kv_heads);
  for (const uint64_t width : {attention, uint64_t{model.intermediate_size()}}) {
    if (width == 0) continue;
    slices = width % group == 0 ? std::gcd(slices, width / group) : 1;
  }
  uint64_t count = std::min<uint64_t>(slices, kSliceCountMax);
  while (count > 1 && slices % count != 0) --count;
  return static_cast<uint32_t>(std::max<uint64_t>(1, count));
}

}  // namespace

uint32_t SliceCount(const v1::ModelDescription& model) {
  return SliceCountOf(model, model.kv_heads());
}

uint32_t SlicesFor(const v1::ModelDescription& model, uint32_t tp, bool uneven) {
  if (tp <= 1) return 1;
  // One key-value head, which all others share, is held by every rank.
  const bool shares = !uneven && model.kv_heads() == 1;
  const uint32_t slices = shares ? SliceCountOf(model, model.attention_heads()) : SliceCount(model);
  if (slices % tp == 0) return slices;
  if (!uneven || tp > kSliceCountMax) return 0;
  return tp * std::max(1u, std::max(slices, kFineSlices) / tp);
}

Cut CutOf(const v1::ModelDescription& model, Slice slice) {
  const uint64_t group = GroupOf(model);
  const uint64_t kv_heads = std::max(1u, model.kv_heads());
  // Columns of the attention's output projection that belong to one key-value head.
  const uint64_t columns = model.attention_heads() / kv_heads * uint64_t{model.head_dim()};
  const uint64_t heads_at_once =
      std::min(kv_heads, group / std::gcd(group, std::max<uint64_t>(1, columns)));
  Cut cut;
  cut.kv_heads = UpTo(model.kv_heads(), heads_at_once, slice, &cut.even);
  cut.inner = model.intermediate_size();
  cut.experts = model.experts();
  if (slice.whole_experts) {
    cut.experts = UpTo(model.experts(), 1, slice, &cut.even);
  } else {
    cut.inner = UpTo(model.intermediate_size(), group, slice, &cut.even);
  }
  return cut;
}

double AttentionPart(const v1::ModelDescription& model, uint32_t layer) {
  const int index = static_cast<int>(layer);
  const double divisible = static_cast<double>(model.layer_divisible_bytes(index));
  if (index < model.layer_expert_bytes_size() && model.layer_expert_bytes(index) > 0) {
    const double experts = static_cast<double>(model.layer_expert_bytes(index));
    return divisible <= 0 ? 0 : std::clamp((divisible - experts) / divisible, 0.0, 1.0);
  }
  const double attention =
      2.0 * model.head_dim() * (double{1} * model.attention_heads() + double{1} * model.kv_heads());
  const double feed_forward = 3.0 * model.intermediate_size();
  return attention / (attention + feed_forward);
}

double InnerPart(const v1::ModelDescription& model, const Cut& cut, Slice slice) {
  const double even = static_cast<double>(slice.width) / slice.of;
  if (slice.whole_experts) return PartOf(cut.experts, model.experts());
  return model.intermediate_size() == 0 ? even : PartOf(cut.inner, model.intermediate_size());
}

double ShareOf(const v1::ModelDescription& model, uint32_t layer, Slice slice) {
  const int index = static_cast<int>(layer);
  const bool has_experts =
      index < model.layer_expert_bytes_size() && model.layer_expert_bytes(index) > 0;
  slice.whole_experts = slice.whole_experts && has_experts;
  const Cut cut = CutOf(model, slice);
  const double even = static_cast<double>(slice.width) / slice.of;
  if (cut.even) return even;
  const double attention = AttentionPart(model, layer);
  return attention * PartOf(cut.kv_heads, model.kv_heads()) +
         (1 - attention) * InnerPart(model, cut, slice);
}

uint32_t ExpertsHeld(const v1::ModelDescription& model, uint32_t first, Slice slice) {
  const auto cut = [&](uint64_t at) {
    return (2 * at * model.experts() + slice.of) / (2 * uint64_t{slice.of});
  };
  return static_cast<uint32_t>(cut(uint64_t{first} + slice.width) - cut(first));
}

}  // namespace macrame::planner
