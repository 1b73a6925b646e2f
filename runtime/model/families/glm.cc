// GLM 4, dense and with experts (4.5 to 4.7): half of each head's dimensions turn.

#include "runtime/model/families/config_fields.h"
#include "runtime/model/families/family.h"

namespace macrame::runtime::engine {
using nlohmann::json;

void ReadGlm4(const json& config, ModelConfig& out) {
  json frame = {{"rope_traditional", true}, {"partial_rotary_factor", 0.5}};
  frame.update(config);
  ReadFrame(frame, out);
  out.qkv_bias = ReadBool(config, "attention_bias", false);
  out.fused_gate_up = true;
  out.norms = {"input_layernorm", "post_self_attn_layernorm", "post_attention_layernorm",
               "post_mlp_layernorm"};
}

void ReadGlm4Moe(const json& config, ModelConfig& out) {
  json frame = {{"partial_rotary_factor", 0.5}};
  frame.update(config);
  ReadFrame(frame, out);
  out.qkv_bias = ReadBool(config, "attention_bias", false);
  out.qk_norm = ReadBool(config, "use_qk_norm", false);
  out.ignored_layers = ReadInt(config, "num_nextn_predict_layers", 0, 0);
  ExpectText(config, "scoring_func", "sigmoid");
  ExpectText(config, "topk_method", "noaux_tc");
  ExpertTraits& experts = out.experts;
  experts.count = ReadInt(config, "n_routed_experts", std::nullopt);
  experts.width = ReadInt(config, "moe_intermediate_size", std::nullopt);
  experts.normalized = ReadBool(config, "norm_topk_prob", true);
  experts.module = "mlp";
  experts.scores = RouterScores::kSigmoid;
  experts.score_bias = "gate.e_score_correction_bias";
  experts.weight_scale = ReadNumber(config, "routed_scaling_factor", 1.0);
  ReadSharedExperts(config, experts);
  ReadActiveExperts(config, out, ReadInt(config, "first_k_dense_replace", 0, 0));
  // What one expert weighs alone is not made to add up to one.
  experts.normalized = experts.normalized && experts.active > 1;
  ReadExpertGroups(config, experts);
}

}  // namespace macrame::runtime::engine
