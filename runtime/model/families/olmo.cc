// OLMo 2, OLMo 3 and OLMoE: queries and keys are normed over all heads at once. OLMo 2 and 3 have
// norms only behind their half layers; of OLMo 3's layers three of four look at a window, with a
// rotary form that is never stretched.

#include <optional>
#include <utility>

#include "runtime/model/families/config_fields.h"
#include "runtime/model/families/family.h"
#include "runtime/model/families/rope_fields.h"

namespace macrame::runtime::engine {

void ReadOlmo2(const nlohmann::json& config, ModelConfig& out) {
  ReadLlama(config, out);
  out.qk_norm_whole = true;
  out.norms = {"", "post_attention_layernorm", "", "post_feedforward_layernorm"};
}

void ReadOlmo3(const nlohmann::json& given, ModelConfig& out) {
  // Since transformers 5 "rope_parameters" names two forms by what layers see.
  nlohmann::json config = given;
  std::optional<nlohmann::json> local;
  const nlohmann::json* forms = FindField(given, "rope_parameters");
  if (forms != nullptr && forms->is_object() && forms->contains("full_attention")) {
    config["rope_parameters"] = (*forms)["full_attention"];
    if (forms->contains("sliding_attention")) local = (*forms)["sliding_attention"];
  }
  ReadOlmo2(config, out);
  ReadInt(config, "sliding_window", std::nullopt);
  if (FindField(config, "layer_types") != nullptr) {
    ReadSlidingWindows(config, 0, out);
  } else {
    ReadPeriodicWindows(config, 4, out);
  }
  nlohmann::json plain = {{"rope_theta", out.rope.theta}};
  if (local.has_value()) plain["rope_parameters"] = *std::move(local);
  out.local_rope = ReadRope(plain, out.head_dim, out.context_length_max);
  for (const int window : out.sliding_windows) {
    out.rope_uses.push_back(window > 0 ? RopeUse::kLocal : RopeUse::kGlobal);
  }
}

void ReadOlmoe(const nlohmann::json& config, ModelConfig& out) {
  ReadLlama(config, out);
  out.qk_norm_whole = true;
  if (out.mlp_bias) Unsupported("'mlp_bias': experts with biases");
  if (FindField(config, "clip_qkv") != nullptr) Unsupported("'clip_qkv'");
  ExpertTraits& experts = out.experts;
  experts.count = ReadInt(config, "num_experts", std::nullopt);
  experts.width = ReadInt(config, "intermediate_size", std::nullopt);
  experts.normalized = ReadBool(config, "norm_topk_prob", false);
  experts.module = "mlp";
  ReadActiveExperts(config, out);
}

}  // namespace macrame::runtime::engine
