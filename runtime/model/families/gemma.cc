// Gemma 3, by itself or beside a vision tower: a norm before and behind each half layer, stored as
// differences from one; every sixth layer sees all positions, the others a window, with rotary
// forms of their own.

#include <cmath>

#include "absl/strings/str_cat.h"
#include "runtime/model/families/config_fields.h"
#include "runtime/model/families/family.h"
#include "runtime/model/families/rope_fields.h"

namespace macrame::runtime::engine {
namespace {

using nlohmann::json;

// Since transformers 5 "rope_parameters" names the two forms by what layers see.
void ReadGemma3Ropes(const json& config, ModelConfig& out) {
  json local = json::object(), global = config;
  local["rope_theta"] = ReadNumber(config, "rope_local_base_freq", 10000.0);
  const json* both = FindField(config, "rope_parameters");
  if (both != nullptr && both->contains("full_attention")) {
    global["rope_parameters"] = (*both)["full_attention"];
    if (both->contains("sliding_attention")) {
      local["rope_parameters"] = (*both)["sliding_attention"];
    }
  }
  out.rope = ReadRope(global, out.head_dim, out.context_length_max);
  out.local_rope = ReadRope(local, out.head_dim, out.context_length_max);
}

void ReadGemma3Windows(const json& config, ModelConfig& out) {
  if (FindField(config, "layer_types") != nullptr) {
    ReadSlidingWindows(config, 0, out);
  } else {
    json periodic = {{"sliding_window", 512}};
    periodic.update(config);
    const int pattern =
        ReadInt(config, "sliding_window_pattern", ReadInt(config, "_sliding_window_pattern", 6));
    ReadPeriodicWindows(periodic, pattern, out);
  }
  for (const int window : out.sliding_windows) {
    out.rope_uses.push_back(window > 0 ? RopeUse::kLocal : RopeUse::kGlobal);
  }
}

}  // namespace

void ReadGemma3Text(const json& given, ModelConfig& out) {
  json config = {{"head_dim", 256},
                 {"rms_norm_eps", 1e-6},
                 {"rope_theta", 1e6},
                 {"max_position_embeddings", 131072},
                 {"hidden_activation", "gelu_pytorch_tanh"}};
  config.update(given);
  json frame = config;  // without the rotary forms, of which there are two
  frame.erase("rope_parameters");
  frame.erase("rope_scaling");
  out.tied_embeddings = true;
  ReadFrame(frame, out);
  ReadGemma3Ropes(config, out);
  ReadGemma3Windows(config, out);
  for (const char* key : {"attn_logit_softcapping", "final_logit_softcapping"}) {
    if (FindField(config, key) != nullptr) Unsupported(absl::StrCat("'", key, "'"));
  }
  out.qkv_bias = out.output_bias = ReadBool(config, "attention_bias", false);
  out.qk_norm = true;
  out.norm_adds_one = true;
  out.norms = {"input_layernorm", "post_attention_layernorm", "pre_feedforward_layernorm",
               "post_feedforward_layernorm"};
  out.embedding_scale = RoundedToBfloat16(std::sqrt(static_cast<double>(out.hidden_size)));
  out.attention_scale = 1.0 / std::sqrt(ReadNumber(config, "query_pre_attn_scalar", 256.0));
}

void ReadGemma3(const json& config, ModelConfig& out) {
  const json text = TextConfig(config, {{"num_attention_heads", 8}, {"num_key_value_heads", 4}});
  json with_vocabulary = {{"vocab_size", ReadInt(config, "vocab_size", 262208)}};
  with_vocabulary.update(text);
  ReadGemma3Text(with_vocabulary, out);
}

}  // namespace macrame::runtime::engine
