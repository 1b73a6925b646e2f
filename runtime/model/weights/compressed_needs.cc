#include "runtime/model/weights/compressed_needs.h"

#include "absl/strings/str_cat.h"

namespace macrame::runtime::engine {
namespace {

// What a layer that chooses entries has besides, and one that makes them.
void AddEntries(const ModelConfig& config, int layer, const std::string& prefix,
                CompressedNeeds& own) {
  const CompressTraits& traits = config.compress;
  const auto at = static_cast<size_t>(layer);
  const int hidden = config.hidden_size, dim = config.head_dim;
  const std::string indexer = absl::StrCat(prefix, "indexer.");
  const std::string compressor = absl::StrCat(prefix, "compressor.");
  if (traits.chooses[at]) {
    own.index_q = {absl::StrCat(indexer, "q_b_proj"), traits.index_heads * traits.index_dim,
                   traits.q_rank};
    own.index_weights = {absl::StrCat(indexer, "weights_proj"), traits.index_heads, hidden};
  }
  if (!traits.makes[at]) return;
  own.entry = {absl::StrCat(compressor, "kv_proj"), dim, hidden};
  if (traits.ratios[at] > 1) own.entry_gate = {absl::StrCat(compressor, "gate_proj"), dim, hidden};
  own.entry.exact = own.entry_gate.exact = true;
  own.entry_norm = {absl::StrCat(compressor, "kv_norm.weight"), dim};
  own.index_key = {absl::StrCat(indexer, "k_proj"), traits.index_dim, dim};
  own.index_key_norm = {absl::StrCat(indexer, "k_norm.weight"), traits.index_dim};
}

}  // namespace

CompressedNeeds CompressedNeedsOf(const ModelConfig& config, int layer, const Range& groups,
                                  const std::string& prefix) {
  const CompressTraits& traits = config.compress;
  const int hidden = config.hidden_size, dim = config.head_dim;
  const int width = config.attention_heads / traits.groups * dim;  // of a group's heads
  CompressedNeeds own;
  own.q_a = {absl::StrCat(prefix, "q_a_proj"), traits.q_rank, hidden};
  own.q_b = {absl::StrCat(prefix, "q_b_proj"), traits.groups * width, traits.q_rank, Split::kRows,
             Times(groups, width)};
  own.kv = {absl::StrCat(prefix, "kv_proj"), dim, hidden};
  own.group_out = {absl::StrCat(prefix, "o_a_proj"), traits.groups * traits.group_rank, width,
                   Split::kRows, Times(groups, traits.group_rank)};
  own.group_out.heads = traits.groups;
  own.group_out.may_be_flat = true;
  own.q_a_norm = {absl::StrCat(prefix, "q_a_norm.weight"), traits.q_rank};
  own.kv_norm = {absl::StrCat(prefix, "kv_norm.weight"), dim};
  AddEntries(config, layer, prefix, own);
  return own;
}

StreamNeeds StreamNeedsOf(const ModelConfig& config, const std::string& prefix) {
  const StreamTraits& traits = config.streams;
  StreamNeeds needs{{absl::StrCat(prefix, "fn"), traits.mixes(), traits.count * config.hidden_size},
                    {absl::StrCat(prefix, "base"), traits.mixes()},
                    {absl::StrCat(prefix, "scale"), 3}};
  needs.map.exact = needs.base.exact = needs.scale.exact = true;
  return needs;
}

}  // namespace macrame::runtime::engine
