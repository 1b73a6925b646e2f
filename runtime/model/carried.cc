#include "runtime/model/carried.h"

#include <algorithm>
#include <set>

namespace macrame::runtime::engine {

std::vector<int> KvLayersOf(const ModelConfig& config, const ShardPlace& place) {
  std::set<int> layers;
  for (int layer = place.layer_begin; layer < place.layer_end; ++layer) {
    if (config.MixerOf(layer) == MixerKind::kAttention) layers.insert(config.KvSourceOf(layer));
  }
  return {layers.begin(), layers.end()};
}

const CarriedRow::Kv* CarriedRow::KvOf(int layer) const {
  const auto found =
      std::find_if(kv.begin(), kv.end(), [&](const Kv& held) { return held.layer == layer; });
  return found == kv.end() ? nullptr : &*found;
}

CarriedRow CarriedInto(const ModelConfig& config, int layer) {
  CarriedRow row;
  row.hidden = config.hidden_size;
  row.first_input = layer;
  row.input_width = config.layer_input_width;
  row.width = row.InputBegin(config.layer_count);
  for (const int source : KvLayersOf(config, {layer, config.layer_count})) {
    if (source >= layer) break;
    row.kv.push_back({source, row.width, config.HeadsOf(source)});
    row.width += 2 * row.kv.back().size();
  }
  return row;
}

int CarriedWidthMax(const ModelConfig& config) {
  int widest = config.hidden_size;
  for (int layer = 1; layer < config.layer_count; ++layer) {
    widest = std::max(widest, CarriedInto(config, layer).width);
  }
  return widest;
}

}  // namespace macrame::runtime::engine
