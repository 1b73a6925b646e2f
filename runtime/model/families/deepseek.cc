// DeepSeek-V3 and what is built alike (R1, Kimi K2, GLM-4.7-Flash), and DeepSeek-V2: multi-head
// latent attention, a few dense layers, then experts in groups beside one that every token takes.
//
// DeepSeek-V3.2 and GLM-5 besides have an indexer, which chooses the positions that a layer attends
// to once there are more than index_topk.

#include <cmath>

#include "absl/strings/str_cat.h"
#include "runtime/model/families/config_fields.h"
#include "runtime/model/families/family.h"

namespace macrame::runtime::engine {
namespace {

using nlohmann::json;

// DeepSeek's norms of the two latent vectors, whatever the model's others have.
constexpr float kLatentNormEps = 1e-6F;

void ReadLatent(const json& config, ModelConfig& out) {
  // There is no head_dim, and hidden_size need not be a multiple of the heads.
  json frame = config;
  frame["head_dim"] = ReadInt(config, "qk_rope_head_dim", std::nullopt);
  ReadFrame(frame, out);
  LatentTraits& latent = out.latent;
  latent.kv_rank = ReadInt(config, "kv_lora_rank", std::nullopt);
  latent.q_rank = ReadInt(config, "q_lora_rank", 0, 0);
  latent.nope = ReadInt(config, "qk_nope_head_dim", std::nullopt);
  latent.rope = ReadInt(config, "qk_rope_head_dim", std::nullopt);
  latent.value = ReadInt(config, "v_head_dim", std::nullopt);
  latent.norm_eps = kLatentNormEps;
  out.head_dim = latent.nope + latent.rope;
  // Whatever num_key_value_heads says: heads are what a tensor split cuts.
  out.kv_heads = out.attention_heads;
  // Checkpoints hold the dimensions that turn together side by side.
  out.rope.interleaved = ReadBool(config, "rope_interleave", true);
  const double magnitude = out.rope.scaling == RopeScalingKind::kYarn && out.rope.mscale_all_dim > 0
                               ? YarnMagnitude(out.rope.factor, out.rope.mscale_all_dim)
                               : 1.0;
  latent.scale = static_cast<float>(magnitude * magnitude / std::sqrt(double{1} * out.head_dim));
  out.qkv_bias = out.output_bias = ReadBool(config, "attention_bias", false);
}

// Which of the layers have experts, and the router's sizes; false: none has.
bool ReadExpertLayers(const json& config, ModelConfig& out) {
  ExpertTraits& experts = out.experts;
  experts.count = ReadInt(config, "n_routed_experts", 0, 0);
  if (experts.count == 0) return false;
  experts.width = ReadInt(config, "moe_intermediate_size", std::nullopt);
  experts.module = "mlp";
  experts.weight_scale = ReadNumber(config, "routed_scaling_factor", 1.0);
  ReadSharedExperts(config, experts);
  ReadActiveExperts(config, out, ReadInt(config, "first_k_dense_replace", 0, 0));
  const int step = ReadInt(config, "moe_layer_freq", 1);
  for (int layer = 0; layer < out.layer_count; ++layer) {
    if (layer % step != 0) out.has_experts[static_cast<size_t>(layer)] = false;
  }
  return true;
}

}  // namespace

void ReadDeepseekV3(const json& config, ModelConfig& out) {
  ReadLatent(config, out);
  out.ignored_layers = ReadInt(config, "num_nextn_predict_layers", 0, 0);
  if (!ReadExpertLayers(config, out)) return;
  ExpectText(config, "topk_method", "noaux_tc");
  ExpectText(config, "scoring_func", "sigmoid");
  ExpertTraits& experts = out.experts;
  experts.scores = RouterScores::kSigmoid;
  experts.score_bias = "gate.e_score_correction_bias";
  experts.normalized = experts.active > 1 && ReadBool(config, "norm_topk_prob", true);
  ReadExpertGroups(config, experts);
}

void ReadSparse(const json& config, ModelConfig& out) {
  ReadDeepseekV3(config, out);
  IndexTraits& index = out.index;
  index.top = ReadInt(config, "index_topk", std::nullopt);
  index.heads = ReadInt(config, "index_n_heads", std::nullopt);
  index.dim = ReadInt(config, "index_head_dim", std::nullopt);
  index.interleaved =
      ReadBool(config, "indexer_rope_interleave", out.architecture == "glm_moe_dsa");
  if (out.latent.q_rank == 0) Invalid("an indexer's queries need 'q_lora_rank'");
  if (index.dim < out.latent.rope) {
    Invalid(absl::StrCat("'index_head_dim' ", index.dim, " is below 'qk_rope_head_dim' ",
                         out.latent.rope));
  }
  if (int64_t{index.heads} * index.dim > kDimensionMax) {
    Invalid(absl::StrCat("'index_n_heads' is ", index.heads));
  }
  // As they stand in the KV cache.
  if (index.dim % 16 != 0 || out.latent.width() % 16 != 0) {
    Unsupported(absl::StrCat("an indexer with keys of ", index.dim,
                             " numbers beside latent ones of ", out.latent.width(),
                             "; multiples of 16 are implemented"));
  }
}

void ReadKimiK25(const json& config, ModelConfig& out) { ReadDeepseekV3(TextConfig(config), out); }

void ReadGlm4MoeLite(const json& config, ModelConfig& out) {
  ReadDeepseekV3(config, out);
  out.latent.norm_eps = out.rms_norm_eps;
}

// Youtu-LLM: latent attention in a dense model.
void ReadYoutu(const json& given, ModelConfig& out) {
  json config = {{"tie_word_embeddings", true},
                 {"rope_interleave", ReadBool(given, "rope_traditional", true)}};
  config.update(given);
  ReadLatent(config, out);
  out.mlp_bias = ReadBool(config, "mlp_bias", false);
  out.latent.norm_eps = out.rms_norm_eps;
}

void ReadDeepseekV2(const json& config, ModelConfig& out) {
  ReadLatent(config, out);
  if (!ReadExpertLayers(config, out)) return;
  const std::string method = ReadText(config, "topk_method", "greedy");
  ExpectText(config, "scoring_func", "softmax");
  if (method != "greedy" && method != "group_limited_greedy") {
    Unsupported(absl::StrCat("router's topk_method '", method,
                             "' is not implemented; greedy and group_limited_greedy are"));
  }
  if (ReadBool(config, "norm_topk_prob", false)) {
    Unsupported("'norm_topk_prob' of DeepSeek-V2's router is not implemented");
  }
  if (method == "group_limited_greedy") ReadExpertGroups(config, out.experts);
  out.experts.group_best = 1;
}

}  // namespace macrame::runtime::engine
