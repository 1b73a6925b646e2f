#include "runtime/model/cuts/tensor_cut.h"

#include <algorithm>
#include <numeric>

#include "absl/strings/str_cat.h"

namespace macrame::runtime::engine {
namespace {

int GroupOf(const QuantizationTraits& traits) {
  return traits.bits == 0 ? 1 : std::max(1, traits.group_size);
}

int GroupOf(const ModelConfig& config, int layer, const char* module) {
  return GroupOf(config.QuantizationOf(absl::StrCat("model.layers.", layer, ".", module)));
}

// How many of `heads` are cut together, so that their parts of the columns of `module`, each
// `columns` wide, are whole groups in every layer.
int HeadUnit(const ModelConfig& config, const std::string& module, int heads, int64_t columns) {
  int64_t group = GroupOf(config.quantization);
  const bool alike = config.quantization_overrides.empty();
  for (int layer = 0; !alike && layer < config.layer_count; ++layer) {
    group = std::lcm(group, int64_t{GroupOf(config, layer, module.c_str())});
  }
  return static_cast<int>(std::min<int64_t>(heads, group / std::gcd(group, columns)));
}

Range CutHeads(const ModelConfig& config, const HeadTraits& heads, const SliceRange& slices) {
  const std::string output = absl::StrCat(config.attention_module, ".", config.output_name());
  const int unit = HeadUnit(config, output, heads.kv_heads, config.OutputColumns(heads));
  return CutInUnits(heads.kv_heads, unit, slices);
}

// "model.layers.N." is before it: of experts, whose modules may stand below none.
std::string ModuleOf(const ExpertTraits& experts, const std::string& name) {
  return experts.module.empty() ? name : absl::StrCat(experts.module, ".", name);
}

}  // namespace

Range CutInUnits(int whole, int unit, const SliceRange& slices) {
  const int64_t units = (int64_t{whole} + unit - 1) / unit;
  const auto cut = [&](int64_t slice) {
    const int64_t nearest = (2 * units * slice + slices.count) / (2 * int64_t{slices.count});
    return static_cast<int>(std::min<int64_t>(whole, nearest * unit));
  };
  return {cut(slices.begin), cut(slices.end)};
}

Range KvHeadsOf(const ModelConfig& config, const SliceRange& slices) {
  return CutHeads(config, {config.kv_heads, config.head_dim}, slices);
}

Range KvHeadsOf(const ModelConfig& config, int layer, const SliceRange& slices) {
  return CutHeads(config, config.HeadsOf(layer), slices);
}

Range StateHeadsOf(const ModelConfig& config, const SliceRange& slices) {
  const RecurrentTraits& traits = config.recurrent;
  if (traits.key_heads == 0) return {};
  const int64_t columns = int64_t{traits.group()} * traits.value_dim;
  const int unit = HeadUnit(config, traits.module + ".out_proj", traits.key_heads, columns);
  return CutInUnits(traits.key_heads, unit, slices);
}

Range InnerOf(const ModelConfig& config, int layer, const SliceRange& slices) {
  const std::string down = config.feed_module + ".down_proj";
  return CutInUnits(config.FeedWidthOf(layer), GroupOf(config, layer, down.c_str()), slices);
}

Range ExpertsOf(const ModelConfig& config, const SliceRange& slices) {
  if (!slices.whole_experts) return {0, config.experts.count};
  return CutInUnits(config.experts.count, 1, slices);
}

Range ExpertInnerOf(const ModelConfig& config, int layer, const SliceRange& slices) {
  if (slices.whole_experts) return {0, config.experts.width};
  // An expert that is stored by itself is quantised as the stacked ones would be.
  const std::string down = ModuleOf(
      config.experts, absl::StrCat(config.experts.stacked_name, ".", config.experts.stacked_down));
  return CutInUnits(config.experts.width, GroupOf(config, layer, down.c_str()), slices);
}

Range SharedInnerOf(const ModelConfig& config, int layer, const SliceRange& slices) {
  const std::string down =
      absl::StrCat(config.experts.module, ".", config.experts.shared_module, ".down_proj");
  return CutInUnits(config.experts.shared_width, GroupOf(config, layer, down.c_str()), slices);
}

Range VocabularyOf(const ModelConfig& config, const SliceRange& slices) {
  return CutInUnits(config.vocab_size, 1, slices);
}

}  // namespace macrame::runtime::engine
