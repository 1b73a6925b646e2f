// MiniMax M3, of which the text is read: a few dense layers, then experts beside one that every
// token takes, all with gate and up clamped; in most layers each key-value head attends to the
// blocks of positions that an indexer chooses for it.

#include <algorithm>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "runtime/model/families/config_fields.h"
#include "runtime/model/families/family.h"

namespace macrame::runtime::engine {
namespace {

using nlohmann::json;

// A list with an entry for each layer; null when it is missing.
const json* FindByLayer(const json& config, const char* key, const ModelConfig& out) {
  const json* found = FindField(config, key);
  if (found == nullptr) return nullptr;
  if (!found->is_array() || found->size() != static_cast<size_t>(out.layer_count)) {
    Invalid(absl::StrCat("'", key, "' is no list of ", out.layer_count,
                         " entries, one for each layer of 'num_hidden_layers'"));
  }
  return found;
}

// By layer, of a list of words or of one of numbers that are zero or not; all layers without both.
std::vector<bool> ReadKinds(const json& words, const char* words_key, const char* no,
                            const char* yes, const json& flags, const char* flags_key,
                            const ModelConfig& out) {
  std::vector<bool> kinds(static_cast<size_t>(out.layer_count), true);
  if (const json* named = FindByLayer(words, words_key, out); named != nullptr) {
    for (size_t layer = 0; layer < kinds.size(); ++layer) {
      const json& name = (*named)[layer];
      if (name != no && name != yes) {
        Unsupported(absl::StrCat("'", words_key, "' names ", name.dump(), "; ", no, " and ", yes,
                                 " are implemented"));
      }
      kinds[layer] = name == yes;
    }
  } else if (const json* given = FindByLayer(flags, flags_key, out); given != nullptr) {
    for (size_t layer = 0; layer < kinds.size(); ++layer) {
      const json& flag = (*given)[layer];
      if (!flag.is_number_integer() && !flag.is_boolean()) {
        Invalid(absl::StrCat("'", flags_key, "' holds ", flag.dump(), ", neither 0 nor 1"));
      }
      kinds[layer] = flag.is_boolean() ? flag.get<bool>() : flag.get<int64_t>() != 0;
    }
  }
  return kinds;
}

// What its makers' configs may say of the indexer and the engine has in one form alone.
void ExpectKnownIndexer(const json& sparse, const std::vector<bool>& layers,
                        const ModelConfig& out) {
  if (!ReadBool(sparse, "use_sparse_attention", true)) {
    Unsupported("'use_sparse_attention' is false, beside sizes of an indexer");
  }
  if (const std::string type = ReadText(sparse, "sparse_score_type", "max"); type != "max") {
    Unsupported(absl::StrCat("'sparse_score_type' '", type, "' is not implemented; max is"));
  }
  if (ReadInt(sparse, "sparse_init_block", 0, 0) != 0) {
    Unsupported("'sparse_init_block': first blocks that are always chosen are not implemented");
  }
  const json* disabled = FindField(sparse, "sparse_disable_index_value");
  if (disabled == nullptr || !disabled->is_array()) return;
  for (size_t layer = 0; layer < std::min(disabled->size(), layers.size()); ++layer) {
    const json& off = (*disabled)[layer];
    if (layers[layer] && (off == 0 || off == false)) {
      Unsupported(absl::StrCat("'sparse_disable_index_value': layer ", layer, " of ",
                               out.layer_count,
                               " has index values, which are not implemented; index keys are"));
    }
  }
}

void ReadBlockIndex(const json& config, ModelConfig& out) {
  const json* found = FindField(config, "sparse_attention_config");
  const bool nested = found != nullptr && found->is_object();
  const json& sparse = nested ? *found : config;
  const auto key = [&](const char* inside, const char* flat) { return nested ? inside : flat; };
  const char* size_key = key("sparse_block_size", "index_block_size");
  if (FindField(sparse, size_key) == nullptr) return;  // all positions are attended to
  BlockIndexTraits& index = out.block_index;
  index.size = ReadInt(sparse, size_key, std::nullopt);
  const char* top_key = key("sparse_topk_blocks", "index_topk_blocks");
  index.top = ReadInt(sparse, top_key, std::nullopt);
  const char* local_key = key("sparse_local_block", "index_local_blocks");
  index.local = ReadInt(sparse, local_key, 1, 0);
  const char* heads_key = key("sparse_num_index_heads", "index_n_heads");
  index.heads = ReadInt(sparse, heads_key, std::nullopt);
  const char* dim_key = key("sparse_index_dim", "index_head_dim");
  index.dim = ReadInt(sparse, dim_key, std::nullopt);
  index.layers = ReadKinds(config, "layer_types", "full_attention", "minimax_m3_sparse", sparse,
                           "sparse_attention_freq", out);
  ExpectKnownIndexer(sparse, index.layers, out);
  if (index.local > index.top) {
    Invalid(
        absl::StrCat("'", local_key, "' ", index.local, " is above '", top_key, "' ", index.top));
  }
  if (int64_t{index.top} * index.size > kDimensionMax ||
      int64_t{index.heads} * index.dim > kDimensionMax) {
    Invalid(absl::StrCat("'", top_key, "' ", index.top, " blocks of ", index.size,
                         " positions, or ", index.heads, " queries of ", index.dim,
                         " numbers, are more than ", kDimensionMax));
  }
  if (index.size % BlockIndexTraits::kSizeUnit != 0) {
    Unsupported(absl::StrCat("'", size_key, "' ", index.size, "; multiples of ",
                             BlockIndexTraits::kSizeUnit, " are implemented"));
  }
  if (out.kv_heads % index.heads != 0) {
    Unsupported(absl::StrCat("'", heads_key, "' ", index.heads,
                             " don't divide 'num_key_value_heads' ", out.kv_heads,
                             "; queries of an indexer that serve as many heads each are "
                             "implemented"));
  }
  // Its turned dimensions are scaled like a head's.
  if (out.rope.scaling == RopeScalingKind::kYarn && index.dim != out.head_dim) {
    Unsupported(absl::StrCat("rope scaling 'yarn' with '", dim_key, "' ", index.dim,
                             " beside a 'head_dim' of ", out.head_dim));
  }
  if (index.dim % 16 != 0 || index.dim < out.rope.dims) {
    Unsupported(absl::StrCat("'", dim_key, "' ", index.dim, "; multiples of 16 from 'rotary_dim' ",
                             out.rope.dims, " on are implemented"));
  }
}

void ReadExperts(const json& config, ModelConfig& out) {
  ExpertTraits& experts = out.experts;
  ReadBlockSparseExperts(config, experts);
  experts.scores = RouterScores::kSigmoid;
  ExpectText(config, "scoring_func", "sigmoid");
  if (ReadBool(config, "use_routing_bias", true)) experts.score_bias = "e_score_correction_bias";
  experts.weight_scale = ReadNumber(config, "routed_scaling_factor", 2.0);
  experts.swiglu_limit = static_cast<float>(ReadNumber(config, "swiglu_limit", 7.0));
  experts.swiglu_alpha = static_cast<float>(ReadNumber(config, "swiglu_alpha", 1.702));
  if (const int shared = ReadInt(config, "n_shared_experts", 1, 0); shared != 1) {
    Unsupported(absl::StrCat("'n_shared_experts' ", shared, "; one is implemented"));
  }
  experts.shared_width = ReadInt(config, "shared_intermediate_size", std::nullopt);
  experts.shared_module = "shared_experts";
  ReadActiveExperts(config, out);
  out.has_experts =
      ReadKinds(config, "mlp_layer_types", "dense", "sparse", config, "moe_layer_freq", out);
  out.clamped_feeds = true;
  const bool has_dense =
      std::find(out.has_experts.begin(), out.has_experts.end(), false) != out.has_experts.end();
  const std::optional<int> fallback = has_dense ? std::nullopt : std::optional(experts.width);
  out.intermediate_size = ReadInt(config, "dense_intermediate_size", fallback);
}

}  // namespace

void ReadMiniMaxM3(const json& config, ModelConfig& out) {
  json text = TextConfig(
      config,
      {{"rope_theta", 5e6}, {"partial_rotary_factor", 0.5}, {"max_position_embeddings", 1048576}});
  // Makers say "swigluoai", transformers writes "silu"; the two limits say what it is.
  if (ReadText(text, "hidden_act", "silu") == "swigluoai") text["hidden_act"] = "silu";
  ReadFrame(text, out);
  if (out.activation != Activation::kSilu) Unsupported("minimax_m3 with an activation beside silu");
  out.rope.dims = ReadInt(text, "rotary_dim", out.rope.dims);
  if (out.rope.dims % 2 != 0 || out.rope.dims > out.head_dim) {
    Invalid(absl::StrCat("'rotary_dim' ", out.rope.dims, " of a head of ", out.head_dim));
  }
  if (out.rope.scaling == RopeScalingKind::kLongrope) {
    Unsupported("rope scaling 'longrope' of minimax_m3 is not implemented");
  }
  out.qk_norm = ReadBool(text, "use_qk_norm", true);
  if (const std::string kind = ReadText(text, "qk_norm_type", "per_head"); kind != "per_head") {
    Unsupported(absl::StrCat("'qk_norm_type' '", kind, "'; only per_head is implemented"));
  }
  out.norm_adds_one = ReadBool(text, "use_gemma_norm", true);
  ReadExperts(text, out);
  ReadBlockIndex(text, out);
}

}  // namespace macrame::runtime::engine
