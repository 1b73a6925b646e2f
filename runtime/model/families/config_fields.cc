#include "runtime/model/families/config_fields.h"

#include <algorithm>
#include <bit>

#include "absl/strings/str_cat.h"
#include "proto/reason_codes.h"
#include "runtime/model/families/rope_fields.h"

namespace macrame::runtime::engine {

using nlohmann::json;

void Invalid(std::string message) {
  throw ConfigError{reasons::kModelConfigInvalid, std::move(message)};
}

void Unsupported(std::string message) {
  throw ConfigError{reasons::kModelFormatUnsupported, std::move(message)};
}

const json* FindField(const json& config, const char* key) {
  const auto found = config.find(key);
  return found == config.end() || found->is_null() ? nullptr : &*found;
}

int ReadInt(const json& config, const char* key, std::optional<int> fallback, int minimum) {
  const json* found = FindField(config, key);
  if (found == nullptr) {
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
  const json* found = FindField(config, key);
  if (found == nullptr) {
    if (fallback.has_value()) return *fallback;
    Invalid(absl::StrCat("'", key, "' is missing"));
  }
  if (!found->is_number()) Invalid(absl::StrCat("'", key, "' is not a number"));
  const double value = found->get<double>();
  if (!(value > 0.0) || value > 1e30) Invalid(absl::StrCat("'", key, "' is ", value));
  return value;
}

double ReadNumberFromZero(const json& config, const char* key, double fallback) {
  const json* found = FindField(config, key);
  if (found != nullptr && found->is_number() && found->get<double>() == 0.0) return 0.0;
  return ReadNumber(config, key, fallback);
}

bool ReadBool(const json& config, const char* key, bool fallback) {
  const json* found = FindField(config, key);
  if (found == nullptr) return fallback;
  if (!found->is_boolean()) Invalid(absl::StrCat("'", key, "' is neither true nor false"));
  return found->get<bool>();
}

std::string ReadText(const json& config, const char* key, const std::string& fallback) {
  const json* found = FindField(config, key);
  if (found == nullptr) return fallback;
  if (!found->is_string()) Invalid(absl::StrCat("'", key, "' is not a text"));
  return found->get<std::string>();
}

std::optional<std::vector<bool>> ReadFlags(const json& config, const char* key, int layers) {
  const json* found = FindField(config, key);
  if (found == nullptr) return std::nullopt;
  if (!found->is_array() || found->size() != static_cast<size_t>(layers)) {
    Invalid(absl::StrCat("'", key, "' is not a list of ", layers));
  }
  std::vector<bool> flags;
  for (const json& flag : *found) {
    if (!flag.is_number_integer() && !flag.is_boolean()) {
      Invalid(absl::StrCat("'", key, "' holds ", flag.dump(), ", neither 0 nor 1"));
    }
    flags.push_back(flag.is_boolean() ? flag.get<bool>() : flag != 0);
  }
  return flags;
}

float RoundedToBfloat16(double value) {
  const auto bits = std::bit_cast<uint32_t>(static_cast<float>(value));
  return std::bit_cast<float>((bits + 0x7FFFU + (bits >> 16 & 1U)) & 0xFFFF0000U);
}

void ReadFrame(const json& config, ModelConfig& out) {
  out.layer_count = ReadInt(config, "num_hidden_layers", std::nullopt);
  if (out.layer_count > kLayersMax) {
    Invalid(absl::StrCat("'num_hidden_layers' is ", out.layer_count, ", above ", kLayersMax));
  }
  out.hidden_size = ReadInt(config, "hidden_size", std::nullopt);
  // Models whose layers all have experts need none.
  out.intermediate_size = ReadInt(config, "intermediate_size", 0);
  out.attention_heads = ReadInt(config, "num_attention_heads", std::nullopt);
  out.kv_heads = ReadInt(config, "num_key_value_heads", out.attention_heads);
  out.vocab_size = ReadInt(config, "vocab_size", std::nullopt);
  if (FindField(config, "head_dim") == nullptr && out.hidden_size % out.attention_heads != 0) {
    Invalid(absl::StrCat("'hidden_size' ", out.hidden_size, " is not divisible by the ",
                         out.attention_heads, " attention heads"));
  }
  out.head_dim = ReadInt(config, "head_dim", out.hidden_size / out.attention_heads);
  if (out.head_dim % 2 != 0) Invalid(absl::StrCat("'head_dim' ", out.head_dim, " is odd"));
  out.context_length_max = ReadInt(config, "max_position_embeddings", 2048);
  out.rms_norm_eps = static_cast<float>(ReadNumber(config, "rms_norm_eps", 1e-6));
  out.tied_embeddings = ReadBool(config, "tie_word_embeddings", out.tied_embeddings);
  out.activation = ReadActivation(config);
  out.rope = ReadRope(config, out.head_dim, out.context_length_max);
}

Activation ReadActivation(const json& config, const char* fallback) {
  const std::string name =
      ReadText(config, "hidden_activation", ReadText(config, "hidden_act", fallback));
  if (name == "silu" || name == "swish") return Activation::kSilu;
  if (name == "gelu_pytorch_tanh") return Activation::kGeluTanh;
  Unsupported(
      absl::StrCat("activation '", name, "' is not implemented; silu and gelu_pytorch_tanh are"));
}

json TextConfig(const json& config, const json& defaults) {
  const json* text = FindField(config, "text_config");
  if (text == nullptr && FindField(config, "num_hidden_layers") != nullptr) text = &config;
  if (text == nullptr || !text->is_object()) Invalid("'text_config' is missing");
  json all = defaults;
  for (const auto& [key, value] : text->items()) {
    if (!value.is_null()) all[key] = value;
  }
  return all;
}

void ReadSlidingWindows(const json& config, int first, ModelConfig& out) {
  out.sliding_windows.assign(static_cast<size_t>(out.layer_count), 0);
  const int window = ReadInt(config, "sliding_window", 0, 0);
  if (window == 0) return;
  const json* types = FindField(config, "layer_types");
  if (types != nullptr && types->is_array()) {
    if (types->size() != out.sliding_windows.size()) {
      Invalid(absl::StrCat("'layer_types' names ", types->size(), " layers, 'num_hidden_layers' ",
                           out.layer_count));
    }
    for (size_t layer = 0; layer < out.sliding_windows.size(); ++layer) {
      if ((*types)[layer] == "sliding_attention") out.sliding_windows[layer] = window;
    }
    return;
  }
  for (int layer = first; layer < out.layer_count; ++layer) {
    out.sliding_windows[static_cast<size_t>(layer)] = window;
  }
}

void ReadPeriodicWindows(const json& config, int pattern, ModelConfig& out) {
  const int window = ReadInt(config, "sliding_window", std::nullopt);
  for (int layer = 0; layer < out.layer_count; ++layer) {
    out.sliding_windows.push_back((layer + 1) % pattern != 0 ? window : 0);
  }
}

void ExpectText(const json& config, const char* key, const std::string& only) {
  const std::string name = ReadText(config, key, only);
  if (name != only) {
    Unsupported(absl::StrCat("router's ", key, " '", name, "' is not implemented; ", only, " is"));
  }
}

void ReadExpertGroups(const json& config, ExpertTraits& experts) {
  experts.groups = ReadInt(config, "n_group", 1);
  experts.groups_active = ReadInt(config, "topk_group", experts.groups);
  if (experts.count % experts.groups != 0 || experts.groups_active > experts.groups) {
    Invalid(absl::StrCat("'n_group' ", experts.groups, " and 'topk_group' ", experts.groups_active,
                         " don't divide ", experts.count, " experts"));
  }
  if (experts.active > experts.count / experts.groups * experts.groups_active) {
    Invalid(absl::StrCat("'num_experts_per_tok' is ", experts.active, ", but ",
                         experts.groups_active, " of ", experts.groups, " groups have ",
                         experts.count / experts.groups * experts.groups_active));
  }
}

void ReadSharedExperts(const json& config, ExpertTraits& experts) {
  const int shared = ReadInt(config, "n_shared_experts", 0, 0);
  if (int64_t{shared} * experts.width > kDimensionMax) {
    Invalid(absl::StrCat("'n_shared_experts' is ", shared));
  }
  experts.shared_width = shared * experts.width;
  experts.shared_module = "shared_experts";
}

void ReadBlockSparseExperts(const json& config, ExpertTraits& experts) {
  experts.count = ReadInt(config, "num_local_experts", std::nullopt);
  experts.width = ReadInt(config, "intermediate_size", std::nullopt);
  experts.normalized = true;
  experts.module = "block_sparse_moe";
  experts.gate_name = "w1";
  experts.up_name = "w3";
  experts.down_name = "w2";
}

void CheckRecurrent(const char* value_heads, const char* key_heads, const char* taps,
                    const RecurrentTraits& traits) {
  if (traits.value_heads % traits.key_heads != 0) {
    Invalid(absl::StrCat("'", value_heads, "' ", traits.value_heads, " is not a multiple of '",
                         key_heads, "' ", traits.key_heads));
  }
  if (traits.taps > RecurrentTraits::kTapsMax) {
    Unsupported(absl::StrCat("'", taps, "' ", traits.taps, ", above ", RecurrentTraits::kTapsMax));
  }
  const int64_t channels = 2 * int64_t{traits.key_heads} * traits.key_dim +
                           int64_t{traits.value_heads} * traits.value_dim;
  if (channels * traits.taps > kDimensionMax) {
    Invalid(absl::StrCat("a convolution over ", channels, " channels is above ", kDimensionMax));
  }
}

void ReadActiveExperts(const json& config, ModelConfig& out, int first) {
  ExpertTraits& experts = out.experts;
  experts.active = ReadInt(config, "num_experts_per_tok", std::nullopt);
  if (experts.count > kExpertsMax) {
    Invalid(absl::StrCat(experts.count, " experts in a layer, above ", kExpertsMax));
  }
  if (experts.active > experts.count) {
    Invalid(absl::StrCat("'num_experts_per_tok' is ", experts.active, ", but there are ",
                         experts.count, " experts"));
  }
  out.has_experts.assign(static_cast<size_t>(out.layer_count), true);
  for (int layer = 0; layer < std::min(first, out.layer_count); ++layer) {
    out.has_experts[static_cast<size_t>(layer)] = false;
  }
}

}  // namespace macrame::runtime::engine
