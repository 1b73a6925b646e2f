// GLM 4, dense and with experts (4.5 to 4.7): half of each head's dimensions turn. Solar
// Open, dots.llm1 and K-EXAONE are built from the same parts.

#include <algorithm>

#include "absl/strings/str_cat.h"
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

namespace {

// A router that weighs by sigmoids and chooses with a bias, experts in groups, shared ones.
void ReadBiasedExperts(const json& config, const char* count, ModelConfig& out) {
  ExpertTraits& experts = out.experts;
  experts.count = ReadInt(config, count, std::nullopt);
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

}  // namespace

void ReadGlm4Moe(const json& config, ModelConfig& out) {
  json frame = {{"partial_rotary_factor", 0.5}};
  frame.update(config);
  ReadFrame(frame, out);
  out.qkv_bias = ReadBool(config, "attention_bias", false);
  out.qk_norm = ReadBool(config, "use_qk_norm", false);
  out.ignored_layers = ReadInt(config, "num_nextn_predict_layers", 0, 0);
  ExpectText(config, "scoring_func", "sigmoid");
  ExpectText(config, "topk_method", "noaux_tc");
  ReadBiasedExperts(config, "n_routed_experts", out);
}

void ReadSolarOpen(const json& config, ModelConfig& out) {
  json whole = {{"partial_rotary_factor", 1.0}};
  whole.update(config);
  ReadGlm4Moe(whole, out);
}

void ReadDots1(const json& config, ModelConfig& out) {
  ReadLlama(config, out);
  if (out.mlp_bias) Unsupported("'mlp_bias': experts with biases");
  out.qk_norm = true;
  ReadSlidingWindows(config, ReadInt(config, "max_window_layers", out.layer_count, 0), out);
  // Its configs call the way of choosing so.
  if (ReadText(config, "scoring_func", "noaux_tc") != "noaux_tc") {
    ExpectText(config, "scoring_func", "sigmoid");
  }
  ReadBiasedExperts(config, "n_routed_experts", out);
  out.experts.stacked_name = "experts";
}

void ReadExaoneMoe(const json& given, ModelConfig& out) {
  json config = {{"routed_scaling_factor", 2.5}, {"rope_theta", 1e6}};
  config.update(given);
  config["n_shared_experts"] = ReadInt(config, "num_shared_experts", 0, 0);
  ReadFrame(config, out);
  out.qk_norm = true;
  ReadExaoneWindows(config, 4, out);
  const bool has_windows = std::any_of(out.sliding_windows.begin(), out.sliding_windows.end(),
                                       [](int window) { return window > 0; });
  if (!has_windows) out.rope_uses.clear();
  ExpectText(config, "scoring_func", "sigmoid");
  ExpectText(config, "topk_method", "noaux_tc");
  ReadBiasedExperts(config, "num_experts", out);
  const auto layers = ReadFlags(config, "is_moe_layer", out.layer_count);
  if (layers.has_value()) out.has_experts = *layers;
}

}  // namespace macrame::runtime::engine
