#include <array>

#include "absl/strings/match.h"
#include "runtime/gguf/architecture_configs.h"
#include "runtime/gguf/architectures.h"

namespace macrame::runtime::gguf {
namespace {

constexpr TensorName kLayer[] = {
    {"attn_q", "self_attn.q_proj"},
    {"attn_k", "self_attn.k_proj"},
    {"attn_v", "self_attn.v_proj"},
    {"attn_qkv", "self_attn.qkv_proj"},  // split, where the model has three maps
    {"attn_output", "self_attn.o_proj"},
    {"attn_q_norm", "self_attn.q_norm"},
    {"attn_k_norm", "self_attn.k_norm"},
    {"ffn_gate", "mlp.gate_proj"},
    {"ffn_up", "mlp.up_proj"},
    {"ffn_down", "mlp.down_proj"},
    {"attn_norm", "input_layernorm"},
    {"ffn_norm", "post_attention_layernorm"},
};
constexpr TensorName kExperts[] = {
    {"ffn_gate_inp", "mlp.gate"},
    {"ffn_gate_exps", "mlp.switch_mlp.gate_proj"},
    {"ffn_up_exps", "mlp.switch_mlp.up_proj"},
    {"ffn_down_exps", "mlp.switch_mlp.down_proj"},
    {"ffn_gate_up_exps", "mlp.switch_mlp.gate_up_proj"},  // split
    {"exp_probs_b.bias", "mlp.gate.e_score_correction_bias", true},
};
// One that every token takes, behind a gate of its own.
constexpr TensorName kGatedExpert[] = {
    {"ffn_gate_inp_shexp", "mlp.shared_expert_gate"},
    {"ffn_gate_shexp", "mlp.shared_expert.gate_proj"},
    {"ffn_up_shexp", "mlp.shared_expert.up_proj"},
    {"ffn_down_shexp", "mlp.shared_expert.down_proj"},
};
constexpr TensorName kSharedExperts[] = {
    {"ffn_gate_shexp", "mlp.shared_experts.gate_proj"},
    {"ffn_up_shexp", "mlp.shared_experts.up_proj"},
    {"ffn_down_shexp", "mlp.shared_experts.down_proj"},
};
constexpr TensorName kBlockSparse[] = {
    {"ffn_gate_inp", "block_sparse_moe.gate"},
    {"ffn_gate_exps", "block_sparse_moe.switch_mlp.gate_proj"},
    {"ffn_up_exps", "block_sparse_moe.switch_mlp.up_proj"},
    {"ffn_down_exps", "block_sparse_moe.switch_mlp.down_proj"},
    {"exp_probs_b.bias", "block_sparse_moe.e_score_correction_bias", true},
};
constexpr TensorName kSparseShared[] = {
    {"ffn_gate_shexp", "block_sparse_moe.shared_experts.gate_proj"},
    {"ffn_up_shexp", "block_sparse_moe.shared_experts.up_proj"},
    {"ffn_down_shexp", "block_sparse_moe.shared_experts.down_proj"},
    {"indexer.q_proj", "self_attn.index_q_proj"},
    {"indexer.k_proj", "self_attn.index_k_proj"},
    {"indexer.q_norm", "self_attn.index_q_norm"},
    {"indexer.k_norm", "self_attn.index_k_norm"},
};
constexpr TensorName kLatent[] = {
    {"attn_q_a", "self_attn.q_a_proj"},
    {"attn_q_b", "self_attn.q_b_proj"},
    {"attn_q_a_norm", "self_attn.q_a_layernorm"},
    {"attn_kv_a_mqa", "self_attn.kv_a_proj_with_mqa"},
    {"attn_kv_a_norm", "self_attn.kv_a_layernorm"},
    {"attn_kv_b", "self_attn.kv_b_proj"},
    // By head, as MLX has them: the first is turned over already.
    {"attn_k_b", "self_attn.embed_q"},
    {"attn_v_b", "self_attn.unembed_out"},
    {"indexer.k_norm", "self_attn.indexer.k_norm"},
    {"indexer.proj", "self_attn.indexer.weights_proj"},
    {"indexer.attn_k", "self_attn.indexer.wk"},
    {"indexer.attn_q_b", "self_attn.indexer.wq_b"},
};
// Norms before and behind each half.
constexpr TensorName kGemmaNorms[] = {
    {"post_attention_norm", "post_attention_layernorm"},
    {"ffn_norm", "pre_feedforward_layernorm"},
    {"post_ffw_norm", "post_feedforward_layernorm"},
};
constexpr TensorName kGemma4[] = {
    {"ffn_gate_inp", "router.proj"},
    {"ffn_gate_inp.scale", "router.scale", true},
    {"ffn_down_exps.scale", "router.per_expert_scale", true},
    {"ffn_gate_exps", "experts.switch_glu.gate_proj"},
    {"ffn_up_exps", "experts.switch_glu.up_proj"},
    {"ffn_down_exps", "experts.switch_glu.down_proj"},
    {"ffn_gate_up_exps", "experts.switch_glu.gate_up_proj"},
    {"post_ffw_norm_1", "post_feedforward_layernorm_1"},
    {"pre_ffw_norm_2", "pre_feedforward_layernorm_2"},
    {"post_ffw_norm_2", "post_feedforward_layernorm_2"},
    {"layer_output_scale.weight", "layer_scalar", true},
    {"inp_gate", "per_layer_input_gate"},
    {"proj", "per_layer_projection"},
    {"post_norm", "post_per_layer_input_norm"},
};
constexpr TensorName kGlm4[] = {
    {"ffn_up", "mlp.gate_up_proj"},
    {"post_attention_norm", "post_self_attn_layernorm"},
    {"post_ffw_norm", "post_mlp_layernorm"},
};
constexpr TensorName kFusedFeed[] = {{"ffn_up", "mlp.gate_up_proj"}};
// The norm that stands before the second half is named after the first.
constexpr TensorName kAfterAttention[] = {
    {"post_attention_norm", "post_attention_layernorm"},
    {"post_ffw_norm", "post_feedforward_layernorm"},
};
constexpr TensorName kGptOss[] = {
    {"attn_sinks.weight", "self_attn.sinks", true},
    {"ffn_gate_inp", "mlp.router"},
    {"ffn_gate_exps", "mlp.experts.gate_proj"},
    {"ffn_up_exps", "mlp.experts.up_proj"},
    {"ffn_down_exps", "mlp.experts.down_proj"},
    {"ffn_gate_up_exps", "mlp.experts.gate_up_proj"},
};
constexpr TensorName kDots[] = {
    {"ffn_gate_exps", "mlp.experts.gate_proj"},
    {"ffn_up_exps", "mlp.experts.up_proj"},
    {"ffn_down_exps", "mlp.experts.down_proj"},
    {"ffn_gate_up_exps", "mlp.experts.gate_up_proj"},
};
constexpr TensorName kDeltaNet[] = {
    {"attn_gate", "linear_attn.in_proj_z"},
    {"ssm_in", "linear_attn.in_proj_qkvz"},  // of early files
    {"ssm_ba", "linear_attn.in_proj_ba"},
    {"ssm_beta", "linear_attn.in_proj_b"},
    {"ssm_alpha", "linear_attn.in_proj_a"},
    {"ssm_conv1d", "linear_attn.conv1d"},
    {"ssm_a", "linear_attn.A_log", true, NumberForm::kMinusExp},
    {"ssm_dt.bias", "linear_attn.dt_bias", true},
    {"ssm_norm", "linear_attn.norm"},
    {"ssm_out", "linear_attn.out_proj"},
};
constexpr TensorName kNemotron[] = {
    {"attn_norm", "norm"},
    {"attn_q", "mixer.q_proj"},
    {"attn_k", "mixer.k_proj"},
    {"attn_v", "mixer.v_proj"},
    {"attn_qkv", "mixer.qkv_proj"},
    {"attn_output", "mixer.o_proj"},
    {"ffn_up", "mixer.up_proj"},
    {"ffn_down", "mixer.down_proj"},
    {"ffn_gate_inp", "mixer.gate"},
    {"exp_probs_b.bias", "mixer.gate.e_score_correction_bias", true},
    {"ffn_up_exps", "mixer.switch_mlp.fc1"},
    {"ffn_down_exps", "mixer.switch_mlp.fc2"},
    {"ffn_up_shexp", "mixer.shared_experts.up_proj"},
    {"ffn_down_shexp", "mixer.shared_experts.down_proj"},
    {"ssm_in", "mixer.in_proj"},
    {"ssm_conv1d", "mixer.conv1d"},
    {"ssm_a", "mixer.A_log", true, NumberForm::kMinusExp},
    {"ssm_dt.bias", "mixer.dt_bias", true},
    {"ssm_d", "mixer.D", true},
    {"ssm_norm", "mixer.norm"},
    {"ssm_out", "mixer.out_proj"},
};

constexpr TensorName kModel[] = {
    {"token_embd", "model.embed_tokens"},
    {"output_norm", "model.norm"},
    {"output", "lm_head"},
    {"per_layer_token_embd", "model.embed_tokens_per_layer"},
    {"per_layer_model_proj", "model.per_layer_model_projection"},
    {"per_layer_proj_norm", "model.per_layer_projection_norm"},
};

const std::vector<Architecture>& Table() {
  static const std::vector<Architecture> table = {
      {"llama", ReadLlamaConfig, {kBlockSparse, kLayer}, true},
      {"mistral3", ReadMistral3Config, {kLayer}, true},
      {"qwen2", ReadQwen2Config, {kLayer}},
      {"qwen3", ReadQwen3Config, {kLayer}},
      {"qwen2moe", ReadQwen2MoeConfig, {kExperts, kGatedExpert, kLayer}},
      {"qwen3moe", ReadQwen3MoeConfig, {kExperts, kLayer}},
      {"qwen3vl", ReadQwen3VlConfig, {kLayer}},
      {"qwen3vlmoe", ReadQwen3VlMoeConfig, {kExperts, kLayer}},
      {"qwen3next",
       ReadQwen3NextConfig,
       {kDeltaNet, kAfterAttention, kExperts, kGatedExpert, kLayer}},
      {"qwen35", ReadQwen35Config, {kDeltaNet, kAfterAttention, kLayer}},
      {"qwen35moe",
       ReadQwen35MoeConfig,
       {kDeltaNet, kAfterAttention, kExperts, kGatedExpert, kLayer}},
      {"deepseek2", ReadDeepseek2Config, {kLatent, kExperts, kSharedExperts, kLayer}},
      {"deepseek32", ReadDeepseek32Config, {kLatent, kExperts, kSharedExperts, kLayer}},
      {"glm-dsa", ReadGlmDsaConfig, {kLatent, kExperts, kSharedExperts, kLayer}},
      {"glm4", ReadGlm4Config, {kGlm4, kLayer}},
      {"glm4moe", ReadGlm4MoeConfig, {kAfterAttention, kExperts, kSharedExperts, kLayer}},
      {"minimax-m2", ReadMiniMaxM2Config, {kBlockSparse, kLayer}},
      {"minimax-m3", ReadMiniMaxM3Config, {kBlockSparse, kSparseShared, kLayer}, false, true},
      {"gpt-oss", ReadGptOssConfig, {kGptOss, kAfterAttention, kLayer}},
      {"gemma3", ReadGemma3Config, {kGemmaNorms, kLayer}, false, true},
      {"gemma4", ReadGemma4Config, {kGemma4, kGemmaNorms, kLayer}},
      {"phi3", ReadPhi3Config, {kFusedFeed, kLayer}},
      {"nemotron_h", ReadNemotronHConfig, {kNemotron}},
      {"nemotron_h_moe", ReadNemotronHConfig, {kNemotron}},
      {"olmo2", ReadOlmo2Config, {kAfterAttention, kLayer}},
      {"olmoe", ReadOlmoeConfig, {kExperts, kLayer}},
      {"exaone4", ReadExaone4Config, {kAfterAttention, kLayer}},
      {"exaone-moe", ReadExaoneMoeConfig, {kExperts, kSharedExperts, kLayer}},
      {"granite", ReadGraniteConfig, {kLayer}, true},
      {"smollm3", ReadSmolLm3Config, {kLayer}, true},
      {"seed_oss", ReadSeedOssConfig, {kAfterAttention, kLayer}},
      {"ernie4_5", ReadErnieConfig, {kLayer}},
      {"minicpm", ReadMiniCpmConfig, {kLayer}, true},
      {"dots1", ReadDots1Config, {kDots, kExperts, kSharedExperts, kLayer}},
  };
  return table;
}

std::string_view WithoutEnding(std::string_view name) {
  for (const std::string_view ending : {".weight", ".bias"}) {
    if (name.size() > ending.size() && name.substr(name.size() - ending.size()) == ending) {
      return name.substr(0, name.size() - ending.size());
    }
  }
  return {};
}

const TensorName* Find(std::span<const TensorName> names, std::string_view name) {
  const std::string_view stem = WithoutEnding(name);
  for (const TensorName& one : names) {
    if (one.whole ? one.gguf == name : one.gguf == stem) return &one;
  }
  return nullptr;
}

}  // namespace

std::span<const Architecture> Architectures() { return Table(); }

const Architecture* FindArchitecture(std::string_view name) {
  for (const Architecture& one : Table()) {
    if (one.gguf == name) return &one;
  }
  return nullptr;
}

const TensorName* FindLayerTensor(const Architecture& architecture, std::string_view rest) {
  for (const auto& names : architecture.names) {
    if (const TensorName* found = Find(names, rest); found != nullptr) return found;
  }
  return nullptr;
}

const TensorName* FindModelTensor(const Architecture& architecture, std::string_view name) {
  const TensorName* found = Find(kModel, name);
  const bool is_by_layer = found != nullptr && found->gguf.substr(0, 9) == "per_layer";
  return is_by_layer && architecture.gguf != "gemma4" ? nullptr : found;
}

}  // namespace macrame::runtime::gguf
