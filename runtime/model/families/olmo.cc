// OLMo 2 and OLMoE: queries and keys are normed over all heads at once. OLMo 2 has norms only
// behind its half layers.

#include "runtime/model/families/config_fields.h"
#include "runtime/model/families/family.h"

namespace macrame::runtime::engine {

void ReadOlmo2(const nlohmann::json& config, ModelConfig& out) {
  ReadLlama(config, out);
  out.qk_norm_whole = true;
  out.norms = {"", "post_attention_layernorm", "", "post_feedforward_layernorm"};
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
