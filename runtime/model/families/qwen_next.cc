// Qwen3-Next and Qwen3.5: three layers of gated delta rule, then one of attention, whose heads'
// output is gated. Qwen3.5's checkpoints have a vision tower beside the text model.

#include "absl/strings/str_cat.h"
#include "runtime/model/families/config_fields.h"
#include "runtime/model/families/family.h"

namespace macrame::runtime::engine {
namespace {

using nlohmann::json;

void ReadMixers(const json& config, ModelConfig& out) {
  const int every = ReadInt(config, "full_attention_interval", 4);
  const json* types = FindField(config, "layer_types");
  if (types != nullptr &&
      (!types->is_array() || types->size() != static_cast<size_t>(out.layer_count))) {
    Invalid(absl::StrCat("'layer_types' is not a list of ", out.layer_count, " kinds"));
  }
  for (int layer = 0; layer < out.layer_count; ++layer) {
    bool attends = (layer + 1) % every == 0;
    if (types != nullptr) {
      const json& type = (*types)[static_cast<size_t>(layer)];
      if (type != "full_attention" && type != "linear_attention") {
        Unsupported(absl::StrCat("'layer_types' names ", type.dump(),
                                 "; full_attention and linear_attention are implemented"));
      }
      attends = type == "full_attention";
    }
    out.mixers.push_back(attends ? MixerKind::kAttention : MixerKind::kRecurrent);
  }
}

void ReadDeltaNet(const json& config, ModelConfig& out) {
  RecurrentTraits& traits = out.recurrent;
  traits.key_heads = ReadInt(config, "linear_num_key_heads", std::nullopt);
  traits.value_heads = ReadInt(config, "linear_num_value_heads", std::nullopt);
  traits.key_dim = ReadInt(config, "linear_key_head_dim", std::nullopt);
  traits.value_dim = ReadInt(config, "linear_value_head_dim", std::nullopt);
  traits.taps = ReadInt(config, "linear_conv_kernel_dim", 4, 2);
  CheckRecurrent("linear_num_value_heads", "linear_num_key_heads", "linear_conv_kernel_dim",
                 traits);
}

// What both have, from the object that has the text model's fields.
void ReadHybrid(const json& config, ModelConfig& out) {
  ReadFrame(config, out);
  out.qkv_bias = out.output_bias = ReadBool(config, "attention_bias", false);
  out.qk_norm = true;
  out.attention_gate = ReadBool(config, "attn_output_gate", true);
  out.published_norm_adds_one = true;
  ReadMixers(config, out);
  ReadDeltaNet(config, out);
  if (FindField(config, "num_experts") == nullptr) return;
  ReadQwenExperts(config, out);
  if (out.experts.count == 0) return;
  out.experts.shared_width = ReadInt(config, "shared_expert_intermediate_size", std::nullopt);
  out.experts.shared_gate = true;
}

}  // namespace

void ReadQwen3Next(const json& config, ModelConfig& out) {
  ReadHybrid(config, out);
  out.recurrent.by_key_head = true;
}

// The fields of the rotary form and of the router have defaults of their own.
void ReadQwen35(const json& config, ModelConfig& out) {
  const json defaults = {{"norm_topk_prob", true},
                         {"tie_word_embeddings", ReadBool(config, "tie_word_embeddings", false)},
                         {"rope_parameters", {{"rope_type", "default"}}},
                         {"rope_theta", 100000.0},
                         {"partial_rotary_factor", 0.25}};
  if (FindField(config, "text_config") != nullptr) {
    ReadHybrid(TextConfig(config, defaults), out);
    return;
  }
  json text = defaults;
  for (const auto& [key, value] : config.items()) {
    if (!value.is_null()) text[key] = value;
  }
  ReadHybrid(text, out);
}

}  // namespace macrame::runtime::engine
