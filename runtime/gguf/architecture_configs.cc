#include "runtime/gguf/architecture_configs.h"

#include <algorithm>
#include <cmath>

#include "absl/strings/str_cat.h"
#include "runtime/gguf/architectures.h"

namespace macrame::runtime::gguf {
namespace {

using nlohmann::json;

// "expert_gating_func"
constexpr int64_t kSoftmax = 1, kSigmoid = 2;

void SetExperts(ImportContext& context, const char* count) {
  context.config[count] = context.keys.Size("expert_count");
  context.config["num_experts_per_tok"] = context.keys.Size("expert_used_count");
}

uint64_t ExpertWidth(ImportContext& context) {
  const GgufModel::Tensor* gate = context.model.FindTensor("blk.0.ffn_gate_exps.weight");
  const auto known = gate == nullptr ? std::nullopt : std::optional(gate->rows / gate->experts);
  return context.keys.Size("expert_feed_forward_length", known);
}

void SetWeights(ImportContext& context, bool normalized_unless_said) {
  context.config["norm_topk_prob"] =
      context.keys.Flag("expert_weights_norm").value_or(normalized_unless_said);
  // llama.cpp writes and takes 0 for none.
  const double scale = context.keys.OptionalNumber("expert_weights_scale").value_or(1.0);
  context.config["routed_scaling_factor"] = scale == 0 ? 1.0 : AsWritten(scale);
}

// A mixture of which a router chooses by sigmoids and a bias, with dense layers before and experts
// that all tokens take.
void SetRoutedExperts(ImportContext& context) {
  MetadataKeys& keys = context.keys;
  SetExperts(context, "n_routed_experts");
  context.config["moe_intermediate_size"] = ExpertWidth(context);
  context.config["n_shared_experts"] = keys.Count("expert_shared_count", 0);
  context.config["first_k_dense_replace"] = keys.Count("leading_dense_block_count", 0);
  SetWeights(context, false);
  ReadExpertGroups(context);
}

std::string Pre(const ImportContext& context) {
  return context.model.Text("tokenizer.ggml.pre").value_or("");
}

// The parts that turn of the positions of pictures; of text all are the same.
void IgnoreSections(ImportContext& context) { context.keys.Ignore("rope.dimension_sections"); }

void IgnoreTowers(ImportContext& context) {
  context.keys.Ignore("n_deepstack_layers");
  IgnoreSections(context);
}

bool HasAttentionBias(const ImportContext& context) {
  return context.HasLayerTensor("attn_q.bias") || context.HasLayerTensor("attn_qkv.bias");
}

// Nemotron-H's converter gives it the name of another norm's.
double NormEpsilon(ImportContext& context) {
  MetadataKeys& keys = context.keys;
  const auto other = keys.OptionalNumber("attention.layer_norm_epsilon");
  const bool is_nemotron = keys.architecture().compare(0, 10, "nemotron_h") == 0;
  return AsWritten(
      keys.Number("attention.layer_norm_rms_epsilon", is_nemotron ? other : std::nullopt));
}

uint64_t WindowOf(ImportContext& context) {
  return context.keys.Count("attention.sliding_window", 0);
}

}  // namespace

// ---- shared

bool ImportContext::HasLayerTensor(std::string_view rest) const {
  for (uint64_t layer = 0; layer < layers; ++layer) {
    if (model.FindTensor(absl::StrCat("blk.", layer, ".", std::string(rest))) != nullptr) {
      return true;
    }
  }
  return false;
}

void ReadFrame(ImportContext& context, const char* model_type, const char* class_name,
               const FrameOptions& options) {
  MetadataKeys& keys = context.keys;
  context.hidden = keys.Size("embedding_length");
  context.heads = keys.Size("attention.head_count");
  const auto size = [&](std::string_view key, std::optional<uint64_t> fallback) {
    return options.differs ? keys.ByLayer(key, 1, fallback)[0] : keys.Size(key, fallback);
  };
  context.kv_heads = size("attention.head_count_kv", context.heads);
  const uint64_t blocks = keys.Size("block_count");
  const uint64_t further = keys.Count("nextn_predict_layers", 0);
  if (further >= blocks) Invalid(absl::StrCat(keys.Name("nextn_predict_layers"), " is ", further));
  context.blocks = blocks;
  context.layers = blocks - further;
  const GgufModel::Tensor* embedding = context.model.FindTensor("token_embd.weight");
  context.head_dim = keys.Size("attention.key_length", context.hidden / context.heads);
  uint64_t turned = 0;
  if (!options.is_latent) {
    if (keys.Size("attention.value_length", context.head_dim) != context.head_dim) {
      Unsupported("keys and values have different widths");
    }
    turned = keys.Size("rope.dimension_count", context.head_dim);
    if (turned > context.head_dim || (turned != context.head_dim && !options.partial_rotary)) {
      Unsupported("only a part of each head is turned by the rotary form");
    }
    if (context.head_dim % 2 != 0) {
      Unsupported(absl::StrCat("heads have an odd width, ", context.head_dim));
    }
  }
  if (embedding == nullptr) Broken("tensor 'token_embd.weight' is missing");
  context.vocabulary = embedding->rows;
  keys.Ignore("vocab_size");
  const std::string width_key = keys.Name("feed_forward_length");
  keys.Ignore("feed_forward_length");
  const bool is_said =
      context.model.Integer(width_key).has_value() || context.model.Integers(width_key) != nullptr;
  const bool has_experts = keys.Count("expert_count", 0) > 0;
  // Mixtures without a dense layer may not say how wide one would be.
  const uint64_t width = is_said || !has_experts ? size("feed_forward_length", std::nullopt)
                                                 : keys.Size("expert_feed_forward_length");
  context.config = {
      {"model_type", model_type},
      {"architectures", json::array({class_name})},
      {"hidden_size", context.hidden},
      {"num_hidden_layers", context.layers},
      {"num_attention_heads", context.heads},
      {"num_key_value_heads", options.is_latent ? context.heads : context.kv_heads},
      {"intermediate_size", width},
      {"vocab_size", context.vocabulary},
      {"rms_norm_eps", NormEpsilon(context)},
      {"max_position_embeddings", keys.Size("context_length")},
      {"hidden_act", "silu"},
  };
  if (keys.Flag("attention.causal").value_or(true) == false) {
    Unsupported(absl::StrCat(keys.Name("attention.causal"), " is false: attention to later ",
                             "positions is not implemented"));
  }
  if (options.is_latent) return;
  context.config["head_dim"] = context.head_dim;
  if (options.partial_rotary) {
    context.config["partial_rotary_factor"] =
        static_cast<double>(turned) / static_cast<double>(context.head_dim);
  }
  if (!options.has_own_rope) ReadRope(context, turned);
}

void SetLayerTypes(ImportContext& context, const std::vector<bool>& windowed, uint64_t window) {
  json types = json::array();
  for (const bool has_window : windowed) {
    types.push_back(has_window ? "sliding_attention" : "full_attention");
  }
  context.config["layer_types"] = std::move(types);
  context.config["sliding_window"] = window;
}

std::vector<bool> WindowedLayers(ImportContext& context, uint64_t period) {
  constexpr char kKey[] = "attention.sliding_window_pattern";
  if (const auto flags = context.keys.Flags(kKey, context.layers); flags.has_value()) return *flags;
  period = context.keys.Count(kKey, period);
  std::vector<bool> windowed;
  for (uint64_t layer = 0; layer < context.layers; ++layer) {
    windowed.push_back(period == 0 || (layer + 1) % period != 0);
  }
  return windowed;
}

void ReadExpertGroups(ImportContext& context) {
  const uint64_t groups = context.keys.Count("expert_group_count", 0);
  const uint64_t active = context.keys.Count("expert_group_used_count", 0);
  context.config["n_group"] = std::max<uint64_t>(groups, 1);
  context.config["topk_group"] = groups <= 1 ? 1 : std::max<uint64_t>(active, 1);
}

void ExpectGating(ImportContext& context, int64_t expected, bool unless_said) {
  const uint64_t said = context.keys.Count("expert_gating_func", 0);
  if (said == static_cast<uint64_t>(expected) || (said == 0 && unless_said)) return;
  Unsupported(absl::StrCat(context.keys.Name("expert_gating_func"), " is ", said, ", not ",
                           expected, said == 0 ? " (it is missing)" : ""));
}

// ---- Llama, Mistral and those that differ by a field

void ReadLlamaConfig(ImportContext& context) {
  if (context.keys.Count("expert_count", 0) > 0) {
    ReadFrame(context, "mixtral", "MixtralForCausalLM");
    SetExperts(context, "num_local_experts");
    context.keys.Ignore("expert_feed_forward_length");
    return;
  }
  ReadFrame(context, "llama", "LlamaForCausalLM");
  // InternLM 3: biases before attention alone.
  if (context.HasLayerTensor("attn_q.bias") && !context.HasLayerTensor("attn_output.bias")) {
    context.config["model_type"] = "internlm3";
    context.config["architectures"] = json::array({"InternLM3ForCausalLM"});
    context.config["qkv_bias"] = true;
    context.config["bias"] = false;
  }
  if (const uint64_t window = WindowOf(context); window > 0) {
    context.config["model_type"] = "mistral";
    context.config["architectures"] = json::array({"MistralForCausalLM"});
    context.config["sliding_window"] = window;
  }
}

void ReadMistral3Config(ImportContext& context) {
  ReadFrame(context, "mistral", "MistralForCausalLM");
  const auto beta = context.keys.OptionalNumber("attention.temperature_scale");
  if (!beta.has_value() || *beta == 0) return;
  json& config = context.config;
  config["model_type"] = "ministral3";
  config["architectures"] = json::array({"Ministral3ForCausalLM"});
  json form = config.contains("rope_scaling") ? config["rope_scaling"] : json::object();
  config.erase("rope_scaling");
  if (!form.contains("original_max_position_embeddings")) {
    Invalid(absl::StrCat(context.keys.Name("attention.temperature_scale"), " without ",
                         context.keys.Name("rope.scaling.original_context_length")));
  }
  form["rope_theta"] = config["rope_theta"];
  form["llama_4_scaling_beta"] = AsWritten(*beta);
  config["rope_parameters"] = std::move(form);
}

void ReadGraniteConfig(ImportContext& context) {
  MetadataKeys& keys = context.keys;
  if (!keys.Flag("rope.scaling.finetuned").value_or(true)) {
    Unsupported(absl::StrCat(keys.Name("rope.scaling.finetuned"),
                             " is false: a granite whose heads don't turn is not implemented"));
  }
  ReadFrame(context, "granite", "GraniteForCausalLM");
  const double usual = 1.0 / std::sqrt(static_cast<double>(context.head_dim));
  const double attention = AsWritten(keys.OptionalNumber("attention.scale").value_or(0));
  context.config["attention_multiplier"] = attention == 0 ? usual : attention;
  for (const auto& [ours, theirs] : {std::pair{"embedding_multiplier", "embedding_scale"},
                                     std::pair{"residual_multiplier", "residual_scale"},
                                     std::pair{"logits_scaling", "logit_scale"}}) {
    const double number = keys.OptionalNumber(theirs).value_or(0);
    context.config[ours] = number == 0 ? 1.0 : AsWritten(number);
  }
}

void ReadMiniCpmConfig(ImportContext& context) {
  ReadFrame(context, "minicpm", "MiniCPMForCausalLM");
  const auto hidden = static_cast<double>(context.hidden);
  const auto depth = std::sqrt(static_cast<double>(context.layers));
  MetadataKeys& keys = context.keys;
  context.config["scale_emb"] = AsWritten(keys.Number("embedding_scale", 12.0));
  const auto residual = keys.OptionalNumber("residual_scale");
  context.config["scale_depth"] =
      residual.has_value() ? std::round(*residual * depth * 1e6) / 1e6 : 1.4;
  const auto logits = keys.OptionalNumber("logit_scale");
  context.config["dim_model_base"] = logits.has_value() ? std::round(hidden / *logits) : 256.0;
}

void ReadSmolLm3Config(ImportContext& context) {
  ReadFrame(context, "smollm3", "SmolLM3ForCausalLM");
  json turns = json::array();
  for (uint64_t layer = 0; layer < context.layers; ++layer) {
    turns.push_back((layer + 1) % 4 != 0 ? 1 : 0);
  }
  context.config["no_rope_layers"] = std::move(turns);
  context.config["no_rope_layer_interval"] = 4;
}

void ReadSeedOssConfig(ImportContext& context) {
  ReadFrame(context, "seed_oss", "SeedOssForCausalLM");
  context.config["attention_out_bias"] = context.HasLayerTensor("attn_output.bias");
}

void ReadErnieConfig(ImportContext& context) {
  ReadFrame(context, "ernie4_5", "Ernie4_5ForCausalLM");
  IgnoreSections(context);
  context.config["use_bias"] = HasAttentionBias(context);
}

void ReadPhi3Config(ImportContext& context) {
  ReadFrame(context, "phi3", "Phi3ForCausalLM", {.partial_rotary = true});
  const uint64_t window = WindowOf(context);
  context.config["sliding_window"] = window > 0 ? json(window) : json();
}

void ReadOlmo2Config(ImportContext& context) {
  ReadFrame(context, "olmo2", "Olmo2ForCausalLM");
  const uint64_t window = WindowOf(context);
  if (window == 0) return;
  context.config["model_type"] = "olmo3";
  context.config["architectures"] = json::array({"Olmo3ForCausalLM"});
  SetLayerTypes(context, WindowedLayers(context, 4), window);
}

void ReadOlmoeConfig(ImportContext& context) {
  ReadFrame(context, "olmoe", "OlmoeForCausalLM");
  SetExperts(context, "num_experts");
  context.config["norm_topk_prob"] = context.keys.Flag("expert_weights_norm").value_or(false);
}

// ---- Qwen

void ReadQwen2Config(ImportContext& context) {
  ReadFrame(context, "qwen2", "Qwen2ForCausalLM");
  context.keys.Ignore("pooling_type");
}

void ReadQwen3Config(ImportContext& context) {
  ReadFrame(context, "qwen3", "Qwen3ForCausalLM");
  context.keys.Ignore("pooling_type");
}

namespace {

void SetQwenExperts(ImportContext& context, bool normalized_unless_said) {
  json& config = context.config;
  SetExperts(context, "num_experts");
  config["moe_intermediate_size"] = ExpertWidth(context);
  config["norm_topk_prob"] =
      context.keys.Flag("expert_weights_norm").value_or(normalized_unless_said);
  config["decoder_sparse_step"] = 1;
  config["mlp_only_layers"] = json::array();
}

}  // namespace

void ReadQwen2MoeConfig(ImportContext& context) {
  ReadFrame(context, "qwen2_moe", "Qwen2MoeForCausalLM");
  SetQwenExperts(context, false);
  context.config["shared_expert_intermediate_size"] =
      context.keys.Size("expert_shared_feed_forward_length");
}

void ReadQwen3MoeConfig(ImportContext& context) {
  ReadFrame(context, "qwen3_moe", "Qwen3MoeForCausalLM");
  SetQwenExperts(context, true);
}

void ReadQwen3VlConfig(ImportContext& context) {
  ReadFrame(context, "qwen3_vl", "Qwen3VLForConditionalGeneration");
  IgnoreTowers(context);
}

void ReadQwen3VlMoeConfig(ImportContext& context) {
  ReadFrame(context, "qwen3_vl_moe", "Qwen3VLMoeForConditionalGeneration");
  SetQwenExperts(context, true);
  IgnoreTowers(context);
}

// ---- latent attention

namespace {

void ReadLatentFrame(ImportContext& context, const char* model_type, const char* class_name) {
  ReadFrame(context, model_type, class_name, {.is_latent = true});
  MetadataKeys& keys = context.keys;
  json& config = context.config;
  // Files from before llama.cpp had the latent form don't know it in their widths either.
  const bool is_latent = keys.Has("attention.key_length_mla");
  const uint64_t key = keys.Size(is_latent ? "attention.key_length_mla" : "attention.key_length");
  config["v_head_dim"] =
      keys.Size(is_latent ? "attention.value_length_mla" : "attention.value_length");
  keys.Ignore("attention.value_length");
  const uint64_t rope = keys.Size("rope.dimension_count");
  if (rope >= key || rope % 2 != 0) {
    Invalid(absl::StrCat(keys.Name("rope.dimension_count"), " is ", rope, " of heads of ", key));
  }
  config["qk_rope_head_dim"] = rope;
  config["qk_nope_head_dim"] = key - rope;
  config["kv_lora_rank"] = keys.Size("attention.kv_lora_rank");
  const uint64_t query_rank = keys.Count("attention.q_lora_rank", 0);
  config["q_lora_rank"] = query_rank > 0 ? json(query_rank) : json();
  ReadRope(context, rope);
}

void Rename(ImportContext& context, const char* model_type, const char* class_name) {
  context.config["model_type"] = model_type;
  context.config["architectures"] = json::array({class_name});
}

void SetIndexer(ImportContext& context) {
  MetadataKeys& keys = context.keys;
  context.config["index_n_heads"] = keys.Size("attention.indexer.head_count");
  context.config["index_head_dim"] = keys.Size("attention.indexer.key_length");
  context.config["index_topk"] = keys.Size("attention.indexer.top_k");
  IgnoreSections(context);
}

}  // namespace

void ReadDeepseek2Config(ImportContext& context) {
  MetadataKeys& keys = context.keys;
  ReadLatentFrame(context, "deepseek_v3", "DeepseekV3ForCausalLM");
  keys.Ignore("leading_dense_block_count");
  if (keys.Count("expert_count", 0) == 0) {
    for (const char* key : {"expert_feed_forward_length", "expert_shared_count",
                            "expert_weights_scale", "expert_weights_norm", "expert_gating_func"}) {
      keys.Ignore(key);  // of experts that it has not
    }
    Rename(context, "youtu_llm", "YoutuForCausalLM");
    return;
  }
  SetRoutedExperts(context);
  // What old files don't say, llama.cpp knows by these two: GLM-4.7-Flash has 154,880 words.
  const bool is_glm = Pre(context) == "glm4" || context.vocabulary == 154880;
  const uint64_t said = keys.Count("expert_gating_func", 0);
  const bool is_sigmoid = said == kSigmoid || (said == 0 && is_glm);
  if (is_sigmoid) {
    context.config["topk_method"] = "noaux_tc";
    context.config["scoring_func"] = "sigmoid";
    if (is_glm) Rename(context, "glm4_moe_lite", "Glm4MoeLiteForCausalLM");
    if (Pre(context) == "kimi-k2") Rename(context, "kimi_k2", "DeepseekV3ForCausalLM");
    return;
  }
  ExpectGating(context, kSoftmax, true);
  Rename(context, "deepseek_v2", "DeepseekV2ForCausalLM");
  const bool grouped = context.config["n_group"].get<uint64_t>() > 1;
  context.config["topk_method"] = grouped ? "group_limited_greedy" : "greedy";
  context.config["scoring_func"] = "softmax";
}

void ReadDeepseek32Config(ImportContext& context) {
  ReadLatentFrame(context, "deepseek_v32", "DeepseekV32ForCausalLM");
  SetRoutedExperts(context);
  ExpectGating(context, kSigmoid, false);
  SetIndexer(context);
}

void ReadGlmDsaConfig(ImportContext& context) {
  ReadLatentFrame(context, "glm_moe_dsa", "GlmMoeDsaForCausalLM");
  SetRoutedExperts(context);
  ExpectGating(context, kSigmoid, true);
  SetIndexer(context);
  constexpr char kTypes[] = "attention.indexer.types";
  constexpr uint64_t kSharedFrom = 1048576;  // GLM-5.2's context; older ones share no index
  const auto full = context.keys.Flags(kTypes, context.layers);
  if (!full.has_value()) {
    if (context.config["max_position_embeddings"].get<uint64_t>() < kSharedFrom) return;
    Unsupported(absl::StrCat("the metadata has no ", context.keys.Name(kTypes),
                             ", and layers of GLM-5.2 share an index, which is not implemented"));
  }
  if (std::find(full->begin(), full->end(), false) != full->end()) {
    Unsupported(absl::StrCat(context.keys.Name(kTypes),
                             " names layers that share another layer's index, which is not "
                             "implemented"));
  }
}

// ---- GLM and what is built alike

void ReadGlm4Config(ImportContext& context) {
  ReadFrame(context, "glm4", "Glm4ForCausalLM", {.partial_rotary = true});
  // The text of GLM-4.1V: its converter lets halves of a head turn together.
  if (context.keys.Has("rope.dimension_sections")) context.config["rope_traditional"] = false;
  IgnoreSections(context);
}

void ReadGlm4MoeConfig(ImportContext& context) {
  ReadFrame(context, "glm4_moe", "Glm4MoeForCausalLM", {.partial_rotary = true});
  if (Pre(context) == "solar-open") Rename(context, "solar_open", "SolarOpenForCausalLM");
  SetRoutedExperts(context);
  ExpectGating(context, kSigmoid, true);
  context.config["use_qk_norm"] = context.HasLayerTensor("attn_q_norm.weight");
  IgnoreSections(context);
}

void ReadDots1Config(ImportContext& context) {
  ReadFrame(context, "dots1", "Dots1ForCausalLM");
  SetRoutedExperts(context);
  ExpectGating(context, kSigmoid, false);
  context.config["scoring_func"] = "noaux_tc";  // as its makers spell it
  context.keys.Ignore("expert_shared_feed_forward_length");
}

void ReadExaone4Config(ImportContext& context) {
  ReadFrame(context, "exaone4", "Exaone4ForCausalLM");
  const uint64_t window = WindowOf(context);
  if (window == 0) {
    context.config["sliding_window"] = nullptr;
    return;
  }
  SetLayerTypes(context, WindowedLayers(context, 4), window);
}

void ReadExaoneMoeConfig(ImportContext& context) {
  ReadFrame(context, "exaone_moe", "ExaoneMoEForCausalLM");
  SetRoutedExperts(context);
  ExpectGating(context, kSigmoid, false);
  json& config = context.config;
  config["num_experts"] = config["n_routed_experts"];
  config["num_shared_experts"] = config["n_shared_experts"];
  config.erase("n_routed_experts");
  config.erase("n_shared_experts");
  context.keys.Ignore("expert_shared_feed_forward_length");
  json layers = json::array();
  const auto dense = config["first_k_dense_replace"].get<uint64_t>();
  for (uint64_t layer = 0; layer < context.layers; ++layer) layers.push_back(layer >= dense);
  config["is_moe_layer"] = std::move(layers);
  SetLayerTypes(context, WindowedLayers(context, 4), context.keys.Size("attention.sliding_window"));
}

// ---- others

void ReadGemma3Config(ImportContext& context) {
  constexpr uint64_t kLayers27B = 62;  // the one size whose scores are scaled in another way
  MetadataKeys& keys = context.keys;
  ReadFrame(context, "gemma3_text", "Gemma3ForCausalLM");
  json& config = context.config;
  config.erase("hidden_act");
  config["hidden_activation"] = "gelu_pytorch_tanh";
  config["query_pre_attn_scalar"] =
      context.layers == kLayers27B ? context.hidden / context.heads : context.head_dim;
  config["rope_local_base_freq"] = AsWritten(keys.Number("rope.freq_base_swa", 10000.0));
  if (const auto cap = keys.OptionalNumber("final_logit_softcapping"); cap.value_or(0) != 0) {
    config["final_logit_softcapping"] = AsWritten(*cap);
  }
  const uint64_t window = WindowOf(context);
  if (window > 0) {
    SetLayerTypes(context, WindowedLayers(context, 6), window);
  } else {
    SetLayerTypes(context, std::vector<bool>(context.layers, false), 0);
    config.erase("sliding_window");
  }
}

void ReadGptOssConfig(ImportContext& context) {
  ReadFrame(context, "gpt_oss", "GptOssForCausalLM");
  json& config = context.config;
  SetExperts(context, "num_local_experts");
  config["intermediate_size"] = ExpertWidth(context);
  config["swiglu_limit"] = 7.0;
  // As its makers have it; GGUF has no key for it.
  if (config.contains("rope_scaling") && config["rope_scaling"]["rope_type"] == "yarn") {
    config["rope_scaling"]["truncate"] = false;
  }
  // Every other layer, from the first on.
  SetLayerTypes(context, WindowedLayers(context, 2), context.keys.Size("attention.sliding_window"));
  context.keys.Ignore("expert_gating_func");
}

void ReadMiniMaxM2Config(ImportContext& context) {
  ReadFrame(context, "minimax_m2", "MiniMaxM2ForCausalLM", {.partial_rotary = true});
  json& config = context.config;
  config.erase("partial_rotary_factor");
  config["rotary_dim"] = context.keys.Size("rope.dimension_count", context.head_dim);
  SetExperts(context, "num_local_experts");
  config["intermediate_size"] = ExpertWidth(context);
  ExpectGating(context, kSigmoid, true);
  config["scoring_func"] = "sigmoid";
  config["use_qk_norm"] = context.HasLayerTensor("attn_q_norm.weight");
  config["use_routing_bias"] = context.HasLayerTensor("exp_probs_b.bias");
  config["shared_intermediate_size"] = 0;
}

}  // namespace macrame::runtime::gguf
