#include "runtime/model/families/known_fields.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <string>

#include "absl/strings/str_cat.h"
#include "proto/reason_codes.h"
#include "runtime/model/families/config_fields.h"

namespace macrame::runtime::engine {
namespace {

using nlohmann::json;

// `families`: names of model_type with spaces between them; "*": all.
struct FixedField {
  std::string_view families;
  const char* field;
  // A JSON list of what it may say. null and a missing field are always right. Of a field that is a
  // list, each entry is one of these.
  const char* allowed;
  const char* what;  // what any other value asks for
};

constexpr std::string_view kGemma = "gemma3 gemma3_text";
constexpr std::string_view kGemma4 = "gemma4 gemma4_text gemma4_unified";
constexpr std::string_view kIndexed = "deepseek_v32 glm_moe_dsa";

constexpr FixedField kFixedFields[] = {
    {kIndexed, "indexer_types", R"(["full"])", "layers that share another layer's index"},
    {kIndexed, "index_topk_freq", "[1]", "layers that share another layer's index"},
    {kIndexed, "index_topk_pattern", R"(["F", "full"])", "layers that share another layer's index"},
    {"deepseek_v2 deepseek_v32 glm_moe_dsa", "mlp_bias", "[false]", "biases of feed-forwards"},
    {"qwen2_moe", "qkv_bias", "[true]", "queries, keys and values without biases"},
    {"nemotron_h", "mamba_hidden_act", R"(["silu", "swish"])", "another activation in Mamba"},
    {"nemotron_h", "mlp_hidden_act", R"(["relu2"])", "another activation in feed-forwards"},
    {"nemotron_h minimax", "sliding_window", "[0]", "attention to a window"},
    {kGemma, "use_bidirectional_attention", "[false]", "attention to later positions"},
    // "vision" holds for the positions of pictures alone.
    {kGemma4, "use_bidirectional_attention", R"([false, "vision"])",
     "attention to later positions"},
    {kGemma4, "global_partial_rotary_factor", "[0.25]", "another part of each head that turns"},
    {"gpt_oss", "attention_bias", "[true]", "attention without biases"},
    {"*", "attention_chunk_size", "[0]", "attention within chunks"},
    {"*", "quantize_activations", "[false]", "activations that are quantised like weights"},
    {"*", "attn_logit_softcapping", "[0, 0.0]", "scores that are capped"},
};

bool IsOf(std::string_view families, std::string_view type) {
  if (families == "*") return true;
  for (size_t begin = 0; begin < families.size();) {
    const size_t end = std::min(families.find(' ', begin), families.size());
    if (families.substr(begin, end - begin) == type) return true;
    begin = end + 1;
  }
  return false;
}

[[noreturn]] void Refuse(const char* field, const std::string& said, const std::string& what) {
  ConfigError error{
      reasons::kModelFormatUnsupported,
      absl::StrCat("'", field, "' is ", said, ": ", what, ", which rankd does not compute")};
  error.remedy = absl::StrCat(
      "the files are as their makers published them; load another model, or a version of this one "
      "without '",
      field, "'");
  throw error;
}

std::string Shown(const json& value) {
  constexpr size_t kShownMax = 60;
  std::string text = value.dump(-1, ' ', false, json::error_handler_t::replace);
  if (text.size() > kShownMax) text = text.substr(0, kShownMax) + "…";
  return text;
}

void CheckOne(const FixedField& fixed, const json& config) {
  const json* found = FindField(config, fixed.field);
  if (found == nullptr) return;
  const json allowed = json::parse(fixed.allowed);
  const auto is_allowed = [&](const json& value) {
    return std::find(allowed.begin(), allowed.end(), value) != allowed.end();
  };
  // A pattern of one letter a layer.
  const bool is_letters = found->is_string() && allowed[0].is_string() &&
                          allowed[0].get_ref<const std::string&>().size() == 1;
  if (is_letters) {
    const char letter = allowed[0].get_ref<const std::string&>()[0];
    const auto& letters = found->get_ref<const std::string&>();
    if (letters.find_first_not_of(letter) == std::string::npos) return;
  } else if (found->is_array()) {
    if (std::all_of(found->begin(), found->end(), is_allowed)) return;
  } else if (is_allowed(*found)) {
    return;
  }
  Refuse(fixed.field, Shown(*found), fixed.what);
}

// Names that transformers' attribute maps, or its older versions, give a field.
struct SecondName {
  std::string_view families;
  const char* second;
  const char* field;
};

constexpr std::string_view kRouted =
    "deepseek_v2 deepseek_v3 deepseek_v32 glm_moe_dsa kimi_k2 kimi_k25 kimi_vl glm4_moe "
    "glm4_moe_lite dots1 solar_open nemotron_h";

constexpr SecondName kSecondNames[] = {
    {kRouted, "num_local_experts", "n_routed_experts"},
    {"deepseek_v2 deepseek_v32 glm_moe_dsa", "num_experts", "n_routed_experts"},
    {"qwen2_moe qwen3_moe qwen3_vl_moe qwen3_next qwen3_5_moe olmoe", "num_local_experts",
     "num_experts"},
    {"mixtral minimax minimax_m2 minimax_m3_vl gpt_oss", "num_experts", "num_local_experts"},
    {"deepseek_v3 kimi_k2 kimi_k25 kimi_vl glm4_moe deepseek_v32 glm_moe_dsa", "num_mtp_layers",
     "num_nextn_predict_layers"},
    {"internlm3", "attention_bias", "qkv_bias"},
    {"internlm3", "mlp_bias", "bias"},
    {"nemotron_h", "mamba_n_groups", "n_groups"},
    {"nemotron_h", "mamba_d_conv", "conv_kernel"},
    {"nemotron_h", "mamba_conv_bias", "use_conv_bias"},
    {"nemotron_h", "mamba_dt_limit", "time_step_limit"},
    {"nemotron_h", "use_bias", "mamba_proj_bias"},
};

// Of these a window counts only with "use_sliding_window".
constexpr std::string_view kSwitchedWindows =
    "qwen2 qwen3 qwen2_moe qwen3_moe qwen3_vl qwen3_vl_moe mimo smollm3";

const json& TextPart(const json& config) {
  const json* text = FindField(config, "text_config");
  return text != nullptr && text->is_object() ? *text : config;
}

std::string KindOf(const ModelConfig& read, size_t layer) {
  if (read.mixers[layer] == MixerKind::kRecurrent) return "linear_attention";
  if (read.sliding_windows[layer] > 0) return "sliding_attention";
  return read.has_index() ? "indexed_attention" : "full_attention";
}

// What older versions of transformers call a kind.
std::string PresentName(const std::string& kind) {
  if (kind == "mamba") return "linear_attention";
  if (kind == "attention") return "full_attention";
  if (kind == "deepseek_sparse_attention") return "indexed_attention";
  return kind;
}

}  // namespace

void NameFields(std::string_view type, json& config) {
  json* held = &config;
  if (const auto text = config.find("text_config"); text != config.end() && text->is_object()) {
    held = &*text;
  }
  for (const SecondName& name : kSecondNames) {
    if (!IsOf(name.families, type)) continue;
    const json* second = FindField(*held, name.second);
    if (second == nullptr) continue;
    if (FindField(*held, name.field) != nullptr) continue;  // the family's own name wins
    const json value = *second;
    (*held)[name.field] = value;
  }
}

void CheckFixedFields(std::string_view type, const json& config) {
  for (const FixedField& fixed : kFixedFields) {
    if (!IsOf(fixed.families, type)) continue;
    CheckOne(fixed, TextPart(config));
  }
}

void ReadFeedKinds(const json& config, ModelConfig& out) {
  constexpr char kKey[] = "mlp_layer_types";
  const json* kinds = FindField(TextPart(config), kKey);
  if (kinds == nullptr) return;
  const auto layers = static_cast<size_t>(out.layer_count);
  if (!kinds->is_array() || kinds->size() < layers) {
    Invalid(absl::StrCat("'", kKey, "' is not a list of ", layers, " kinds"));
  }
  for (size_t layer = 0; layer < layers; ++layer) {
    const json& kind = (*kinds)[layer];
    const bool is_sparse = kind == "sparse";
    if (!is_sparse && kind != "dense") {
      Refuse(kKey, Shown(kind), absl::StrCat("a feed-forward of layer ", layer));
    }
    if (is_sparse && out.experts.count == 0) {
      Refuse(kKey, Shown(kind), absl::StrCat("experts in layer ", layer, " of a dense model"));
    }
    if (out.experts.count > 0) out.has_experts[layer] = is_sparse;
  }
}

void CheckLayerKinds(const json& config, const ModelConfig& read) {
  // They have kinds of their own, which their readers judge.
  for (const char* own : {"nemotron_h", "minimax_m3_vl", "deepseek_v41"}) {
    if (read.architecture == own) return;
  }
  const json& text = TextPart(config);
  const json* kinds = FindField(text, "layer_types");
  if (kinds == nullptr || !kinds->is_array()) return;
  // A window that is switched off makes full attention of the layers that name one.
  const bool is_on_unless_said = !IsOf(kSwitchedWindows, read.architecture);
  const bool has_window = ReadInt(text, "sliding_window", 0, 0) > 0 &&
                          ReadBool(text, "use_sliding_window", is_on_unless_said);
  const size_t layers = std::min(kinds->size(), static_cast<size_t>(read.layer_count));
  for (size_t layer = 0; layer < layers; ++layer) {
    const json& said = (*kinds)[layer];
    std::string kind = said.is_string() ? PresentName(said.get<std::string>()) : "";
    if (kind == "sliding_attention" && !has_window) kind = "full_attention";
    if (read.has_index() && kind == "full_attention") kind = "indexed_attention";
    if (kind != KindOf(read, layer)) {
      Refuse("layer_types", Shown(said), absl::StrCat("layer ", layer, " of another kind"));
    }
  }
}

}  // namespace macrame::runtime::engine
