#pragma once

// What the engine needs from a model's config.json, checked. One frame of layers serves all
// families; where they differ is a trait here, never a branch on the name elsewhere. How a family's
// config.json becomes traits is in families/.
//
// Keys are those of Hugging Face's configuration classes (LlamaConfig, Qwen2Config, Qwen3Config,
// MistralConfig, Qwen2MoeConfig, Qwen3MoeConfig, MixtralConfig), in the spelling before and after
// transformers 5 ("rope_scaling", "rope_parameters"), and MLX's "quantization" object.

#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "runtime/model/rope.h"

namespace macrame::runtime::engine {

// Affine quantisation: each run of group_size elements of a row shares a scale and a bias.
struct QuantizationTraits {
  int bits = 0;  // 4, 6 or 8; 0: not quantised
  int group_size = 0;
  bool operator==(const QuantizationTraits&) const = default;
};

// Which of the model's rotary forms a layer has.
enum class RopeUse { kGlobal, kLocal, kNone };

// Layers whose feed-forward is one of many small ones for each token: a router's scores choose.
struct ExpertTraits {
  int count = 0;   // in a layer that has experts; 0: the model has none
  int active = 0;  // of a token: those with the highest scores
  int width = 0;   // an expert's intermediate size
  bool normalized =
      false;             // the active ones' weights add up to one (softmax is over all otherwise)
  int shared_width = 0;  // of an expert that every token takes, weighed by a gate; 0: none
  // Below "model.layers.N.": "mlp" or "block_sparse_moe".
  std::string module;
  // Within an expert that is stored by itself ("mlp.experts.3.gate_proj"): gate, up, down. Stacked
  // ones are "switch_mlp.gate_proj", … everywhere.
  std::string gate_name = "gate_proj", up_name = "up_proj", down_name = "down_proj";
};

struct ModelConfig {
  std::string architecture;  // config.json's "model_type"
  int layer_count = 0;
  int hidden_size = 0;
  int intermediate_size = 0;
  int attention_heads = 0;
  int kv_heads = 0;
  int head_dim = 0;
  int vocab_size = 0;
  int context_length_max = 0;
  float rms_norm_eps = 1e-6F;
  bool tied_embeddings = false;
  bool qkv_bias = false;
  bool output_bias = false;  // of o_proj
  bool mlp_bias = false;
  bool qk_norm = false;  // RMS norm of each head's queries and keys (Qwen3)
  ExpertTraits experts;
  std::vector<bool> has_experts;  // by layer
  RopeTraits rope;
  // Of the layers that look at a window, where it differs from the others' (Gemma 3).
  std::optional<RopeTraits> local_rope;
  std::vector<RopeUse> rope_uses;  // by layer
  // By layer: how many last positions it sees; 0: all of them.
  std::vector<int> sliding_windows;
  QuantizationTraits quantization;  // the default of all quantised tensors
  // Modules ("model.layers.0.self_attn.q_proj") whose quantisation differs; bits 0: stored as
  // floats.
  std::map<std::string, QuantizationTraits> quantization_overrides;

  // What config.json says of a module ("lm_head"). Whether it is stored quantised, its tensors
  // show.
  QuantizationTraits QuantizationOf(std::string_view module) const;
};

// All that are served, as config.json's "model_type" spells them.
std::span<const std::string_view> KnownFamilies();

// `folder` appears in error messages only. Errors carry a Reason: MODEL_CONFIG_INVALID,
// MODEL_ARCHITECTURE_UNKNOWN or MODEL_FORMAT_UNSUPPORTED.
absl::StatusOr<ModelConfig> ParseModelConfig(std::string_view config_json,
                                             const std::string& folder);

// Reads FOLDER/config.json (at most 1 MiB).
absl::StatusOr<ModelConfig> LoadModelConfig(const std::string& folder);

}  // namespace macrame::runtime::engine
