// Llama and Mistral: the frame as it is. Families that differ from Llama by a field or two.

#include <cmath>

#include "absl/strings/str_cat.h"
#include "runtime/model/families/config_fields.h"
#include "runtime/model/families/family.h"

namespace macrame::runtime::engine {

void ReadLlama(const nlohmann::json& config, ModelConfig& out) {
  ReadFrame(config, out);
  out.qkv_bias = out.output_bias = ReadBool(config, "attention_bias", false);
  out.mlp_bias = ReadBool(config, "mlp_bias", false);
}

void ReadLlamaLayers(const nlohmann::json& config, ModelConfig& out) {
  ReadLlama(config, out);
  ReadSlidingWindows(config, out.layer_count, out);
}

// Seed-OSS: o_proj's bias is said by itself.
void ReadSeedOss(const nlohmann::json& config, ModelConfig& out) {
  ReadFrame(config, out);
  out.qkv_bias = ReadBool(config, "attention_bias", false);
  out.output_bias = ReadBool(config, "attention_out_bias", false);
  out.mlp_bias = ReadBool(config, "mlp_bias", false);
}

// InternLM 3: o_proj's bias goes by the feed-forward's.
void ReadInternLm3(const nlohmann::json& config, ModelConfig& out) {
  ReadFrame(config, out);
  out.qkv_bias = ReadBool(config, "qkv_bias", false);
  out.output_bias = out.mlp_bias = ReadBool(config, "bias", false);
}

// Helium: pairs that turn together stand side by side; o_proj has no bias.
void ReadHelium(const nlohmann::json& config, ModelConfig& out) {
  ReadLlama(config, out);
  out.rope.interleaved = true;
  out.output_bias = false;
}

// MiniCPM: what Granite scales by its own names.
void ReadMiniCpm(const nlohmann::json& config, ModelConfig& out) {
  ReadFrame(config, out);
  out.embedding_scale = static_cast<float>(ReadNumber(config, "scale_emb", 1.0));
  out.residual_scale = static_cast<float>(ReadNumber(config, "scale_depth", std::nullopt) /
                                          std::sqrt(static_cast<double>(out.layer_count)));
  const double base = ReadNumber(config, "dim_model_base", out.hidden_size);
  if (!out.tied_embeddings) out.logit_scale = static_cast<float>(base / out.hidden_size);
}

// ERNIE 4.5: one switch for all biases; pairs that turn together stand side by side.
void ReadErnie(const nlohmann::json& config, ModelConfig& out) {
  ReadFrame(config, out);
  out.rope.interleaved = true;
  out.qkv_bias = out.output_bias = out.mlp_bias = ReadBool(config, "use_bias", false);
}

// SmolLM3: some layers, every fourth if none are named, know no positions.
void ReadSmolLm3(const nlohmann::json& config, ModelConfig& out) {
  out.tied_embeddings = true;
  ReadLlama(config, out);
  const int interval = ReadInt(config, "no_rope_layer_interval", 4);
  const auto uses = ReadFlags(config, "no_rope_layers", out.layer_count);
  for (int layer = 0; layer < out.layer_count; ++layer) {
    const bool turns =
        uses.has_value() ? (*uses)[static_cast<size_t>(layer)] : (layer + 1) % interval != 0;
    out.rope_uses.push_back(turns ? RopeUse::kGlobal : RopeUse::kNone);
  }
  if (!ReadBool(config, "use_sliding_window", false)) return;
  ReadSlidingWindows(config, out.layer_count, out);
  if (FindField(config, "layer_types") != nullptr) return;
  const int window = ReadInt(config, "sliding_window", 0, 0);
  for (size_t layer = 0; layer < out.sliding_windows.size(); ++layer) {
    if (out.rope_uses[layer] == RopeUse::kNone) out.sliding_windows[layer] = window;
  }
}

// Granite: embeddings, attention, residuals and logits are scaled.
void ReadGranite(const nlohmann::json& config, ModelConfig& out) {
  ReadLlama(config, out);
  out.embedding_scale = static_cast<float>(ReadNumber(config, "embedding_multiplier", 1.0));
  out.residual_scale = static_cast<float>(ReadNumber(config, "residual_multiplier", 1.0));
  out.attention_scale = ReadNumber(config, "attention_multiplier", std::nullopt);
  out.logit_scale = static_cast<float>(1.0 / ReadNumber(config, "logits_scaling", 1.0));
}

// All layers see the window unless "layer_types" tells them apart.
void ReadMistral(const nlohmann::json& config, ModelConfig& out) {
  ReadFrame(config, out);
  out.qkv_bias = out.output_bias = ReadBool(config, "attention_bias", false);
  ReadSlidingWindows(config, 0, out);
}

}  // namespace macrame::runtime::engine
