#include "runtime/gguf/import_plan.h"

#include <algorithm>
#include <array>
#include <bit>
#include <charconv>
#include <cmath>
#include <cstdlib>
#include <map>
#include <numbers>
#include <optional>
#include <string_view>

#include "absl/strings/escaping.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "proto/reasons.h"
#include "runtime/gguf/float16.h"
#include "runtime/model/config/model_config.h"
#include "runtime/model/families/config_file.h"

namespace macrame::runtime::gguf {
namespace {

using nlohmann::json;

// Thrown inside this file only; PlanImport turns it into a status.
struct Fault {
  const char* code;
  std::string message;
};

[[noreturn]] void Unsupported(std::string message) {
  throw Fault{reasons::kModelFormatUnsupported, std::move(message)};
}
[[noreturn]] void Broken(std::string message) {
  throw Fault{reasons::kModelFileBroken, std::move(message)};
}

// An architecture as GGUF names it.
struct Architecture {
  std::string_view gguf;
  bool has_experts;
  std::string_view model_type;
  std::string_view class_name;
  bool neighbours_turn;      // the rows of q and k are in GGUF's own order
  std::string_view experts;  // the module that holds a layer's experts
  bool normalized;           // what a token's experts weigh adds up to one
};
constexpr std::array kArchitectures = {
    Architecture{"llama", false, "llama", "LlamaForCausalLM", true, "", false},
    Architecture{"llama", true, "mixtral", "MixtralForCausalLM", true, "block_sparse_moe", true},
    Architecture{"qwen2", false, "qwen2", "Qwen2ForCausalLM", false, "", false},
    Architecture{"qwen3", false, "qwen3", "Qwen3ForCausalLM", false, "", false},
    Architecture{"qwen2moe", true, "qwen2_moe", "Qwen2MoeForCausalLM", false, "mlp", false},
    Architecture{"qwen3moe", true, "qwen3_moe", "Qwen3MoeForCausalLM", false, "mlp", true},
};

struct ModuleName {
  std::string_view gguf;
  std::string_view ours;
};
constexpr std::array kLayerModules = {
    ModuleName{"attn_q", "self_attn.q_proj"},
    ModuleName{"attn_k", "self_attn.k_proj"},
    ModuleName{"attn_v", "self_attn.v_proj"},
    ModuleName{"attn_output", "self_attn.o_proj"},
    ModuleName{"attn_q_norm", "self_attn.q_norm"},
    ModuleName{"attn_k_norm", "self_attn.k_norm"},
    ModuleName{"ffn_gate", "mlp.gate_proj"},
    ModuleName{"ffn_up", "mlp.up_proj"},
    ModuleName{"ffn_down", "mlp.down_proj"},
    ModuleName{"attn_norm", "input_layernorm"},
    ModuleName{"ffn_norm", "post_attention_layernorm"},
};
// Below the module of a layer's experts.
constexpr std::array kExpertModules = {
    ModuleName{"ffn_gate_inp", "gate"},
    ModuleName{"ffn_gate_exps", "switch_mlp.gate_proj"},
    ModuleName{"ffn_up_exps", "switch_mlp.up_proj"},
    ModuleName{"ffn_down_exps", "switch_mlp.down_proj"},
    ModuleName{"ffn_gate_inp_shexp", "shared_expert_gate"},
    ModuleName{"ffn_gate_shexp", "shared_expert.gate_proj"},
    ModuleName{"ffn_up_shexp", "shared_expert.up_proj"},
    ModuleName{"ffn_down_shexp", "shared_expert.down_proj"},
};
constexpr std::array kModules = {
    ModuleName{"token_embd", "model.embed_tokens"},
    ModuleName{"output_norm", "model.norm"},
    ModuleName{"output", "lm_head"},
};
constexpr char kRopeFactors[] = "rope_freqs.weight";

template <typename Table>
std::optional<std::string> Lookup(const Table& table, std::string_view gguf) {
  for (const ModuleName& name : table) {
    if (name.gguf == gguf) return std::string(name.ours);
  }
  return std::nullopt;
}

// 1e-05, where the float that is nearest to it was stored.
double AsWritten(double value) {
  std::array<char, 32> text{};
  const auto end = std::to_chars(text.begin(), text.end() - 1, static_cast<float>(value)).ptr;
  return static_cast<double>(static_cast<float>(value)) == value && *end == '\0'
             ? std::strtod(text.data(), nullptr)
             : value;
}

class Planner {
 public:
  explicit Planner(const GgufModel& model) : model_(model) {}

  ImportPlan Plan() {
    FindArchitecture();
    ReadShape();
    for (const auto& [name, tensor] : model_.tensors()) AddTensor(tensor);
    AddRope();
    AddQuantization();
    plan_.config["attention_bias"] = attention_bias_;
    plan_.config["mlp_bias"] = mlp_bias_;
    plan_.config["tie_word_embeddings"] = model_.FindTensor("output.weight") == nullptr;
    plan_.vector_type = SmallestVectorType();
    plan_.config["torch_dtype"] = plan_.vector_type == "BF16"  ? "bfloat16"
                                  : plan_.vector_type == "F16" ? "float16"
                                                               : "float32";
    return std::move(plan_);
  }

 private:
  std::string Key(std::string_view key) const {
    return absl::StrCat(std::string(architecture_->gguf), ".", std::string(key));
  }

  uint64_t Size(std::string_view key, std::optional<uint64_t> fallback = std::nullopt) const {
    const auto value = model_.Integer(Key(key));
    if (!value.has_value() && fallback.has_value()) return *fallback;
    if (!value.has_value()) {
      throw Fault{reasons::kModelConfigInvalid, absl::StrCat("the metadata has no ", Key(key))};
    }
    if (*value < 1 || *value > (1 << 24)) {
      throw Fault{reasons::kModelConfigInvalid, absl::StrCat(Key(key), " is ", *value)};
    }
    return static_cast<uint64_t>(*value);
  }

  double Number(std::string_view key, std::optional<double> fallback = std::nullopt) const {
    const auto value = model_.Number(Key(key));
    if (!value.has_value() && fallback.has_value()) return *fallback;
    if (!value.has_value()) {
      throw Fault{reasons::kModelConfigInvalid, absl::StrCat("the metadata has no ", Key(key))};
    }
    if (!(*value > 0) || !std::isfinite(*value)) {
      throw Fault{reasons::kModelConfigInvalid, absl::StrCat(Key(key), " is ", *value)};
    }
    return *value;
  }

  void FindArchitecture() {
    const std::string name = model_.Text("general.architecture").value_or("");
    const bool has_experts = model_.Integer(absl::StrCat(name, ".expert_count")).value_or(0) > 0;
    std::string known;
    for (const Architecture& one : kArchitectures) {
      if (one.gguf == name && one.has_experts == has_experts) architecture_ = &one;
      absl::StrAppend(&known, known.empty() ? "" : ", ", std::string(one.gguf),
                      one.has_experts ? " with experts" : "");
    }
    if (architecture_ == nullptr) {
      throw Fault{
          reasons::kModelArchitectureUnknown,
          absl::StrCat("architecture '", absl::CHexEscape(name),
                       has_experts ? "' with experts" : "'", " is not known; known are ", known)};
    }
  }

  void ReadShape() {
    const uint64_t hidden = Size("embedding_length"), heads = Size("attention.head_count");
    kv_heads_ = Size("attention.head_count_kv", heads);
    heads_ = heads;
    head_dim_ = Size("attention.key_length", hidden / heads);
    if (Size("attention.value_length", head_dim_) != head_dim_) {
      Unsupported("keys and values have different widths");
    }
    if (Size("rope.dimension_count", head_dim_) != head_dim_) {
      Unsupported("only a part of each head is turned by the rotary form");
    }
    if (head_dim_ % 2 != 0) Unsupported(absl::StrCat("heads have an odd width, ", head_dim_));
    const GgufModel::Tensor* embedding = model_.FindTensor("token_embd.weight");
    if (embedding == nullptr) Broken("tensor 'token_embd.weight' is missing");
    plan_.config = {
        {"model_type", std::string(architecture_->model_type)},
        {"architectures", json::array({std::string(architecture_->class_name)})},
        {"hidden_size", hidden},
        {"num_hidden_layers", Size("block_count")},
        {"num_attention_heads", heads},
        {"num_key_value_heads", kv_heads_},
        {"head_dim", head_dim_},
        {"intermediate_size", Size("feed_forward_length", FeedForwardFallback())},
        {"vocab_size", embedding->rows},
        {"rms_norm_eps", AsWritten(Number("attention.layer_norm_rms_epsilon"))},
        {"max_position_embeddings", Size("context_length")},
        {"hidden_act", "silu"},
    };
    if (architecture_->has_experts) ReadExperts();
  }

  // Mixtures without a dense layer may not say how wide one would be.
  std::optional<uint64_t> FeedForwardFallback() const {
    const bool is_said = model_.Integer(Key("feed_forward_length")).has_value();
    if (!architecture_->has_experts || is_said) return std::nullopt;
    return Size("expert_feed_forward_length");
  }

  void ReadExperts() {
    json& config = plan_.config;
    const bool mixtral = architecture_->model_type == "mixtral";
    config[mixtral ? "num_local_experts" : "num_experts"] = Size("expert_count");
    config["num_experts_per_tok"] = Size("expert_used_count");
    if (mixtral) return;
    const GgufModel::Tensor* gate = model_.FindTensor("blk.0.ffn_gate_exps.weight");
    config["moe_intermediate_size"] =
        Size("expert_feed_forward_length",
             gate == nullptr ? std::nullopt : std::optional(gate->rows / gate->experts));
    config["norm_topk_prob"] = architecture_->normalized;
    config["decoder_sparse_step"] = 1;
    config["mlp_only_layers"] = json::array();
    if (architecture_->model_type == "qwen2_moe") {
      config["shared_expert_intermediate_size"] = Size("expert_shared_feed_forward_length");
    }
  }

  // "blk.3.attn_q.weight" → "model.layers.3.self_attn.q_proj".
  std::optional<std::string> ModuleOf(const std::string& stem) const {
    const std::vector<std::string> words = absl::StrSplit(stem, '.');
    if (words.size() == 1) return Lookup(kModules, words[0]);
    uint64_t layer = 0;
    if (words.size() != 3 || words[0] != "blk" || !absl::SimpleAtoi(words[1], &layer) ||
        absl::StrCat(layer) != words[1]) {
      return std::nullopt;
    }
    const std::string prefix = absl::StrCat("model.layers.", layer, ".");
    if (const auto module = Lookup(kLayerModules, words[2]); module.has_value()) {
      return absl::StrCat(prefix, *module);
    }
    const auto module = Lookup(kExpertModules, words[2]);
    if (!module.has_value() || !architecture_->has_experts) return std::nullopt;
    return absl::StrCat(prefix, std::string(architecture_->experts), ".", *module);
  }

  void AddTensor(const GgufModel::Tensor& tensor) {
    if (tensor.name == kRopeFactors) return;
    PlannedTensor planned;
    planned.source = &tensor;
    planned.is_bias = absl::EndsWith(tensor.name, ".bias");
    const size_t end = tensor.name.rfind('.');
    const auto module = ModuleOf(tensor.name.substr(0, end));
    if (!module.has_value() || (!planned.is_bias && !absl::EndsWith(tensor.name, ".weight"))) {
      Unsupported(absl::StrCat("tensor '", tensor.name, "' is none of a ",
                               std::string(architecture_->model_type)));
    }
    planned.module = *module;
    planned.form = FindBlockForm(tensor.type);
    if (planned.form == nullptr) {
      Unsupported(absl::StrCat("tensor '", tensor.name, "' is stored as ",
                               BlockTypeName(tensor.type), ", which is not imported"));
    }
    planned.one_row = tensor.dimensions == 1 && absl::EndsWith(*module, "shared_expert_gate");
    const int most = absl::StrContains(*module, ".switch_mlp.") ? 3 : 2;
    if (tensor.dimensions > most || (tensor.dimensions == 1 && planned.form->bits != 0)) {
      Unsupported(absl::StrCat("tensor '", tensor.name, "' has ", tensor.dimensions,
                               " dimensions in ", std::string(planned.form->name)));
    }
    SetHeads(tensor, planned);
    attention_bias_ =
        attention_bias_ || (planned.is_bias && absl::StrContains(*module, "self_attn"));
    mlp_bias_ = mlp_bias_ || (planned.is_bias && absl::StrContains(*module, ".mlp."));
    plan_.tensors.push_back(planned);
  }

  void SetHeads(const GgufModel::Tensor& tensor, PlannedTensor& planned) const {
    if (!architecture_->neighbours_turn) return;
    if (absl::EndsWith(planned.module, "q_proj")) planned.heads = heads_;
    if (absl::EndsWith(planned.module, "k_proj")) planned.heads = kv_heads_;
    const uint64_t rows = planned.is_vector() ? tensor.columns : tensor.rows;
    if (planned.heads > 0 && rows != planned.heads * head_dim_) {
      Broken(absl::StrCat("tensor '", tensor.name, "' has ", rows, " rows, not ", planned.heads,
                          " heads of ", head_dim_));
    }
  }

  void AddRope() {
    const double base = AsWritten(Number("rope.freq_base", 10000.0));
    plan_.config["rope_theta"] = base;
    const GgufModel::Tensor* factors = model_.FindTensor(kRopeFactors);
    if (factors != nullptr) {
      plan_.config["rope_scaling"] = Llama3Scaling(*factors, base);
      return;
    }
    const std::string kind = model_.Text(Key("rope.scaling.type")).value_or("none");
    if (kind == "none") return;
    if (kind != "linear") {
      Unsupported(absl::StrCat("rope scaling '", absl::CHexEscape(kind),
                               "' is not implemented; linear is, and "
                               "Llama 3's factors"));
    }
    const double factor = Number("rope.scaling.factor", 1.0);
    if (factor != 1.0) plan_.config["rope_scaling"] = {{"rope_type", "linear"}, {"factor", factor}};
  }

  // The factors that Llama 3's scaling gives, by its published formula (config "rope_type":
  // "llama3"): 1 for short waves, `factor` for long ones, a smooth change between.
  static double Llama3Factor(double wave, double factor, double original) {
    constexpr double kLow = 1.0, kHigh = 4.0;
    if (wave < original / kHigh) return 1.0;
    if (wave > original / kLow) return factor;
    const double smooth = (original / wave - kLow) / (kHigh - kLow);
    return 1.0 / ((1.0 - smooth) / factor + smooth);
  }

  json Llama3Scaling(const GgufModel::Tensor& tensor, double base) const {
    const BlockForm* form = FindBlockForm(tensor.type);
    if (form == nullptr || form->bits != 0 || tensor.rows != 1 || tensor.columns != head_dim_ / 2) {
      Broken(absl::StrCat("tensor '", kRopeFactors, "' has not a float for each pair of a head"));
    }
    double factor = 1.0;
    for (uint64_t i = 0; i < tensor.columns; ++i) {
      factor = std::max(factor, static_cast<double>(FloatAt(*form, tensor.data, i)));
    }
    constexpr double kOriginalContext = 8192;
    for (uint64_t i = 0; i < tensor.columns; ++i) {
      const double part = 2.0 * static_cast<double>(i) / static_cast<double>(head_dim_);
      const double wave = 2.0 * std::numbers::pi * std::pow(base, part);
      const double expected = Llama3Factor(wave, factor, kOriginalContext);
      // False of what is no number.
      const bool is_near = std::abs(FloatAt(*form, tensor.data, i) - expected) <= 1e-3 * expected;
      if (!is_near) {
        Unsupported(absl::StrCat("tensor '", kRopeFactors,
                                 "' is not Llama 3's scaling of 8,192 "
                                 "positions"));
      }
    }
    return {{"rope_type", "llama3"},
            {"factor", factor},
            {"low_freq_factor", 1.0},
            {"high_freq_factor", 4.0},
            {"original_max_position_embeddings", 8192}};
  }

  // The bits that most weights have are the default; other modules are listed.
  void AddQuantization() {
    std::map<int, uint64_t> numbers;
    for (const PlannedTensor& tensor : plan_.tensors) {
      if (tensor.form->bits != 0) {
        numbers[tensor.form->bits] += tensor.source->rows * tensor.source->columns;
      }
    }
    if (numbers.empty()) return;
    const int most = std::max_element(numbers.begin(), numbers.end(), [](auto& a, auto& b) {
                       return a.second < b.second;
                     })->first;
    json quantization = {{"group_size", kGroupSize}, {"bits", most}};
    for (const PlannedTensor& tensor : plan_.tensors) {
      if (tensor.form->bits == 0 || tensor.form->bits == most) continue;
      quantization[tensor.module] = {{"group_size", kGroupSize}, {"bits", tensor.form->bits}};
    }
    plan_.config["quantization"] = std::move(quantization);
  }

  std::string SmallestVectorType() const {
    bool half = true, bfloat = true, has_half_matrices = false, has_bfloat_matrices = false;
    for (const PlannedTensor& tensor : plan_.tensors) {
      if (!tensor.is_vector()) {
        has_bfloat_matrices = has_bfloat_matrices || tensor.form->name == "BF16";
        has_half_matrices = has_half_matrices || tensor.form->name != "BF16";
        continue;
      }
      for (uint64_t i = 0; i < tensor.source->columns; ++i) {
        const float value = FloatAt(*tensor.form, tensor.source->data, i);
        half = half && FloatFromHalf(HalfFromFloat(value)) == value;
        bfloat = bfloat && (std::bit_cast<uint32_t>(value) & 0xFFFFU) == 0;
      }
    }
    if (bfloat && has_bfloat_matrices && !has_half_matrices) return "BF16";
    if (half) return "F16";
    return bfloat ? "BF16" : "F32";
  }

  const GgufModel& model_;
  const Architecture* architecture_ = nullptr;
  uint64_t heads_ = 0, kv_heads_ = 0, head_dim_ = 0;
  bool attention_bias_ = false, mlp_bias_ = false;
  ImportPlan plan_;
};

}  // namespace

uint64_t PlannedTensor::SourceRow(uint64_t row) const {
  if (heads == 0) return row;
  const uint64_t head_dim = (is_vector() ? source->columns : source->rows) / heads;
  const uint64_t head = row / head_dim, within = row % head_dim, half = head_dim / 2;
  return head * head_dim + within % half * 2 + within / half;
}

absl::StatusOr<ImportPlan> PlanImport(const GgufModel& model) {
  std::string code, message;
  try {
    ImportPlan plan = Planner(model).Plan();
    // The engine's own reader has the last word, before anything is written.
    const auto config = engine::ParseModelConfig(plan.config.dump(), model.path());
    if (!config.ok()) return config.status();
    return plan;
  } catch (const Fault& fault) {
    code = fault.code;
    message = absl::StrCat(model.path(), ": ", fault.message);
  }
  v1::Reason reason = MakeReason(code, std::move(message));
  if (code == reasons::kModelFormatUnsupported) {
    reason.set_remedy(
        "fetch the model in MLX's format, or as a GGUF in Q4_0 to Q8_0, K-quants, F16 "
        "or BF16");
  }
  return ReasonStatus(absl::StatusCode::kInvalidArgument, reason);
}

}  // namespace macrame::runtime::gguf
