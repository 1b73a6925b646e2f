// Architectures whose layers are of several kinds: states beside attention (Qwen3-Next, Qwen3.5,
// Nemotron-H), heads of two widths (Gemma 4), blocks that an indexer chooses (MiniMax M3).

#include <algorithm>
#include <cmath>

#include "absl/strings/str_cat.h"
#include "runtime/gguf/architectures.h"
#include "runtime/gguf/block_forms.h"

namespace macrame::runtime::gguf {
namespace {

using nlohmann::json;

constexpr int64_t kSigmoid = 2;

// Sizes of the layers that have a state; "ssm.inner_size" is that of all value heads.
void ReadStateSizes(ImportContext& context) {
  MetadataKeys& keys = context.keys;
  context.key_heads = keys.Size("ssm.group_count");
  context.value_heads = keys.Size("ssm.time_step_rank");
  context.key_dim = keys.Size("ssm.state_size");
  const uint64_t inner = keys.Size("ssm.inner_size");
  if (inner % context.value_heads != 0 || context.value_heads % context.key_heads != 0) {
    Invalid(absl::StrCat(keys.Name("ssm.inner_size"), " ", inner, ", ",
                         keys.Name("ssm.time_step_rank"), " ", context.value_heads, " and ",
                         keys.Name("ssm.group_count"), " ", context.key_heads,
                         " don't fit each other"));
  }
  context.value_dim = inner / context.value_heads;
}

// ---- Qwen3-Next, Qwen3.5

void ReadDeltaNet(ImportContext& context) {
  MetadataKeys& keys = context.keys;
  json& config = context.config;
  ReadStateSizes(context);
  config["linear_num_key_heads"] = context.key_heads;
  config["linear_num_value_heads"] = context.value_heads;
  config["linear_key_head_dim"] = context.key_dim;
  config["linear_value_head_dim"] = context.value_dim;
  config["linear_conv_kernel_dim"] = keys.Size("ssm.conv_kernel");
  const uint64_t every = keys.Size("full_attention_interval", 4);
  const auto said = keys.Flags("attention.recurrent_layers", context.layers);
  json types = json::array();
  for (uint64_t layer = 0; layer < context.layers; ++layer) {
    context.recurrent.push_back(said.has_value() ? bool{(*said)[layer]} : (layer + 1) % every != 0);
    types.push_back(context.recurrent.back() ? "linear_attention" : "full_attention");
  }
  config["layer_types"] = std::move(types);
  config["full_attention_interval"] = every;
}

void ReadDeltaNetExperts(ImportContext& context) {
  MetadataKeys& keys = context.keys;
  json& config = context.config;
  config["num_experts"] = keys.Size("expert_count");
  config["num_experts_per_tok"] = keys.Size("expert_used_count");
  config["moe_intermediate_size"] = keys.Size("expert_feed_forward_length");
  config["shared_expert_intermediate_size"] = keys.Size("expert_shared_feed_forward_length");
  config["norm_topk_prob"] = keys.Flag("expert_weights_norm").value_or(true);
  config["decoder_sparse_step"] = 1;
  config["mlp_only_layers"] = json::array();
}

void ReadQwen35(ImportContext& context, const char* model_type, const char* class_name) {
  ReadFrame(context, model_type, class_name, {.partial_rotary = true});
  ReadDeltaNet(context);
  json& config = context.config;
  json form =
      config.contains("rope_scaling") ? config["rope_scaling"] : json{{"rope_type", "default"}};
  form["rope_theta"] = config["rope_theta"];
  form["partial_rotary_factor"] = config["partial_rotary_factor"];
  if (const auto* parts = context.model.Integers(context.keys.Name("rope.dimension_sections"))) {
    // Of the positions of pictures; the fourth is padding.
    form["mrope_section"] = std::vector<int64_t>(
        parts->begin(), parts->begin() + std::min<std::ptrdiff_t>(3, std::ssize(*parts)));
    form["mrope_interleaved"] = true;
  }
  context.keys.Ignore("rope.dimension_sections");
  config.erase("rope_scaling");
  config["rope_parameters"] = std::move(form);
}

}  // namespace

void ReadQwen3NextConfig(ImportContext& context) {
  ReadFrame(context, "qwen3_next", "Qwen3NextForCausalLM", {.partial_rotary = true});
  ReadDeltaNet(context);
  ReadDeltaNetExperts(context);
}

void ReadQwen35Config(ImportContext& context) {
  ReadQwen35(context, "qwen3_5", "Qwen3_5ForCausalLM");
}

void ReadQwen35MoeConfig(ImportContext& context) {
  ReadQwen35(context, "qwen3_5_moe", "Qwen3_5MoeForCausalLM");
  ReadDeltaNetExperts(context);
}

// ---- Nemotron-H

void ReadNemotronHConfig(ImportContext& context) {
  MetadataKeys& keys = context.keys;
  json& config = context.config;
  ReadFrame(context, "nemotron_h", "NemotronHForCausalLM", {.partial_rotary = true});
  config.erase("partial_rotary_factor");  // no layer turns its heads
  keys.Ignore("attention.layer_norm_epsilon");
  ReadStateSizes(context);
  const auto kv_heads = keys.ByLayer("attention.head_count_kv", context.layers);
  const auto widths = keys.ByLayer("feed_forward_length", context.layers);
  const bool has_experts = keys.Count("expert_count", 0) > 0;
  std::string pattern;
  for (uint64_t layer = 0; layer < context.layers; ++layer) {
    const bool is_state = kv_heads[layer] == 0 && widths[layer] == 0;
    context.recurrent.push_back(is_state);
    pattern += is_state ? 'M' : kv_heads[layer] > 0 ? '*' : has_experts ? 'E' : '-';
  }
  config["hybrid_override_pattern"] = pattern;
  config["layer_norm_epsilon"] = config["rms_norm_eps"];
  config["mamba_num_heads"] = context.value_heads;
  config["mamba_head_dim"] = context.value_dim;
  config["n_groups"] = context.key_heads;
  config["ssm_state_size"] = context.key_dim;
  config["conv_kernel"] = keys.Size("ssm.conv_kernel");
  config["use_conv_bias"] = context.HasLayerTensor("ssm_conv1d.bias");
  config["use_bias"] = config["mamba_proj_bias"] = context.HasLayerTensor("ssm_in.bias");
  config["mlp_hidden_act"] = "relu2";
  config["mamba_hidden_act"] = "silu";
  config.erase("hidden_act");
  if (!has_experts) return;
  config["n_routed_experts"] = keys.Size("expert_count");
  config["num_experts_per_tok"] = keys.Size("expert_used_count");
  config["moe_intermediate_size"] = keys.Size("expert_feed_forward_length");
  config["n_shared_experts"] = keys.Count("expert_shared_count", 0);
  config["moe_shared_expert_intermediate_size"] =
      keys.Count("expert_shared_feed_forward_length", 0);
  config["norm_topk_prob"] = keys.Flag("expert_weights_norm").value_or(false);
  config["routed_scaling_factor"] = AsWritten(keys.Number("expert_weights_scale", 1.0));
  ReadExpertGroups(context);
  ExpectGating(context, kSigmoid, true);
  if (keys.Count("moe_latent_size", 0) > 0) {
    Unsupported(absl::StrCat(keys.Name("moe_latent_size"),
                             ": experts in a latent space are not implemented"));
  }
}

// ---- Gemma 4

namespace {

// Of heads of the layers that see everything, the dimensions whose factor is 1 turn; others have
// one so large that they stand still.
double TurnedPart(const ImportContext& context, uint64_t head_dim) {
  constexpr char kFactors[] = "rope_freqs.weight";
  const GgufModel::Tensor* tensor = context.model.FindTensor(kFactors);
  if (tensor == nullptr) return 1.0;
  const BlockForm* form = FindBlockForm(tensor->type);
  if (form == nullptr || form->bits != 0 || tensor->rows != 1 || tensor->columns != head_dim / 2) {
    Broken(absl::StrCat("tensor '", kFactors, "' has not a float for each pair of a head"));
  }
  uint64_t turned = 0;
  while (turned < tensor->columns && FloatAt(*form, tensor->data, turned) == 1.0F) ++turned;
  for (uint64_t i = turned; i < tensor->columns; ++i) {
    if (!(FloatAt(*form, tensor->data, i) >= 1e20F)) {
      Unsupported(absl::StrCat("tensor '", kFactors, "' stretches what turns"));
    }
  }
  return 2.0 * static_cast<double>(turned) / static_cast<double>(head_dim);
}

void SetGemma4Ropes(ImportContext& context, uint64_t global_dim) {
  MetadataKeys& keys = context.keys;
  const uint64_t local = keys.Size("rope.dimension_count_swa", context.head_dim);
  json sliding = {{"rope_type", "default"},
                  {"rope_theta", AsWritten(keys.Number("rope.freq_base_swa", 10000.0))}};
  if (local != context.head_dim) {
    sliding["partial_rotary_factor"] =
        static_cast<double>(local) / static_cast<double>(context.head_dim);
  }
  context.config["rope_parameters"] = {
      {"sliding_attention", std::move(sliding)},
      {"full_attention",
       {{"rope_type", "proportional"},
        {"rope_theta", AsWritten(keys.Number("rope.freq_base", 1e6))},
        {"partial_rotary_factor", TurnedPart(context, global_dim)}}}};
  if (const std::string kind = keys.Text("rope.scaling.type", "none"); kind != "none") {
    Unsupported(absl::StrCat(keys.Name("rope.scaling.type"), " of a gemma4"));
  }
}

void SetGemma4Layers(ImportContext& context) {
  MetadataKeys& keys = context.keys;
  json& config = context.config;
  const std::vector<bool> windowed = WindowedLayers(context, 5);
  SetLayerTypes(context, windowed, keys.Size("attention.sliding_window"));
  const auto kv_heads = keys.ByLayer("attention.head_count_kv", context.layers, context.heads);
  bool keys_are_values = false;
  for (uint64_t layer = 0; layer < context.layers; ++layer) {
    config[windowed[layer] ? "num_key_value_heads" : "num_global_key_value_heads"] =
        kv_heads[layer];
    const auto has = [&](const char* name) {
      return context.model.FindTensor(absl::StrCat("blk.", layer, ".", name)) != nullptr;
    };
    if (has("attn_k.weight") && !has("attn_v.weight")) keys_are_values = true;
  }
  config["attention_k_eq_v"] = keys_are_values;
  const uint64_t shared = keys.Count("attention.shared_kv_layers", 0);
  if (shared >= context.layers) {
    Invalid(absl::StrCat(keys.Name("attention.shared_kv_layers"), " is ", shared));
  }
  config["num_kv_shared_layers"] = shared;
  if (shared > 0) context.first_shared_kv = context.layers - shared;
  const auto widths = keys.ByLayer("feed_forward_length", context.layers);
  config["intermediate_size"] = widths.front();
  config["use_double_wide_mlp"] = widths.back() == 2 * widths.front();
  for (uint64_t layer = 0; layer < context.layers; ++layer) {
    const uint64_t twice =
        shared > 0 && layer >= context.layers - shared && config["use_double_wide_mlp"].get<bool>()
            ? 2
            : 1;
    if (widths[layer] == twice * widths.front()) continue;
    Unsupported(
        absl::StrCat(keys.Name("feed_forward_length"), " of layer ", layer, " is ", widths[layer]));
  }
}

}  // namespace

void ReadGemma4Config(ImportContext& context) {
  MetadataKeys& keys = context.keys;
  json& config = context.config;
  ReadFrame(context, "gemma4_text", "Gemma4ForCausalLM", {.has_own_rope = true, .differs = true});
  const uint64_t global_dim = context.head_dim;
  context.head_dim = keys.Size("attention.key_length_swa", global_dim);
  if (keys.Size("attention.value_length_swa", context.head_dim) != context.head_dim) {
    Unsupported("keys and values have different widths");
  }
  config["head_dim"] = context.head_dim;
  config["global_head_dim"] = global_dim;
  config.erase("hidden_act");
  config["hidden_activation"] = "gelu_pytorch_tanh";
  SetGemma4Layers(context);
  SetGemma4Ropes(context, global_dim);
  const auto cap = keys.OptionalNumber("final_logit_softcapping");
  config["final_logit_softcapping"] = cap.value_or(0) != 0 ? json(AsWritten(*cap)) : json();
  config["hidden_size_per_layer_input"] = keys.Count("embedding_length_per_layer_input", 0);
  config["vocab_size_per_layer_input"] = context.vocabulary;
  const uint64_t experts = keys.Count("expert_count", 0);
  config["enable_moe_block"] = experts > 0;
  keys.Ignore("expert_used_count");
  keys.Ignore("expert_feed_forward_length");
  if (experts == 0) return;
  config["num_experts"] = experts;
  config["top_k_experts"] = keys.Size("expert_used_count");
  config["moe_intermediate_size"] = keys.Size("expert_feed_forward_length");
}

// ---- MiniMax M3

void ReadMiniMaxM3Config(ImportContext& context) {
  MetadataKeys& keys = context.keys;
  json& config = context.config;
  ReadFrame(context, "minimax_m3", "MiniMaxM3SparseForCausalLM", {.partial_rotary = true});
  config["rotary_dim"] = keys.Size("rope.dimension_count", context.head_dim);
  config["dense_intermediate_size"] = config["intermediate_size"];
  config["intermediate_size"] = keys.Size("expert_feed_forward_length");
  config["num_local_experts"] = keys.Size("expert_count");
  config["num_experts_per_tok"] = keys.Size("expert_used_count");
  config["n_shared_experts"] = keys.Count("expert_shared_count", 0);
  config["shared_intermediate_size"] =
      keys.Size("expert_shared_feed_forward_length", config["intermediate_size"].get<uint64_t>());
  config["routed_scaling_factor"] = AsWritten(keys.Number("expert_weights_scale", 1.0));
  if (!keys.Flag("expert_weights_norm").value_or(true)) {
    Unsupported(absl::StrCat(keys.Name("expert_weights_norm"), " is false"));
  }
  ExpectGating(context, kSigmoid, true);
  config["scoring_func"] = "sigmoid";
  const uint64_t dense = keys.Count("leading_dense_block_count", 0);
  json kinds = json::array(), attention = json::array();
  for (uint64_t layer = 0; layer < context.layers; ++layer) {
    kinds.push_back(layer < dense ? 0 : 1);
    const std::string name = absl::StrCat("blk.", layer, ".indexer.q_proj.weight");
    attention.push_back(context.model.FindTensor(name) == nullptr ? 0 : 1);
  }
  config["moe_layer_freq"] = std::move(kinds);
  config["use_gemma_norm"] = true;
  config["use_qk_norm"] = true;
  config["qk_norm_type"] = "per_head";
  config["sparse_attention_config"] = {
      {"use_sparse_attention", true},
      {"sparse_num_index_heads", keys.Size("attention.indexer.head_count")},
      {"sparse_index_dim", keys.Size("attention.indexer.key_length")},
      {"sparse_topk_blocks", keys.Size("attention.indexer.top_k")},
      {"sparse_block_size", keys.Size("attention.indexer.block_size")},
      {"sparse_local_block", keys.Count("attention.indexer.local_blocks", 1)},
      {"sparse_attention_freq", std::move(attention)}};
}

}  // namespace macrame::runtime::gguf
