#include "tests/unit/runtime/model/family_model.h"

#include <cmath>
#include <cstring>

#include "proto/check.h"
#include "runtime/model/config/model_config.h"
#include "runtime/model/families/config_file.h"
#include "runtime/model/weights/weight_needs.h"
#include "tests/unit/runtime/model/model_fixture.h"

namespace macrame::runtime::engine {
namespace {

using nlohmann::json;

const json& Configs() {
  static const json configs = json::parse(R"({
    "phi3 fp8": {"quantization_config": {"quant_method": "fp8", "fmt": "e4m3",
                                         "weight_block_size": [48, 40]}},
    "phi3": {"partial_rotary_factor": 0.5, "original_max_position_embeddings": 64,
             "rope_scaling": {"type": "longrope",
                              "short_factor": [1, 1.1, 1.2, 1.3, 1.4, 1.5, 1.6, 1.7],
                              "long_factor": [1, 1.2, 1.4, 1.8, 2.5, 3.5, 5, 8]}},
    "gemma3": {"vocab_size": 101, "text_config": {
             "tie_word_embeddings": true, "query_pre_attn_scalar": 48,
             "sliding_window": 24, "sliding_window_pattern": 2,
             "rope_scaling": {"rope_type": "linear", "factor": 8.0}}},
    "gemma4": {"vocab_size": 101, "text_config": {
             "num_hidden_layers": 5, "tie_word_embeddings": true, "num_attention_heads": 6,
             "num_key_value_heads": 2, "head_dim": 32, "global_head_dim": 48,
             "num_kv_shared_layers": 2, "hidden_size_per_layer_input": 32,
             "sliding_window": 24,
             "layer_types": ["full_attention", "sliding_attention", "full_attention",
                             "sliding_attention", "full_attention"]}},
    "gemma4_text large": {"tie_word_embeddings": true, "head_dim": 32, "global_head_dim": 64,
             "attention_k_eq_v": true, "num_global_key_value_heads": 2,
             "hidden_size_per_layer_input": 0, "num_kv_shared_layers": 0, "sliding_window": 24,
             "layer_types": ["sliding_attention", "full_attention"]},
    "gemma4_text experts": {"num_key_value_heads": 2, "global_head_dim": 64,
             "attention_k_eq_v": true, "num_global_key_value_heads": 1,
             "hidden_size_per_layer_input": 0, "num_kv_shared_layers": 0, "sliding_window": 24,
             "sliding_window_pattern": 2, "enable_moe_block": true, "num_experts": 5,
             "top_k_experts": 2, "moe_intermediate_size": 96, "final_logit_softcapping": null},
    "mistral3": {"text_config": {"model_type": "ministral3",
             "rope_parameters": {"rope_type": "yarn", "factor": 4.0, "rope_theta": 1e6,
                                 "original_max_position_embeddings": 16, "mscale": 1.0,
                                 "mscale_all_dim": 1.0, "llama_4_scaling_beta": 0.3}}},
    "glm4": {"attention_bias": true, "partial_rotary_factor": 0.5},
    "glm4_moe": {"attention_bias": true, "moe_intermediate_size": 96, "n_routed_experts": 6,
             "n_shared_experts": 1, "num_experts_per_tok": 2, "n_group": 1, "topk_group": 1,
             "norm_topk_prob": true, "routed_scaling_factor": 1.5, "first_k_dense_replace": 1},
    "glm4_moe groups": {"use_qk_norm": true, "moe_intermediate_size": 96, "n_routed_experts": 6,
             "n_shared_experts": 2, "num_experts_per_tok": 2, "n_group": 3, "topk_group": 2,
             "first_k_dense_replace": 0},
    "minimax_m2": {"intermediate_size": 96, "num_local_experts": 5, "num_experts_per_tok": 2,
             "rotary_dim": 16},
    "minimax_m3_vl": {"text_config": {
             "intermediate_size": 96, "dense_intermediate_size": 352,
             "shared_intermediate_size": 64, "num_local_experts": 5, "num_experts_per_tok": 2,
             "rotary_dim": 16, "hidden_act": "swigluoai", "swiglu_limit": 1.5,
             "moe_layer_freq": [0, 1], "sparse_attention_config": {
               "sparse_num_index_heads": 3, "sparse_index_dim": 32, "sparse_topk_blocks": 1,
               "sparse_block_size": 32, "sparse_local_block": 0,
               "sparse_attention_freq": [0, 1]}}},
    "qwen3_next": {"partial_rotary_factor": 0.5, "full_attention_interval": 2,
             "linear_num_key_heads": 3, "linear_num_value_heads": 6, "linear_key_head_dim": 24,
             "linear_value_head_dim": 16, "linear_conv_kernel_dim": 4, "num_experts": 5,
             "num_experts_per_tok": 2, "moe_intermediate_size": 96, "norm_topk_prob": true,
             "shared_expert_intermediate_size": 64, "mlp_only_layers": [0]},
    "qwen3_5": {"vocab_size": 101, "text_config": {
             "layer_types": ["full_attention", "linear_attention"],
             "linear_num_key_heads": 4, "linear_num_value_heads": 4, "linear_key_head_dim": 20,
             "linear_value_head_dim": 40, "linear_conv_kernel_dim": 3}},
    "qwen3_5_moe": {"full_attention_interval": 2, "linear_num_key_heads": 2,
             "linear_num_value_heads": 6, "linear_key_head_dim": 32, "linear_value_head_dim": 32,
             "num_experts": 5, "num_experts_per_tok": 2, "moe_intermediate_size": 96,
             "shared_expert_intermediate_size": 64, "rope_parameters": {
               "rope_type": "default", "rope_theta": 1e6, "partial_rotary_factor": 0.25,
               "mrope_section": [11, 11, 10]}},
    "nemotron_h": {"hybrid_override_pattern": "M*", "layer_norm_epsilon": 1e-5, "n_groups": 3,
             "mamba_num_heads": 6, "mamba_head_dim": 16, "ssm_state_size": 24, "conv_kernel": 4,
             "use_conv_bias": true, "mamba_proj_bias": true, "time_step_limit": [0.01, 2.0]},
    "nemotron_h feeds": {"layers_block_type": ["attention", "mlp"], "n_groups": 2,
             "mamba_num_heads": 4, "mamba_head_dim": 16, "ssm_state_size": 16, "mlp_bias": true,
             "attention_bias": true},
    "nemotron_h experts": {"hybrid_override_pattern": "ME", "n_groups": 2,
             "mamba_num_heads": 4, "mamba_head_dim": 16, "ssm_state_size": 32,
             "use_conv_bias": false, "n_routed_experts": 6, "moe_intermediate_size": 96,
             "num_experts_per_tok": 2, "n_shared_experts": 1, "n_group": 1, "topk_group": 1,
             "moe_shared_expert_intermediate_size": 64, "routed_scaling_factor": 1.5},
    "olmo2": {},
    "olmoe": {"intermediate_size": 96, "num_experts": 5, "num_experts_per_tok": 2},
    "granite": {"embedding_multiplier": 3.0, "residual_multiplier": 0.5,
             "attention_multiplier": 0.1, "logits_scaling": 0.5},
    "exaone4": {"sliding_window": 24, "sliding_window_pattern": "LG"},
    "exaone4 types": {"sliding_window": 24, "sliding_window_pattern": "LG",
             "layer_types": ["full_attention", "sliding_attention"]},
    "olmo3": {"sliding_window": 24, "layer_types": ["sliding_attention", "full_attention"],
             "rope_scaling": {"rope_type": "yarn", "factor": 4.0,
                              "original_max_position_embeddings": 16}},
    "dots1": {"moe_intermediate_size": 96, "n_routed_experts": 6, "n_shared_experts": 2,
             "num_experts_per_tok": 2, "norm_topk_prob": true, "routed_scaling_factor": 2.5,
             "first_k_dense_replace": 1, "scoring_func": "noaux_tc"},
    "exaone_moe": {"moe_intermediate_size": 96, "num_experts": 6, "num_shared_experts": 1,
             "num_experts_per_tok": 2, "is_moe_layer": [false, true], "sliding_window": 24,
             "layer_types": ["sliding_attention", "full_attention"]},
    "qwen3_vl_moe": {"tie_word_embeddings": false, "text_config": {
             "moe_intermediate_size": 96, "num_experts": 5, "num_experts_per_tok": 2,
             "rope_scaling": {"rope_type": "default", "mrope_section": [4, 6, 6]}}},
    "qwen3_vl_moe turned": {"tie_word_embeddings": false, "test_experts": "turned", "text_config": {
             "moe_intermediate_size": 96, "num_experts": 5, "num_experts_per_tok": 2,
             "norm_topk_prob": true}},
    "internlm3": {"qkv_bias": true, "bias": true},
    "helium": {"attention_bias": true},
    "minicpm": {"scale_emb": 12.0, "scale_depth": 1.4, "dim_model_base": 32},
    "smollm3": {"no_rope_layers": [1, 0]},
    "seed_oss": {"attention_bias": true},
    "ernie4_5": {"use_bias": true}
  })");
  return configs;
}

const json& Frame() {
  static const json frame = {{"num_hidden_layers", 2},        {"hidden_size", 64},
                             {"intermediate_size", 352},      {"num_attention_heads", 6},
                             {"num_key_value_heads", 3},      {"head_dim", 32},
                             {"rms_norm_eps", 1e-5},          {"tie_word_embeddings", false},
                             {"max_position_embeddings", 512}};
  return frame;
}

// Numbers that are large enough for every part of a model to matter to the logits.
class NeedsWriter {
 public:
  NeedsWriter(const ModelConfig& config, bool fp8) : config_(config), fp8_(fp8) {}

  void Vector(const VectorNeed& need, bool bias = false) {
    if (need.name.empty()) return;
    const bool is_factor = need.name.ends_with("scale") || need.name.ends_with("scalar");
    const bool around_zero = bias || need.adds_one || (need.exact && !is_factor);
    std::vector<int64_t> shape = {need.size};
    if (need.taps > 0) shape = {need.size / need.taps, need.taps, 1};
    tensors_[need.name] = Floats(shape, around_zero ? 0.0F : 1.0F, need.taps > 0 ? 0.8F : 0.3F);
  }

  void Linear(const LinearNeed& need) {
    if (fp8_ && need.experts > 0) {  // each by itself, as they are published
      const float range = std::sqrt(3.0F / static_cast<float>(need.columns));
      return Fp8(need.own_module + ".weight", {need.rows, need.columns}, range);
    }
    if (need.expert > 0 || need.first_row > 0) return;  // written with the first of their tensor
    std::vector<int64_t> shape = {need.all_stored_rows(), need.columns};
    if (need.experts > 0) shape = {need.experts, need.rows, need.columns};
    const float range = std::sqrt(3.0F / static_cast<float>(need.columns));
    if (need.bias && need.experts > 0) {
      tensors_[need.module + ".bias"] = Floats({need.experts, need.rows}, 0.0F, 0.3F);
    } else if (need.bias) {
      Vector({need.module + ".bias", need.all_stored_rows()}, /*bias=*/true);
    }
    const QuantizationTraits traits = config_.QuantizationOf(need.module);
    if (traits.bits == 0 && fp8_) return Fp8(need.module + ".weight", shape, range);
    if (traits.bits == 0) {
      tensors_[need.module + ".weight"] = Floats(shape, 0.0F, range);
      return;
    }
    const auto levels = static_cast<float>((1 << traits.bits) - 1);
    auto& packed = tensors_[need.module + ".weight"];
    packed.dtype = "U32";
    packed.shape = shape;
    packed.shape.back() = shape.back() * traits.bits / 32;
    packed.bytes.resize(CountOf(packed.shape) * 4);
    for (char& byte : packed.bytes) byte = static_cast<char>(Next() >> 24);
    shape.back() /= traits.group_size;
    tensors_[need.module + ".scales"] = Floats(shape, 2 * range / levels, range / levels / 2);
    tensors_[need.module + ".biases"] = Floats(shape, -range, range / 4);
  }

  // Gates and what goes up in one tensor, as Qwen publishes them; or turned over as well.
  void FuseExperts(bool turned) {
    const std::map<std::string, FixtureTensor> stacked = tensors_;
    for (const auto& [name, gate] : stacked) {
      const bool is_gemmas = name.find("experts.switch_glu.") != std::string::npos;
      const std::string module = is_gemmas ? "experts.switch_glu." : "switch_mlp.";
      const size_t at = name.find(module + "gate_proj.weight");
      if (at == std::string::npos || gate.dtype != "F32") continue;
      const std::string prefix = name.substr(0, at), up = prefix + module + "up_proj.weight",
                        down = prefix + module + "down_proj.weight";
      tensors_[prefix + "experts.gate_up_proj"] = Joined({gate, stacked.at(up)}, turned);
      tensors_[prefix + "experts.down_proj"] = Joined({stacked.at(down)}, turned);
      for (const std::string& old : {name, up, down}) tensors_.erase(old);
    }
  }

  // Biases that follow from the scales, of numbers of 4 bits.
  void MakeSymmetric() {
    for (auto& [name, biases] : tensors_) {
      if (!name.ends_with(".biases")) continue;
      biases = tensors_.at(name.substr(0, name.size() - 6) + "scales");
      auto* numbers = reinterpret_cast<float*>(biases.bytes.data());
      for (size_t i = 0; i < CountOf(biases.shape); ++i) numbers[i] *= -8.0F;
    }
  }

  // Those of layers as compressed-tensors packs them, experts one by one.
  void Pack() {
    const std::map<std::string, FixtureTensor> affine = tensors_;
    for (const auto& [name, scales] : affine) {
      if (!name.ends_with(".scales") || name.find(".layers.") == std::string::npos) continue;
      const std::string module = name.substr(0, name.size() - 7);
      FixtureTensor words = affine.at(module + ".weight");
      words.dtype = "I32";
      for (const char* part : {".weight", ".scales", ".biases"}) tensors_.erase(module + part);
      if (words.shape.size() == 2) {
        tensors_[module + ".weight_packed"] = words;
        tensors_[module + ".weight_scale"] = scales;
        continue;
      }
      const size_t at = module.find("switch_mlp");
      for (int64_t expert = 0; expert < words.shape[0]; ++expert) {
        const std::string own = module.substr(0, at) + "experts." + std::to_string(expert) +
                                module.substr(at + std::string("switch_mlp").size());
        tensors_[own + ".weight_packed"] = PartOf(words, expert);
        tensors_[own + ".weight_scale"] = PartOf(scales, expert);
      }
    }
  }

  std::string Bytes() const { return Safetensors(tensors_); }

 private:
  static FixtureTensor PartOf(const FixtureTensor& all, int64_t index) {
    const size_t bytes = all.bytes.size() / static_cast<size_t>(all.shape[0]);
    return {all.dtype,
            {all.shape[1], all.shape[2]},
            all.bytes.substr(bytes * static_cast<size_t>(index), bytes)};
  }
  // Of each expert, the maps' rows one below the other.
  static FixtureTensor Joined(const std::vector<FixtureTensor>& maps, bool turned) {
    const int64_t experts = maps[0].shape[0], columns = maps[0].shape[2];
    int64_t rows = 0;
    for (const FixtureTensor& map : maps) rows += map.shape[1];
    FixtureTensor out{"F32", {experts, rows, columns}, {}};
    if (turned) std::swap(out.shape[1], out.shape[2]);
    out.bytes.resize(CountOf(out.shape) * sizeof(float));
    for (int64_t expert = 0, from = 0; expert < experts; ++expert, from = 0) {
      for (const FixtureTensor& map : maps) {
        for (int64_t i = 0; i < map.shape[1] * columns; ++i) {
          const int64_t row = from + i / columns, column = i % columns;
          const int64_t to = turned ? column * rows + row : row * columns + column;
          std::memcpy(out.bytes.data() + 4 * (expert * rows * columns + to),
                      map.bytes.data() + 4 * (expert * map.shape[1] * columns + i), 4);
        }
        from += map.shape[1];
      }
    }
    return out;
  }
  static size_t CountOf(const std::vector<int64_t>& shape) {
    size_t count = 1;
    for (const int64_t size : shape) count *= static_cast<size_t>(size);
    return count;
  }
  uint32_t Next() {
    state_ = state_ * 6364136223846793005ULL + 1442695040888963407ULL;
    return static_cast<uint32_t>(state_ >> 32);
  }
  FixtureTensor Floats(const std::vector<int64_t>& shape, float middle, float range) {
    std::vector<float> values(CountOf(shape));
    for (float& value : values) {
      value = middle + range * (static_cast<float>(Next() >> 8) / 8388608.0F - 1.0F);
    }
    std::string bytes(values.size() * sizeof(float), '\0');
    std::memcpy(bytes.data(), values.data(), bytes.size());
    return {"F32", shape, std::move(bytes)};
  }

  // Numbers of up to 2, in blocks with a scale each.
  void Fp8(const std::string& name, const std::vector<int64_t>& shape, float range) {
    std::string bytes(CountOf(shape), '\0');
    for (char& byte : bytes) byte = static_cast<char>(Next() >> 24 & 0xBF);
    tensors_[name] = {"F8_E4M3", shape, std::move(bytes)};
    const auto blocks = [](int64_t size, int block) { return (size + block - 1) / block; };
    tensors_[name + "_scale_inv"] = Floats(
        {blocks(shape[0], config_.fp8_block_rows), blocks(shape[1], config_.fp8_block_columns)},
        range, range / 2);
  }

  const ModelConfig& config_;
  const bool fp8_;  // maps that are not quantised are 8-bit floats
  uint64_t state_ = 7;
  std::map<std::string, FixtureTensor> tensors_;
};

}  // namespace

std::vector<std::string> FamilyNames() {
  std::vector<std::string> names;
  for (const auto& [name, config] : Configs().items()) names.push_back(name);
  return names;
}

json FamilyConfig(const FamilyShape& shape) {
  json config = Configs().at(shape.name);
  json own = Frame();
  own["vocab_size"] = shape.vocabulary;
  own["model_type"] = shape.name.substr(0, shape.name.find(' '));
  if (config.contains("text_config")) {
    json& text = config["text_config"];
    config["model_type"] = own["model_type"];
    config["vocab_size"] = shape.vocabulary;
    own.update(text);
    text = own;
  } else {
    own.update(config);
    config = own;
  }
  if (shape.bits > 0) config["quantization"] = {{"bits", shape.bits}, {"group_size", 32}};
  return config;
}

namespace {

// All that the config asks for.
NeedsWriter WriterOf(const ModelConfig& config, bool fp8) {
  NeedsWriter writer(config, fp8);
  const ShardPlace whole;
  writer.Linear(EmbeddingNeed(config, whole));
  if (!config.tied_embeddings) writer.Linear(HeadNeed(config, whole));
  writer.Vector(FinalNormNeed(config));
  if (const auto inputs = InputNeedsOf(config, whole)) {
    writer.Linear(inputs->embedding);
    writer.Linear(inputs->projection);
    writer.Vector(inputs->norm);
  }
  for (int layer = 0; layer < config.layer_count; ++layer) {
    const LayerNeeds needs = NeedsOfLayer(config, whole, layer);
    for (const LinearNeed* need : LinearsOf(needs, /*is_by_head=*/true)) writer.Linear(*need);
    for (const VectorNeed* need : VectorsOf(needs)) writer.Vector(*need);
  }
  return writer;
}

ModelConfig Parsed(const json& config) {
  auto parsed = ParseModelConfig(config.dump(), "a test's");
  MACRAME_CHECK(parsed.ok()) << parsed.status().ToString();
  return *std::move(parsed);
}

}  // namespace

std::map<std::string, std::string> ModelOfConfig(const json& config) {
  const ModelConfig parsed = Parsed(config);
  NeedsWriter writer = WriterOf(parsed, config.contains("quantization_config"));
  const std::string experts = config.value("test_experts", "");
  if (!experts.empty()) writer.FuseExperts(experts == "turned");
  return {{"config.json", config.dump()}, {"model.safetensors", writer.Bytes()}};
}

std::map<std::string, std::string> SymmetricModel(const std::string& name, bool packed) {
  json config = FamilyConfig({name, 4});
  const ModelConfig parsed = Parsed(config);
  NeedsWriter writer = WriterOf(parsed, /*fp8=*/false);
  writer.MakeSymmetric();
  if (packed) {
    writer.Pack();
    config.erase("quantization");
    config["quantization_config"] = {
        {"quant_method", "compressed-tensors"},
        {"format", "pack-quantized"},
        {"config_groups",
         {{"group_0", {{"weights", {{"num_bits", 4}, {"group_size", 32}, {"symmetric", true}}}}}}}};
  }
  return {{"config.json", config.dump()}, {"model.safetensors", writer.Bytes()}};
}

std::map<std::string, std::string> FamilyModel(const FamilyShape& shape) {
  return ModelOfConfig(FamilyConfig(shape));
}

}  // namespace macrame::runtime::engine
