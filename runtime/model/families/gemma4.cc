// Gemma 4, by itself or beside what sees pictures and hears sound. Layers see a window or all
// positions, the latter with heads of their own size, whose values may be their keys; the last ones
// read keys and values of the last layer of their kind before them. Each layer may take an input of
// its own, made from a position's token, and may have experts beside its feed-forward.

#include <cmath>

#include "absl/strings/str_cat.h"
#include "runtime/model/families/config_fields.h"
#include "runtime/model/families/family.h"
#include "runtime/model/families/rope_fields.h"

namespace macrame::runtime::engine {
namespace {

using nlohmann::json;

// The two forms by what layers see; one that is said for both is read as such.
void ReadGemma4Ropes(const json& config, ModelConfig& out) {
  const json plain = {{"rope_type", "default"}, {"rope_theta", 10000.0}};
  const json proportional = {
      {"rope_type", "proportional"}, {"rope_theta", 1e6}, {"partial_rotary_factor", 0.25}};
  const json* given = FindField(config, "rope_parameters");
  if (given == nullptr) given = FindField(config, "rope_scaling");
  const auto form = [&](const char* kind, const json& fallback, int dim) {
    json own = {{"rope_parameters", fallback}};
    if (given != nullptr) own["rope_parameters"] = given->contains(kind) ? (*given)[kind] : *given;
    if (const json* interleaved = FindField(config, "rope_traditional"); interleaved != nullptr) {
      own["rope_traditional"] = *interleaved;
    }
    return ReadRope(own, dim, out.context_length_max);
  };
  out.rope = form("full_attention", proportional, out.global_heads->dim);
  out.local_rope = form("sliding_attention", plain, out.head_dim);
}

void ReadKinds(const json& config, ModelConfig& out) {
  const json* types = FindField(config, "layer_types");
  if (types == nullptr) {
    ReadPeriodicWindows(config, ReadInt(config, "sliding_window_pattern", 5), out);
  } else {
    for (const json& type : types->is_array() ? *types : json::array()) {
      if (type != "sliding_attention" && type != "full_attention") {
        Unsupported(absl::StrCat("'layer_types' names ", type.dump(),
                                 ", neither sliding_attention nor full_attention"));
      }
    }
    ReadSlidingWindows(config, 0, out);
  }
  for (const int window : out.sliding_windows) {
    out.rope_uses.push_back(window > 0 ? RopeUse::kLocal : RopeUse::kGlobal);
  }
}

// The last layers attend to what the last one of their kind before them keeps.
void ReadSharedKv(const json& config, ModelConfig& out) {
  const int shared = ReadInt(config, "num_kv_shared_layers", 0, 0);
  const int first = out.layer_count - shared;
  if (shared == 0) return;
  for (int layer = 0; layer < out.layer_count; ++layer) {
    int source = layer < first ? layer : first - 1;
    const auto is_windowed = [&](int at) { return out.sliding_windows[at] > 0; };
    while (source >= 0 && is_windowed(source) != is_windowed(layer)) --source;
    if (source < 0) {
      Invalid(absl::StrCat("'num_kv_shared_layers' ", shared,
                           ": no layer of its kind before layer ", first,
                           " has keys and values that layer ", layer, " could read"));
    }
    out.kv_sources.push_back(source);
  }
  if (!ReadBool(config, "use_double_wide_mlp", true)) return;
  if (int64_t{2} * out.intermediate_size > kDimensionMax) {
    Invalid(absl::StrCat("'intermediate_size' is ", out.intermediate_size));
  }
  for (int layer = 0; layer < out.layer_count; ++layer) {
    out.feed_widths.push_back(out.intermediate_size * (layer < first ? 1 : 2));
  }
}

void ReadHeads(const json& config, ModelConfig& out) {
  HeadTraits global{out.kv_heads, ReadInt(config, "global_head_dim", 512, 0)};
  if (global.dim == 0) global.dim = out.head_dim;
  if (global.dim % 2 != 0) Invalid(absl::StrCat("'global_head_dim' ", global.dim, " is odd"));
  global.keys_are_values = ReadBool(config, "attention_k_eq_v", false);
  if (global.keys_are_values) {
    global.kv_heads = ReadInt(config, "num_global_key_value_heads", out.kv_heads);
  }
  out.global_heads = global;
  out.qk_norm = out.value_norm = true;
  out.attention_scale = 1.0;
}

void ReadExperts(const json& config, ModelConfig& out) {
  if (!ReadBool(config, "enable_moe_block", false)) return;
  ExpertTraits& experts = out.experts;
  experts.count = ReadInt(config, "num_experts", std::nullopt);
  experts.width = ReadInt(config, "moe_intermediate_size", std::nullopt);
  const int active = ReadInt(config, "top_k_experts", std::nullopt);
  if (active > experts.count) {
    Invalid(
        absl::StrCat("'top_k_experts' is ", active, ", but there are ", experts.count, " experts"));
  }
  ReadActiveExperts({{"num_experts_per_tok", active}}, out, 0);
  experts.normalized = true;
  experts.beside_feed = true;
  experts.router_name = "router.proj";
  experts.stacked_name = "experts.switch_glu";
  experts.gate_name = experts.up_name = experts.down_name = "";  // never by themselves
  experts.fused_name = "experts";
}

// Before each layer, from a table as large as all layers' together.
void ReadLayerInputs(const json& config, ModelConfig& out) {
  out.layer_input_width = ReadInt(config, "hidden_size_per_layer_input", 256, 0);
  if (out.layer_input_width == 0) return;
  const int rows = ReadInt(config, "vocab_size_per_layer_input", out.vocab_size);
  if (rows != out.vocab_size) {
    Unsupported(absl::StrCat("'vocab_size_per_layer_input' ", rows, " is not 'vocab_size' ",
                             out.vocab_size));
  }
  if (int64_t{out.layer_input_width} * out.layer_count > kDimensionMax) {
    Invalid(absl::StrCat("'hidden_size_per_layer_input' is ", out.layer_input_width));
  }
}

}  // namespace

void ReadGemma4Text(const json& given, ModelConfig& out) {
  json config = {{"head_dim", 256},
                 {"rms_norm_eps", 1e-6},
                 {"sliding_window", 512},
                 {"max_position_embeddings", 131072},
                 {"num_attention_heads", 8},
                 {"num_key_value_heads", 1},
                 {"hidden_activation", "gelu_pytorch_tanh"}};
  for (const auto& [key, value] : given.items()) {
    if (!value.is_null() || key == "final_logit_softcapping") config[key] = value;
  }
  json frame = config;  // without the rotary forms, of which there are two
  frame.erase("rope_parameters");
  frame.erase("rope_scaling");
  frame.erase("partial_rotary_factor");
  out.tied_embeddings = true;
  ReadFrame(frame, out);
  ReadHeads(config, out);
  ReadGemma4Ropes(config, out);
  ReadKinds(config, out);
  ReadSharedKv(config, out);
  ReadExperts(config, out);
  ReadLayerInputs(config, out);
  if (ReadBool(config, "attention_bias", false)) Unsupported("'attention_bias'");
  out.layer_scalars = true;
  // Where it is not said, there is one; null says that there is none.
  const bool is_uncapped = config.emplace("final_logit_softcapping", 30.0).first->is_null();
  out.logit_cap =
      is_uncapped ? 0.0F
                  : static_cast<float>(ReadNumberFromZero(config, "final_logit_softcapping", 0));
  out.norms = {"input_layernorm", "post_attention_layernorm", "pre_feedforward_layernorm",
               "post_feedforward_layernorm"};
  out.embedding_scale = RoundedToBfloat16(std::sqrt(static_cast<double>(out.hidden_size)));
}

void ReadGemma4(const json& config, ModelConfig& out) {
  const json text = TextConfig(config, {{"num_attention_heads", 8}, {"num_key_value_heads", 1}});
  json with_vocabulary = text;
  // The whole model's comes first.
  with_vocabulary["vocab_size"] =
      ReadInt(config, "vocab_size", ReadInt(text, "vocab_size", 262144));
  // null says something here, and TextConfig leaves it out.
  const json& own = *FindField(config, "text_config");
  if (own.contains("final_logit_softcapping") && own["final_logit_softcapping"].is_null()) {
    with_vocabulary["final_logit_softcapping"] = nullptr;
  }
  ReadGemma4Text(with_vocabulary, out);
}

}  // namespace macrame::runtime::engine
