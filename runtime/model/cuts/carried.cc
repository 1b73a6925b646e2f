#include "runtime/model/cuts/carried.h"

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

namespace {

// What layers from `layer` on read of entries that those before it made and chose.
void AddEntries(const ModelConfig& config, int layer, CarriedRow& row) {
  if (!config.has_compression()) return;
  const CompressTraits& traits = config.compress;
  const auto add = [&](CarriedRow::Part& part, int size) {
    part = {row.width, size};
    row.width += size;
  };
  bool reads_entry = false, reads_chosen = false, reads_candidates = false;
  bool is_made = false, is_chosen = false;  // behind the cut
  for (int reader = layer; reader < config.layer_count; ++reader) {
    const auto at = static_cast<size_t>(reader);
    if (traits.ratios[at] == 0) continue;
    is_made = is_made || traits.makes[at];
    is_chosen = is_chosen || traits.chooses[at];
    reads_entry = reads_entry || !is_made;
    reads_chosen = reads_chosen || !is_chosen;
    reads_candidates = reads_candidates || (traits.chooses[at] && layer > traits.candidate_layer);
  }
  if (reads_entry) add(row.entry, config.head_dim + traits.index_dim);
  if (reads_chosen) add(row.chosen, traits.index_top);
  if (reads_candidates) add(row.candidates, traits.candidate_blocks);
}

}  // namespace

CarriedRow CarriedInto(const ModelConfig& config, int layer) {
  CarriedRow row;
  row.hidden = config.streams.count * config.hidden_size;
  row.weights = config.has_streams() ? config.streams.count : 0;
  row.as_float32 = config.has_streams();
  row.first_input = layer;
  row.input_width = config.layer_input_width;
  row.width = row.InputBegin(config.layer_count);
  AddEntries(config, layer, row);
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
