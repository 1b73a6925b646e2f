// Qwen2 and Qwen3, dense and with experts. Qwen2 (and MiMo, which is alike) has biases on q, k and
// v; Qwen3, also the text part of Qwen3-VL, normalises each head's queries and keys instead.

#include "absl/strings/str_cat.h"
#include "runtime/model/families/config_fields.h"
#include "runtime/model/families/family.h"

namespace macrame::runtime::engine {
namespace {

using nlohmann::json;

// Its first max_window_layers layers see everything.
void ReadQwenWindows(const json& config, ModelConfig& out) {
  if (!ReadBool(config, "use_sliding_window", false)) return;
  ReadSlidingWindows(config, ReadInt(config, "max_window_layers", out.layer_count, 0), out);
}

}  // namespace

void ReadQwenExperts(const json& config, ModelConfig& out) {
  ExpertTraits& experts = out.experts;
  experts.count = ReadInt(config, "num_experts", std::nullopt, 0);
  if (experts.count == 0) return;
  experts.width = ReadInt(config, "moe_intermediate_size", std::nullopt);
  experts.normalized = ReadBool(config, "norm_topk_prob", false);
  experts.module = "mlp";
  experts.fused_name = "experts";
  ReadActiveExperts(config, out);
  const int step = ReadInt(config, "decoder_sparse_step", 1);
  for (int layer = 0; layer < out.layer_count; ++layer) {
    if ((layer + 1) % step != 0) out.has_experts[static_cast<size_t>(layer)] = false;
  }
  const json* dense = FindField(config, "mlp_only_layers");
  if (dense == nullptr) return;
  if (!dense->is_array()) Invalid("'mlp_only_layers' is not a list");
  for (const json& layer : *dense) {
    if (!layer.is_number_integer() || layer < 0 || layer >= out.layer_count) {
      Invalid(absl::StrCat("'mlp_only_layers' names layer ", layer.dump()));
    }
    out.has_experts[layer.get<size_t>()] = false;
  }
}

namespace {

// The text of a checkpoint with a vision tower. Its rotary forms turn text as plain ones do.
json VlText(const json& config) {
  return TextConfig(config,
                    {{"tie_word_embeddings", ReadBool(config, "tie_word_embeddings", false)}});
}

}  // namespace

void ReadQwen2(const json& config, ModelConfig& out) {
  out.tied_embeddings = out.architecture == "qwen2";
  ReadFrame(config, out);
  out.qkv_bias = true;
  ReadQwenWindows(config, out);
}

void ReadQwen3(const json& config, ModelConfig& out) {
  ReadFrame(config, out);
  out.qkv_bias = out.output_bias = ReadBool(config, "attention_bias", false);
  out.qk_norm = true;
  ReadQwenWindows(config, out);
}

void ReadQwen2Moe(const json& config, ModelConfig& out) {
  ReadQwen2(config, out);
  ReadQwenExperts(config, out);
  if (out.experts.count == 0) return;
  out.experts.shared_width = ReadInt(config, "shared_expert_intermediate_size", std::nullopt);
  out.experts.shared_gate = true;
}

void ReadQwen3Moe(const json& config, ModelConfig& out) {
  ReadQwen3(config, out);
  ReadQwenExperts(config, out);
}

void ReadQwen3Vl(const json& config, ModelConfig& out) { ReadQwen3(VlText(config), out); }

void ReadQwen3VlMoe(const json& config, ModelConfig& out) {
  ReadQwen3Moe(VlText(config), out);
  out.experts.fused_turned = true;
}

}  // namespace macrame::runtime::engine
