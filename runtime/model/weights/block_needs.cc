#include "runtime/model/weights/block_needs.h"

#include "absl/strings/str_cat.h"

namespace macrame::runtime::engine {

Range IndexHeadsOf(const ModelConfig& config, const Range& kv_heads) {
  const int each = config.kv_heads / config.block_index.heads;
  const int begin = kv_heads.begin / each;
  if (kv_heads.size() == 0) return {begin, begin};
  return {begin, (kv_heads.end + each - 1) / each};
}

BlockIndexNeeds BlockIndexNeedsOf(const ModelConfig& config, const Range& kv_heads,
                                  const std::string& prefix) {
  const BlockIndexTraits& traits = config.block_index;
  const auto norm = [&](const char* name) {
    VectorNeed need{absl::StrCat(prefix, name), traits.dim};
    need.adds_one = config.norm_adds_one;
    return need;
  };
  return {{absl::StrCat(prefix, "index_q_proj"), traits.heads * traits.dim, config.hidden_size,
           Split::kRows, Times(IndexHeadsOf(config, kv_heads), traits.dim)},
          {absl::StrCat(prefix, "index_k_proj"), traits.dim, config.hidden_size},
          norm("index_q_norm.weight"),
          norm("index_k_norm.weight")};
}

std::vector<int> BlockIndexLayersOf(const ModelConfig& config, const ShardPlace& place) {
  std::vector<int> layers;
  for (int layer = place.layer_begin; layer < place.layer_end; ++layer) {
    if (config.ChoosesBlocks(layer)) layers.push_back(layer);
  }
  return layers;
}

}  // namespace macrame::runtime::engine
