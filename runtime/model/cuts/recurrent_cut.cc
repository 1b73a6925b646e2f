#include "runtime/model/cuts/recurrent_cut.h"

namespace macrame::runtime::engine {
namespace {

// The next `count` numbers from `begin`.
void AddRun(size_t begin, size_t count, std::vector<int>& out) {
  for (size_t i = 0; i < count; ++i) out.push_back(static_cast<int>(begin + i));
}

}  // namespace

RecurrentCut RecurrentCutOf(const ModelConfig& config, const SliceRange& slices) {
  const RecurrentTraits& traits = config.recurrent;
  RecurrentCut cut;
  if (!config.has_state()) return cut;
  cut.heads = StateHeadsOf(config, slices);
  cut.key_heads = static_cast<size_t>(cut.heads.size());
  cut.value_heads = cut.key_heads * static_cast<size_t>(traits.group());
  cut.key_dim = static_cast<size_t>(traits.key_dim);
  cut.value_dim = static_cast<size_t>(traits.value_dim);
  cut.taps = static_cast<size_t>(traits.taps);
  cut.gates = traits.rule == RecurrenceRule::kStateSpace ? 1 : 2;
  return cut;
}

std::vector<int> ChannelsOf(const ModelConfig& config, const RecurrentCut& cut) {
  const RecurrentTraits& traits = config.recurrent;
  const size_t all_keys = static_cast<size_t>(traits.key_heads) * cut.key_dim;
  const auto first = static_cast<size_t>(cut.heads.begin);
  const size_t first_value = first * static_cast<size_t>(traits.group()) * cut.value_dim;
  std::vector<int> channels;
  if (traits.rule == RecurrenceRule::kStateSpace) {  // values, keys, queries
    const size_t all_values = static_cast<size_t>(traits.value_heads) * cut.value_dim;
    AddRun(all_values + all_keys + first * cut.key_dim, cut.key_width(), channels);
    AddRun(all_values + first * cut.key_dim, cut.key_width(), channels);
    AddRun(first_value, cut.value_width(), channels);
    return channels;
  }
  AddRun(first * cut.key_dim, cut.key_width(), channels);
  AddRun(all_keys + first * cut.key_dim, cut.key_width(), channels);
  AddRun(2 * all_keys + first_value, cut.value_width(), channels);
  return channels;
}

std::vector<int> ProjectedOrder(const ModelConfig& config, const RecurrentCut& cut) {
  std::vector<int> order;
  if (config.recurrent.rule == RecurrenceRule::kStateSpace) {  // z, values, keys, queries, steps
    const size_t z = cut.value_width(), k = cut.key_width();
    AddRun(2 * z + k, k, order);
    AddRun(2 * z, k, order);
    AddRun(z, z, order);
    AddRun(0, z, order);
    AddRun(2 * z + 2 * k, cut.value_heads, order);
    return order;
  }
  if (!config.recurrent.by_key_head) {
    AddRun(0, cut.projected(), order);
    return order;
  }
  const auto group = static_cast<size_t>(config.recurrent.group());
  const size_t keys = cut.key_dim, values = group * cut.value_dim;
  const size_t head = 2 * keys + 2 * values;  // rows of a key head in in_proj_qkvz
  const auto take = [&](size_t begin, size_t stride, size_t from, size_t count) {
    for (size_t i = 0; i < cut.key_heads; ++i) AddRun(begin + i * stride + from, count, order);
  };
  take(0, head, 0, keys);
  take(0, head, keys, keys);
  take(0, head, 2 * keys, values);
  take(0, head, 2 * keys + values, values);
  take(cut.key_heads * head, 2 * group, 0, group);
  take(cut.key_heads * head, 2 * group, group, group);
  return order;
}

int RecurrentLayersOf(const ModelConfig& config, const ShardPlace& place) {
  int layers = 0;
  for (int layer = place.layer_begin; layer < place.layer_end; ++layer) {
    if (config.IsRecurrent(layer)) ++layers;
  }
  return layers;
}

}  // namespace macrame::runtime::engine
