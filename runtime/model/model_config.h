#pragma once

// What the engine needs from a model's config.json, checked. One decoder serves the four known
// architectures; where they differ is a trait here, never a branch on the name elsewhere.
//
// Keys are those of Hugging Face's configuration classes (LlamaConfig, Qwen2Config, Qwen3Config,
// MistralConfig), in the spelling before and after transformers 5 ("rope_scaling",
// "rope_parameters"), and MLX's "quantization" object.

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"

namespace macrame::runtime::engine {

// Affine quantisation: each run of group_size elements of a row shares a scale and a bias.
struct QuantizationTraits {
  int bits = 0;  // 4, 6 or 8; 0: not quantised
  int group_size = 0;
  bool operator==(const QuantizationTraits&) const = default;
};

enum class RopeScalingKind { kNone, kLinear, kLlama3 };

struct RopeTraits {
  double theta = 10000.0;
  RopeScalingKind scaling = RopeScalingKind::kNone;
  double factor = 1.0;
  double low_freq_factor = 1.0;  // llama3 only, as the next two
  double high_freq_factor = 4.0;
  int original_context = 8192;
};

struct ModelConfig {
  std::string architecture;  // "llama", "qwen2", "qwen3", "mistral"
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
  RopeTraits rope;
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

// `folder` appears in error messages only. Errors carry a Reason: MODEL_CONFIG_INVALID,
// MODEL_ARCHITECTURE_UNKNOWN or MODEL_FORMAT_UNSUPPORTED.
absl::StatusOr<ModelConfig> ParseModelConfig(std::string_view config_json,
                                             const std::string& folder);

// Reads FOLDER/config.json (at most 1 MiB).
absl::StatusOr<ModelConfig> LoadModelConfig(const std::string& folder);

}  // namespace macrame::runtime::engine
