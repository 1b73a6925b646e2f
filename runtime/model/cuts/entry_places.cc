#include "runtime/model/cuts/entry_places.h"

namespace macrame::runtime::engine {

EntryPlaces::EntryPlaces(const ModelConfig& config, const ShardPlace& place) {
  if (!config.has_compression()) return;
  const CompressTraits& traits = config.compress;
  for (int layer = place.layer_begin; layer < place.layer_end; ++layer) {
    const auto at = static_cast<size_t>(layer);
    const bool looks = traits.ratios[at] > 0;
    if (looks && traits.makes[at]) ++count;
    if (looks && traits.SourceOf(layer) < place.layer_begin && !first_is_handed) {
      first_is_handed = true;
      handed_ratio = traits.ratios[at];
      ++count;
    }
    of_layer.push_back(looks ? count - 1 : -1);
  }
}

int PoolingLayersOf(const ModelConfig& config, const ShardPlace& place) {
  int count = 0;
  if (!config.has_compression()) return count;
  for (int layer = place.layer_begin; layer < place.layer_end; ++layer) {
    const auto at = static_cast<size_t>(layer);
    if (config.compress.makes[at] && config.compress.ratios[at] > 1) ++count;
  }
  return count;
}

}  // namespace macrame::runtime::engine
