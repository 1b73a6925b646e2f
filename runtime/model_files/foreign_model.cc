#include "runtime/model_files/foreign_model.h"

#include <algorithm>
#include <initializer_list>
#include <map>
#include <nlohmann/json.hpp>
#include <string_view>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "proto/reasons.h"
#include "runtime/model/config/config_json.h"
#include "runtime/model/weights/fp8_weights.h"
#include "runtime/model/weights/packed_weights.h"

namespace macrame::runtime {
namespace {

using nlohmann::json;

constexpr uint64_t kSizeMax = uint64_t{1} << 28;
constexpr uint32_t kContextUnknown = 4096;  // where the config names none
constexpr uint32_t kLayersMax = 4096;

// The config of the text part, where there are several.
const json& TextOf(const json& config) {
  const auto text = config.find("text_config");
  return text != config.end() && text->is_object() ? *text : config;
}

// The first of these fields that is there; 0: none is.
uint32_t Size(const json& config, std::initializer_list<const char*> names) {
  for (const json* held : {&TextOf(config), &config}) {
    for (const char* name : names) {
      const auto found = held->find(name);
      if (found == held->end() || !found->is_number_unsigned()) continue;
      const auto value = found->get<uint64_t>();
      if (value > 0 && value <= kSizeMax) return static_cast<uint32_t>(value);
    }
  }
  return 0;
}

bool IsTrue(const json& config, const char* name) {
  for (const json* held : {&TextOf(config), &config}) {
    const auto found = held->find(name);
    if (found != held->end() && found->is_boolean()) return found->get<bool>();
  }
  return false;
}

absl::Status Lacking(const std::string& folder, std::string_view what) {
  return ReasonStatus(absl::StatusCode::kInvalidArgument, reasons::kModelConfigInvalid,
                      absl::StrCat(folder, "/config.json: it names no ", std::string(what)));
}

// "transformer.h.12.attn…" → 12: the first part that is a number and stands behind a name of
// several layers. -1 for tensors of no layer.
int LayerOf(const std::string& name) {
  const std::vector<std::string> parts = absl::StrSplit(name, '.');
  for (size_t i = 1; i < parts.size(); ++i) {
    int layer = -1;
    const std::string& before = parts[i - 1];
    const bool holds_layers =
        before == "layers" || before == "h" || before == "blocks" || before == "block";
    if (holds_layers && absl::SimpleAtoi(parts[i], &layer)) return layer;
  }
  return -1;
}

bool IsEmbedding(const std::string& name) {
  return absl::StrContains(name, "embed") || absl::StrContains(name, "wte.") ||
         absl::StrContains(name, "word_embeddings");
}

bool IsOfExperts(const std::string& name) {
  return absl::StrContains(name, ".experts.") || absl::StrContains(name, ".switch_mlp.");
}

bool IsHead(const std::string& name) {
  return absl::StartsWith(name, "lm_head.") || absl::StartsWith(name, "output.") ||
         absl::StartsWith(name, "head.");
}

// Other things than text: they are not loaded.
bool IsOfAnotherPart(const std::string& name) {
  return absl::StrContains(name, "vision") || absl::StrContains(name, "visual") ||
         absl::StrContains(name, "audio") || absl::StrContains(name, "multi_modal");
}

bool IsPartOfQuantized(const std::string& name) {
  return absl::EndsWith(name, ".scales") || absl::EndsWith(name, ".biases");
}

std::string DtypeOf(const std::string& stored) {
  if (stored == "BF16" || absl::StartsWith(stored, "F8")) return "bfloat16";
  return stored == "F16" ? "float16" : "float32";
}

void AddStorage(const json& config, const engine::WeightFiles& files, v1::ModelDescription* out) {
  const auto quantization = config.find("quantization");
  const bool is_quantized = quantization != config.end() && quantization->is_object();
  const uint32_t bits = is_quantized ? Size(*quantization, {"bits"}) : 0;
  std::map<std::string, uint64_t> floats;
  uint64_t parameters = 0;
  for (const auto& [name, tensor] : files.tensors()) {
    if (IsPartOfQuantized(name) || IsOfAnotherPart(name)) continue;
    if (engine::IsFp8Scale(tensor, files)) continue;
    if (tensor.dtype == "U32" && bits > 0) {
      parameters += tensor.bytes * 8 / bits;
    } else {
      floats[tensor.dtype] += tensor.bytes;
      const bool is_byte = tensor.dtype == "U8" || engine::IsFp8(tensor);
      parameters += tensor.bytes / (tensor.dtype == "F32" ? 4 : is_byte ? 1 : 2);
    }
  }
  const auto most =
      std::max_element(floats.begin(), floats.end(),
                       [](const auto& a, const auto& b) { return a.second < b.second; });
  out->set_dtype(most == floats.end() ? "float16" : DtypeOf(most->first));
  out->set_parameter_count(parameters);
  if (bits == 0) return;
  out->mutable_quantization()->set_bits(bits);
  const uint32_t group = Size(*quantization, {"group_size"});
  out->mutable_quantization()->set_group_size(group == 0 ? 64 : group);
}

}  // namespace

absl::StatusOr<v1::ModelDescription> ReadForeignConfig(const std::string& config_json,
                                                       const std::string& folder) {
  const json config = engine::ParseConfigJson(config_json);
  if (!config.is_object()) return Lacking(folder, "fields: it is not a JSON object");
  const auto type = config.find("model_type");
  if (type == config.end() || !type->is_string()) return Lacking(folder, "model_type");
  v1::ModelDescription out;
  out.set_architecture(type->get<std::string>());
  out.set_layer_count(Size(config, {"num_hidden_layers", "n_layer", "n_layers", "num_layers"}));
  out.set_hidden_size(Size(config, {"hidden_size", "d_model", "n_embd", "model_dim", "dim"}));
  out.set_vocab_size(Size(config, {"vocab_size", "padded_vocab_size"}));
  if (out.layer_count() == 0) return Lacking(folder, "number of layers");
  if (out.layer_count() > kLayersMax) return Lacking(folder, "number of layers that can be");
  if (out.hidden_size() == 0) return Lacking(folder, "hidden size");
  if (out.vocab_size() == 0) return Lacking(folder, "vocab_size");
  const uint32_t heads =
      Size(config, {"num_attention_heads", "n_head", "n_heads", "num_heads", "num_query_heads"});
  out.set_attention_heads(std::max(heads, 1U));
  const uint32_t kv_heads = Size(config, {"num_key_value_heads", "n_head_kv", "num_kv_heads",
                                          "multi_query_group_num", "num_key_value_groups"});
  out.set_kv_heads(kv_heads == 0 ? out.attention_heads() : kv_heads);
  const uint32_t head_dim = Size(config, {"head_dim", "kv_channels", "attention_head_dim"});
  out.set_head_dim(head_dim == 0 ? std::max(out.hidden_size() / out.attention_heads(), 1U)
                                 : head_dim);
  const uint32_t wide = Size(config, {"intermediate_size", "n_inner", "ffn_hidden_size", "ffn_dim",
                                      "moe_intermediate_size"});
  out.set_intermediate_size(wide == 0 ? 4 * out.hidden_size() : wide);
  const uint32_t context = Size(config, {"max_position_embeddings", "max_sequence_length",
                                         "n_positions", "seq_length", "max_seq_len", "n_ctx"});
  out.set_context_length_max(context == 0 ? kContextUnknown : context);
  const uint32_t experts = Size(config, {"num_experts", "num_local_experts", "n_routed_experts"});
  out.set_experts(experts);
  if (experts > 0) {
    out.set_experts_active(std::max(1U, Size(config, {"num_experts_per_tok", "moe_topk"})));
  }
  out.set_tied_embeddings(IsTrue(config, "tie_word_embeddings"));
  return out;
}

void AddForeignBytes(const std::string& config_json, const engine::WeightFiles& files,
                     bool can_divide, v1::ModelDescription* out) {
  const json config = engine::ParseConfigJson(config_json);
  const auto layers = static_cast<int>(out->layer_count());
  std::vector<uint64_t> whole(layers), divisible(layers), of_experts(layers);
  uint64_t embedding = 0, head = 0, rest = 0;
  for (const auto& [name, tensor] : files.tensors()) {
    if (IsOfAnotherPart(name)) continue;
    const int layer = LayerOf(name);
    if (layer >= layers) continue;  // of a prediction head
    const uint64_t bytes = engine::HeldBytes(tensor, files);
    if (layer >= 0) {
      whole[layer] += bytes;
      if (can_divide && tensor.shape.size() > 1) divisible[layer] += bytes;
      if (IsOfExperts(name)) of_experts[layer] += bytes;
    } else if (IsHead(name)) {
      head += bytes;
    } else {
      (IsEmbedding(name) ? embedding : rest) += bytes;
    }
  }
  out->mutable_layer_bytes()->Assign(whole.begin(), whole.end());
  out->mutable_layer_divisible_bytes()->Assign(divisible.begin(), divisible.end());
  if (out->experts() > 0) {
    out->mutable_layer_expert_bytes()->Assign(of_experts.begin(), of_experts.end());
  }
  out->set_embedding_bytes(embedding);
  out->set_head_bytes(head);
  out->set_final_norm_bytes(rest);
  if (head == 0) out->set_tied_embeddings(true);
  AddStorage(config, files, out);
}

}  // namespace macrame::runtime
