#include "runtime/model/model_config.h"

#include <algorithm>
#include <array>
#include <fstream>
#include <limits>
#include <nlohmann/json.hpp>
#include <optional>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "proto/reasons.h"

namespace macrame::runtime::engine {
namespace {

using nlohmann::json;

constexpr size_t kConfigBytesMax = size_t{1} << 20;
constexpr int kLayersMax = 4096;
constexpr int kDimensionMax = 1 << 24;
constexpr int kExpertsMax = 4096;
constexpr std::array<std::string_view, 7> kFamilies = {
    "llama", "qwen2", "qwen3", "mistral", "qwen2_moe", "qwen3_moe", "mixtral"};

// Thrown inside this file only; ParseModelConfig turns it into a status.
struct ConfigError {
  std::string code;
  std::string message;
};

[[noreturn]] void Invalid(std::string message) {
  throw ConfigError{"MODEL_CONFIG_INVALID", std::move(message)};
}

int ReadInt(const json& config, const char* key, std::optional<int> fallback, int minimum = 1) {
  const auto found = config.find(key);
  if (found == config.end() || found->is_null()) {
    if (fallback.has_value()) return *fallback;
    Invalid(absl::StrCat("'", key, "' is missing"));
  }
  if (!found->is_number_integer()) Invalid(absl::StrCat("'", key, "' is not a whole number"));
  if (found->is_number_unsigned() && found->get<uint64_t>() > uint64_t{kDimensionMax}) {
    Invalid(absl::StrCat("'", key, "' is ", found->dump(), ", above ", kDimensionMax));
  }
  const int64_t value = found->get<int64_t>();
  if (value < minimum || value > kDimensionMax) {
    Invalid(
        absl::StrCat("'", key, "' is ", value, ", not in [", minimum, ", ", kDimensionMax, "]"));
  }
  return static_cast<int>(value);
}

double ReadNumber(const json& config, const char* key, std::optional<double> fallback) {
  const auto found = config.find(key);
  if (found == config.end() || found->is_null()) {
    if (fallback.has_value()) return *fallback;
    Invalid(absl::StrCat("'", key, "' is missing"));
  }
  if (!found->is_number()) Invalid(absl::StrCat("'", key, "' is not a number"));
  const double value = found->get<double>();
  if (!(value > 0.0) || value > 1e30) Invalid(absl::StrCat("'", key, "' is ", value));
  return value;
}

bool ReadBool(const json& config, const char* key, bool fallback) {
  const auto found = config.find(key);
  if (found == config.end() || found->is_null()) return fallback;
  if (!found->is_boolean()) Invalid(absl::StrCat("'", key, "' is neither true nor false"));
  return found->get<bool>();
}

std::string ReadArchitecture(const json& config) {
  const auto type = config.find("model_type");
  if (type == config.end() || !type->is_string()) Invalid("'model_type' is missing");
  const auto name = type->get<std::string>();
  if (std::find(kFamilies.begin(), kFamilies.end(), name) != kFamilies.end()) return name;
  throw ConfigError{"MODEL_ARCHITECTURE_UNKNOWN", absl::StrCat("architecture '", name, "'")};
}

RopeTraits ReadRope(const json& config) {
  RopeTraits rope;
  rope.theta = ReadNumber(config, "rope_theta", 10000.0);
  const char* key = config.contains("rope_parameters") ? "rope_parameters" : "rope_scaling";
  const auto found = config.find(key);
  if (found == config.end() || found->is_null()) return rope;
  if (!found->is_object()) Invalid(absl::StrCat("'", key, "' is not an object"));
  rope.theta = ReadNumber(*found, "rope_theta", rope.theta);
  const auto kind = found->contains("rope_type") ? found->find("rope_type") : found->find("type");
  const std::string name =
      kind != found->end() && kind->is_string() ? kind->get<std::string>() : "default";
  if (name == "default") return rope;
  if (name == "linear") {
    rope.scaling = RopeScalingKind::kLinear;
    rope.factor = ReadNumber(*found, "factor", std::nullopt);
    return rope;
  }
  if (name != "llama3") {
    throw ConfigError{"MODEL_FORMAT_UNSUPPORTED",
                      absl::StrCat("rope scaling '", name,
                                   "' is not implemented; default, linear and llama3 are")};
  }
  rope.scaling = RopeScalingKind::kLlama3;
  rope.factor = ReadNumber(*found, "factor", std::nullopt);
  rope.low_freq_factor = ReadNumber(*found, "low_freq_factor", 1.0);
  rope.high_freq_factor = ReadNumber(*found, "high_freq_factor", 4.0);
  rope.original_context = ReadInt(*found, "original_max_position_embeddings", 8192);
  if (rope.high_freq_factor <= rope.low_freq_factor) {
    Invalid(absl::StrCat("'", key, "': high_freq_factor is not above low_freq_factor"));
  }
  return rope;
}

QuantizationTraits ReadQuantizationTraits(const json& value, const std::string& where,
                                          QuantizationTraits fallback) {
  QuantizationTraits traits;
  traits.bits = ReadInt(value, "bits", fallback.bits);
  traits.group_size = ReadInt(value, "group_size", fallback.group_size);
  const auto mode = value.find("mode");
  if (mode != value.end() && mode->is_string() && *mode != "affine") {
    throw ConfigError{"MODEL_FORMAT_UNSUPPORTED",
                      absl::StrCat(where, ": quantisation mode ", mode->dump())};
  }
  if (traits.bits != 4 && traits.bits != 6 && traits.bits != 8) {
    throw ConfigError{"MODEL_FORMAT_UNSUPPORTED", absl::StrCat(where, ": ", traits.bits, " bits")};
  }
  if (traits.group_size != 32 && traits.group_size != 64 && traits.group_size != 128) {
    throw ConfigError{"MODEL_FORMAT_UNSUPPORTED",
                      absl::StrCat(where, ": groups of ", traits.group_size)};
  }
  return traits;
}

void ReadQuantization(const json& config, ModelConfig& out) {
  const auto found = config.find("quantization");
  if (found == config.end() || found->is_null()) {
    const auto foreign = config.find("quantization_config");
    if (foreign != config.end() && foreign->is_object() && foreign->contains("quant_method")) {
      throw ConfigError{"MODEL_FORMAT_UNSUPPORTED",
                        absl::StrCat("quantised with ", (*foreign)["quant_method"].dump())};
    }
    return;
  }
  if (!found->is_object()) Invalid("'quantization' is not an object");
  out.quantization = ReadQuantizationTraits(*found, "'quantization'", {});
  for (const auto& [name, value] : found->items()) {
    if (value.is_object()) {
      out.quantization_overrides[name] = ReadQuantizationTraits(
          value, absl::StrCat("'quantization.", name, "'"), out.quantization);
    } else if (value.is_boolean() && name.find('.') != std::string::npos) {
      out.quantization_overrides[name] =
          value.get<bool>() ? out.quantization : QuantizationTraits{};
    }
  }
}

void ReadSlidingWindows(const json& config, ModelConfig& out) {
  out.sliding_windows.assign(out.layer_count, 0);
  const bool qwen = absl::StartsWith(out.architecture, "qwen");
  if (out.architecture == "llama" || (qwen && !ReadBool(config, "use_sliding_window", false))) {
    return;
  }
  const int window = ReadInt(config, "sliding_window", 0, 0);
  if (window == 0) return;
  const auto types = config.find("layer_types");
  if (types != config.end() && types->is_array()) {
    if (types->size() != out.sliding_windows.size()) {
      Invalid(absl::StrCat("'layer_types' names ", types->size(), " layers, 'num_hidden_layers' ",
                           out.layer_count));
    }
    for (int layer = 0; layer < out.layer_count; ++layer) {
      if ((*types)[layer] == "sliding_attention") out.sliding_windows[layer] = window;
    }
    return;
  }
  // Qwen's first max_window_layers layers see everything; Mistral's layers are all alike.
  const int first = qwen ? ReadInt(config, "max_window_layers", out.layer_count, 0) : 0;
  for (int layer = first; layer < out.layer_count; ++layer) out.sliding_windows[layer] = window;
}

// Qwen's configs can leave layers dense; Mixtral's can't.
void ReadExpertLayers(const json& config, ModelConfig& out) {
  out.has_experts.assign(static_cast<size_t>(out.layer_count), out.experts.count > 0);
  if (out.experts.count == 0 || out.architecture == "mixtral") return;
  const int step = ReadInt(config, "decoder_sparse_step", 1);
  for (int layer = 0; layer < out.layer_count; ++layer) {
    if ((layer + 1) % step != 0) out.has_experts[static_cast<size_t>(layer)] = false;
  }
  const auto dense = config.find("mlp_only_layers");
  if (dense == config.end() || dense->is_null()) return;
  if (!dense->is_array()) Invalid("'mlp_only_layers' is not a list");
  for (const json& layer : *dense) {
    if (!layer.is_number_integer() || layer < 0 || layer >= out.layer_count) {
      Invalid(absl::StrCat("'mlp_only_layers' names layer ", layer.dump()));
    }
    out.has_experts[layer.get<size_t>()] = false;
  }
}

void ReadExperts(const json& config, ModelConfig& out) {
  ExpertTraits& experts = out.experts;
  if (out.architecture == "mixtral") {
    experts.count = ReadInt(config, "num_local_experts", std::nullopt);
    experts.width = ReadInt(config, "intermediate_size", std::nullopt);
    experts.normalized = true;
    experts.module = "block_sparse_moe";
    experts.gate_name = "w1";
    experts.up_name = "w3";
    experts.down_name = "w2";
  } else if (out.architecture == "qwen3_moe" || out.architecture == "qwen2_moe") {
    experts.count = ReadInt(config, "num_experts", std::nullopt, 0);
    if (experts.count == 0) return;
    experts.width = ReadInt(config, "moe_intermediate_size", std::nullopt);
    experts.normalized = ReadBool(config, "norm_topk_prob", false);
    experts.module = "mlp";
    if (out.architecture == "qwen2_moe") {
      experts.shared_width = ReadInt(config, "shared_expert_intermediate_size", std::nullopt);
    }
  } else {
    return;
  }
  experts.active = ReadInt(config, "num_experts_per_tok", std::nullopt);
  if (experts.count > kExpertsMax) {
    Invalid(absl::StrCat(experts.count, " experts in a layer, above ", kExpertsMax));
  }
  if (experts.active > experts.count) {
    Invalid(absl::StrCat("'num_experts_per_tok' is ", experts.active, ", but there are ",
                         experts.count, " experts"));
  }
}

void ReadArchitectureTraits(const json& config, ModelConfig& out) {
  out.architecture = ReadArchitecture(config);
  const bool llama = out.architecture == "llama";
  const bool qwen2 = out.architecture == "qwen2" || out.architecture == "qwen2_moe";
  const bool bias = ReadBool(config, "attention_bias", false);
  out.qkv_bias = qwen2 || bias;
  out.output_bias = !qwen2 && bias;
  out.mlp_bias = llama && ReadBool(config, "mlp_bias", false);
  out.qk_norm = out.architecture == "qwen3" || out.architecture == "qwen3_moe";
  const auto activation = config.find("hidden_act");
  if (activation != config.end() && activation->is_string() && *activation != "silu") {
    throw ConfigError{"MODEL_FORMAT_UNSUPPORTED", absl::StrCat("activation ", activation->dump(),
                                                               "; only silu is implemented")};
  }
}

ModelConfig Read(const json& config) {
  ModelConfig out;
  ReadArchitectureTraits(config, out);
  out.layer_count = ReadInt(config, "num_hidden_layers", std::nullopt);
  if (out.layer_count > kLayersMax) {
    Invalid(absl::StrCat("'num_hidden_layers' is ", out.layer_count, ", above ", kLayersMax));
  }
  out.hidden_size = ReadInt(config, "hidden_size", std::nullopt);
  ReadExperts(config, out);
  ReadExpertLayers(config, out);
  const bool all_experts =
      std::find(out.has_experts.begin(), out.has_experts.end(), false) == out.has_experts.end();
  out.intermediate_size =
      ReadInt(config, "intermediate_size",
              all_experts ? std::optional(out.experts.width) : std::optional<int>());
  out.attention_heads = ReadInt(config, "num_attention_heads", std::nullopt);
  out.kv_heads = ReadInt(config, "num_key_value_heads", out.attention_heads);
  out.vocab_size = ReadInt(config, "vocab_size", std::nullopt);
  const bool has_head_dim = config.contains("head_dim") && !config["head_dim"].is_null();
  if (!has_head_dim && out.hidden_size % out.attention_heads != 0) {
    Invalid(absl::StrCat("'hidden_size' ", out.hidden_size, " is not divisible by the ",
                         out.attention_heads, " attention heads"));
  }
  out.head_dim = ReadInt(config, "head_dim", out.hidden_size / out.attention_heads);
  if (out.head_dim % 2 != 0) Invalid(absl::StrCat("'head_dim' ", out.head_dim, " is odd"));
  if (out.attention_heads % out.kv_heads != 0) {
    Invalid(absl::StrCat("'num_attention_heads' ", out.attention_heads,
                         " is not a multiple of 'num_key_value_heads' ", out.kv_heads));
  }
  out.context_length_max = ReadInt(config, "max_position_embeddings", 2048);
  out.rms_norm_eps = static_cast<float>(ReadNumber(config, "rms_norm_eps", 1e-6));
  out.tied_embeddings = ReadBool(config, "tie_word_embeddings", out.architecture == "qwen2");
  out.rope = ReadRope(config);
  ReadSlidingWindows(config, out);
  ReadQuantization(config, out);
  return out;
}

}  // namespace

std::span<const std::string_view> KnownFamilies() { return kFamilies; }

QuantizationTraits ModelConfig::QuantizationOf(std::string_view module) const {
  const auto found = quantization_overrides.find(std::string(module));
  return found == quantization_overrides.end() ? quantization : found->second;
}

absl::StatusOr<ModelConfig> ParseModelConfig(std::string_view config_json,
                                             const std::string& folder) {
  const json config = json::parse(config_json, nullptr, /*allow_exceptions=*/false);
  if (!config.is_object()) {
    return ReasonStatus(absl::StatusCode::kInvalidArgument, "MODEL_CONFIG_INVALID",
                        absl::StrCat(folder, "/config.json is not a JSON object"));
  }
  try {
    return Read(config);
  } catch (const ConfigError& error) {
    return ReasonStatus(absl::StatusCode::kInvalidArgument, error.code,
                        absl::StrCat(folder, "/config.json: ", error.message));
  } catch (const json::exception& error) {
    return ReasonStatus(absl::StatusCode::kInvalidArgument, "MODEL_CONFIG_INVALID",
                        absl::StrCat(folder, "/config.json: ", error.what()));
  }
}

absl::StatusOr<ModelConfig> LoadModelConfig(const std::string& folder) {
  const std::string path = absl::StrCat(folder, "/config.json");
  std::ifstream file(path, std::ios::binary);
  if (!file) {
    return ReasonStatus(absl::StatusCode::kNotFound, "MODEL_CONFIG_INVALID",
                        absl::StrCat(path, " can't be read"));
  }
  std::string text(kConfigBytesMax + 1, '\0');
  file.read(text.data(), static_cast<std::streamsize>(text.size()));
  text.resize(static_cast<size_t>(file.gcount()));
  if (text.size() > kConfigBytesMax) {
    return ReasonStatus(absl::StatusCode::kInvalidArgument, "MODEL_CONFIG_INVALID",
                        absl::StrCat(path, " is larger than ", kConfigBytesMax, " bytes"));
  }
  return ParseModelConfig(text, folder);
}

}  // namespace macrame::runtime::engine
