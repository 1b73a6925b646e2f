#include "runtime/gguf/import_plan.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <map>
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

// Of the rotary form (rope_config.cc).
constexpr std::string_view kRopeTensors[] = {"rope_freqs.weight", "rope_factors_long.weight",
                                             "rope_factors_short.weight"};

float RoundedTo(float value, std::string_view type) {
  if (type == "F16") return FloatFromHalf(HalfFromFloat(value));
  const auto bits = std::bit_cast<uint32_t>(value);
  const uint32_t rounded = (bits + 0x7FFFU + ((bits >> 16) & 1U)) & 0xFFFF0000U;
  return std::bit_cast<float>(rounded);
}

class Planner {
 public:
  explicit Planner(const GgufModel& model)
      : model_(model), keys_(model), context_{keys_, model, plan_.config} {}

  ImportPlan Plan() {
    CheckKind();
    FindArchitecture();
    architecture_->read(context_);
    for (const auto& [name, tensor] : model_.tensors()) AddTensor(tensor);
    JoinStateMaps();
    keys_.ExpectAllRead();
    AddQuantization();
    json& config = plan_.config;
    config["attention_bias"] = attention_bias_;
    config["mlp_bias"] = mlp_bias_;
    config["tie_word_embeddings"] = model_.FindTensor("output.weight") == nullptr;
    plan_.vector_type = SmallestVectorType();
    config["torch_dtype"] = plan_.vector_type == "BF16"  ? "bfloat16"
                            : plan_.vector_type == "F16" ? "float16"
                                                         : "float32";
    return std::move(plan_);
  }

 private:
  void CheckKind() const {
    const std::string kind = model_.Text("general.type").value_or("model");
    if (kind == "model") return;
    Unsupported(absl::StrCat("general.type is '", absl::CHexEscape(kind),
                             "', not 'model': it holds a part beside a language model"));
  }

  void FindArchitecture() {
    const std::string& name = keys_.architecture();
    architecture_ = gguf::FindArchitecture(name);
    const bool has_experts = model_.Integer(absl::StrCat(name, ".expert_count")).value_or(0) > 0;
    const auto is_dense = {"qwen2", "qwen3", "mistral3", "phi3", "gemma3", "granite", "glm4"};
    if (architecture_ != nullptr && has_experts) {
      for (const char* dense : is_dense) {
        if (name == dense) architecture_ = nullptr;
      }
    }
    if (architecture_ != nullptr) return;
    std::string known;
    for (const Architecture& one : Architectures()) {
      absl::StrAppend(&known, known.empty() ? "" : ", ", std::string(one.gguf));
    }
    throw ImportFault{
        reasons::kModelArchitectureUnknown,
        absl::StrCat("architecture '", absl::CHexEscape(name), has_experts ? "' with experts" : "'",
                     " is not known; known are ", known)};
  }

  // "blk.3.attn_q.weight": 3 and "attn_q.weight". Unset of others.
  static std::optional<std::pair<uint64_t, std::string>> LayerOf(const std::string& name) {
    const std::vector<std::string> words = absl::StrSplit(name, absl::MaxSplits('.', 2));
    uint64_t layer = 0;
    if (words.size() != 3 || words[0] != "blk" || !absl::SimpleAtoi(words[1], &layer) ||
        absl::StrCat(layer) != words[1]) {
      return std::nullopt;
    }
    return std::pair{layer, words[2]};
  }

  [[noreturn]] void Unknown(const GgufModel::Tensor& tensor) const {
    Unsupported(absl::StrCat("tensor '", tensor.name, "' is none of a ",
                             plan_.config["model_type"].get<std::string>()));
  }

  void AddTensor(const GgufModel::Tensor& tensor) {
    for (const std::string_view rope : kRopeTensors) {
      if (tensor.name == rope) return;
    }
    const auto place = LayerOf(tensor.name);
    if (place.has_value() && IsLeftOut(place->first, place->second)) return;
    const TensorName* name = place.has_value() ? FindLayerTensor(*architecture_, place->second)
                                               : FindModelTensor(*architecture_, tensor.name);
    if (name == nullptr) Unknown(tensor);
    const bool is_of_experts = name->gguf.find("_exps") != std::string_view::npos ||
                               name->gguf.find("ffn_gate_inp") != std::string_view::npos;
    if (is_of_experts && keys_.Count("expert_count", 0) == 0) Unknown(tensor);
    PlannedTensor planned;
    planned.source = &tensor;
    planned.is_whole = name->whole;
    planned.is_bias = !name->whole && absl::EndsWith(tensor.name, ".bias");
    planned.numbers = name->form;
    planned.module = std::string(name->ours);
    if (place.has_value()) {
      const std::string layer = absl::StrCat("model.layers.", place->first, ".");
      planned.module = layer + planned.module;
    }
    planned.form = FormOf(tensor);
    const bool is_norm = !planned.is_bias && absl::EndsWith(tensor.name, "norm.weight");
    if (is_norm && architecture_->norms_plus_one) planned.numbers = NumberForm::kPlusOne;
    SetShape(*name, planned);
    SetOrder(planned, place.has_value() ? place->first : 0);
    if (Split(planned)) return;
    Add(std::move(planned));
  }

  const BlockForm* FormOf(const GgufModel::Tensor& tensor) const {
    const BlockForm* form = FindBlockForm(tensor.type);
    if (form == nullptr) {
      Unsupported(absl::StrCat("tensor '", tensor.name, "' is stored as ",
                               BlockTypeName(tensor.type), ", which is not imported"));
    }
    return form;
  }

  // Layers that predict further tokens, keys and values that another layer's stand for, and the two
  // halves of a map that is there whole too.
  bool IsLeftOut(uint64_t layer, const std::string& rest) const {
    if (layer >= context_.layers && layer < context_.blocks) return true;
    if (rest == "attn_rot_embd.weight") return true;
    if (layer >= context_.first_shared_kv &&
        (rest == "attn_k.weight" || rest == "attn_v.weight" || rest == "attn_k_norm.weight")) {
      return true;
    }
    const std::string whole = absl::StrCat("blk.", layer, ".attn_kv_b.weight");
    return (rest == "attn_k_b.weight" || rest == "attn_v_b.weight") &&
           model_.FindTensor(whole) != nullptr;
  }

  // Vectors are one of: norms and biases, a state's numbers by head, a convolution's weights.
  void SetShape(const TensorName& name, PlannedTensor& planned) const {
    const GgufModel::Tensor& tensor = *planned.source;
    const bool is_conv_module = absl::EndsWith(planned.module, ".conv1d");
    const bool is_state_norm = name.gguf == "ssm_norm";
    const bool one_row =
        tensor.dimensions == 1 && absl::EndsWith(planned.module, "shared_expert_gate");
    planned.is_exact = name.whole || is_conv_module || is_state_norm;
    planned.is_flat = planned.is_exact || planned.is_bias || (tensor.dimensions == 1 && !one_row);
    planned.bits = planned.form->bits;
    CheckDimensions(name, planned, one_row);
    if (is_conv_module && !planned.is_bias) {
      planned.shape = {tensor.rows, tensor.columns, 1};
    } else if (planned.is_exact || (planned.is_flat && tensor.dimensions == 1)) {
      planned.shape = {tensor.rows * tensor.columns};
    } else if (!planned.is_flat && tensor.dimensions == 3) {
      planned.shape = {tensor.experts, tensor.rows / tensor.experts, tensor.columns};
    } else {
      planned.shape = {tensor.rows, tensor.columns};
    }
  }

  void CheckDimensions(const TensorName& name, const PlannedTensor& planned, bool one_row) const {
    const GgufModel::Tensor& tensor = *planned.source;
    const bool is_stack = !planned.is_flat && (name.gguf.find("_exps") != std::string_view::npos ||
                                               name.gguf == "attn_k_b" || name.gguf == "attn_v_b");
    const bool is_quantized_row = (planned.is_flat || one_row) && planned.form->bits != 0;
    if (tensor.dimensions > (is_stack ? 3 : 2) || is_quantized_row ||
        (is_stack && tensor.dimensions != 3)) {
      Unsupported(absl::StrCat("tensor '", tensor.name, "' has ", tensor.dimensions,
                               " dimensions in ", std::string(planned.form->name)));
    }
  }

  void SetOrder(PlannedTensor& planned, uint64_t layer) const {
    const std::string& module = planned.module;
    if (architecture_->neighbours_turn && absl::StrContains(module, "self_attn.")) {
      if (absl::EndsWith(module, "q_proj")) planned.heads = context_.heads;
      if (absl::EndsWith(module, "k_proj")) planned.heads = context_.kv_heads;
      const uint64_t rows = planned.is_vector() ? planned.source->columns : planned.source->rows;
      if (planned.heads > 0 && rows != planned.heads * context_.head_dim) {
        Broken(absl::StrCat("tensor '", planned.source->name, "' has ", rows, " rows, not ",
                            planned.heads, " heads of ", context_.head_dim));
      }
    }
    const bool is_state = layer < context_.recurrent.size() && context_.recurrent[layer];
    const bool is_tiled = architecture_->gguf.substr(0, 6) == "qwen35";
    if (is_state && is_tiled) SetValueOrder(planned);
    // The output of a whole head's gate and query stays side by side in attention layers.
    if (is_state && absl::EndsWith(module, "self_attn.qkv_proj")) {
      planned.module = absl::StrCat("model.layers.", layer, ".linear_attn.in_proj_qkv");
    }
  }

  // Value head r of key head k is at k * R + r in the model, at r * K + k in the file.
  void SetValueOrder(PlannedTensor& planned) const {
    const uint64_t key_heads = context_.key_heads;
    const uint64_t group = context_.value_heads / key_heads;
    const uint64_t dim = context_.value_dim, keys = 2 * key_heads * context_.key_dim;
    const std::string& module = planned.module;
    const auto ends = [&](std::string_view end) {
      return absl::EndsWith(module, std::string(end));
    };
    uint64_t first = 0, each = 0;
    if (ends("self_attn.qkv_proj") || ends("linear_attn.conv1d")) first = keys, each = dim;
    if (ends("linear_attn.in_proj_z")) each = dim;
    if (ends("in_proj_b") || ends("in_proj_a") || ends("A_log") || ends("dt_bias")) each = 1;
    const auto source_head = [key_heads, group](uint64_t head) {
      return head % group * key_heads + head / group;
    };
    if (ends("linear_attn.out_proj")) {
      planned.column_run = dim;
      planned.run_of = source_head;
      ExpectSize(planned, planned.columns(), context_.value_heads * dim);
      if (planned.form->bits != 0 && dim % kGroupSize != 0) {
        Unsupported(absl::StrCat("tensor '", planned.source->name, "' in ",
                                 std::string(planned.form->name), " with heads of ", dim,
                                 ", no whole groups of 32"));
      }
    }
    if (each == 0) return;
    ExpectSize(
        planned,
        planned.is_flat && planned.shape.size() == 1 ? planned.shape[0] : planned.source->rows,
        first + context_.value_heads * each);
    planned.place_of = [first, each, source_head](uint64_t row) -> RowPlace {
      if (row < first) return {0, row};
      const uint64_t value = row - first;
      return {0, first + source_head(value / each) * each + value % each};
    };
  }

  static void ExpectSize(const PlannedTensor& planned, uint64_t size, uint64_t expected) {
    if (size == expected) return;
    Broken(absl::StrCat("tensor '", planned.source->name, "' has ", size, " rows or columns, not ",
                        expected));
  }

  // Rows [begin, begin + rows) of each of `blocks` equal parts of the file's rows.
  void AddPart(const PlannedTensor& whole, const std::string& module, uint64_t begin, uint64_t rows,
               uint64_t heads) {
    PlannedTensor part = whole;
    part.module = module;
    const uint64_t experts = whole.shape.size() == 3 ? whole.shape[0] : 1;
    const uint64_t each = (whole.is_flat ? whole.shape[0] : whole.rows()) / experts;
    part.shape[part.shape.size() == 3 ? 1 : 0] = rows;
    const bool turns = architecture_->neighbours_turn && heads > 0;
    part.heads = 0;
    part.place_of = [=, dim = context_.head_dim](uint64_t row) -> RowPlace {
      const uint64_t expert = row / rows;
      uint64_t within = row % rows;
      if (turns) {
        const uint64_t at = within % dim;
        within = within - at + at % (dim / 2) * 2 + at / (dim / 2);
      }
      return {0, expert * each + begin + within};
    };
    Add(std::move(part));
  }

  // Maps that the converter may join, and the model has one by one.
  bool Split(const PlannedTensor& planned) {
    const std::string& module = planned.module;
    const std::string fused = plan_.config["model_type"];
    if (absl::EndsWith(module, ".qkv_proj") && fused != "phi3") {
      const std::string base = module.substr(0, module.size() - 8);
      const uint64_t q = context_.heads * context_.head_dim;
      const uint64_t k = context_.kv_heads * context_.head_dim;
      const uint64_t rows = planned.is_flat ? planned.shape[0] : planned.rows();
      ExpectSize(planned, rows, q + 2 * k);
      AddPart(planned, base + "q_proj", 0, q, context_.heads);
      AddPart(planned, base + "k_proj", q, k, context_.kv_heads);
      AddPart(planned, base + "v_proj", q + k, k, 0);
      return true;
    }
    const bool is_stack = planned.shape.size() == 3 && !planned.is_flat;
    if (is_stack && absl::EndsWith(module, ".gate_up_proj")) {
      const std::string base = module.substr(0, module.size() - 12);
      const uint64_t half = planned.shape[1] / 2;
      ExpectSize(planned, planned.shape[1], 2 * half);
      AddPart(planned, base + "gate_proj", 0, half, 0);
      AddPart(planned, base + "up_proj", half, half, 0);
      return true;
    }
    return false;
  }

  void Add(PlannedTensor planned) {
    const std::string& module = planned.module;
    attention_bias_ = attention_bias_ || (planned.is_bias && absl::StrContains(module, "attn.") &&
                                          !absl::StrContains(module, "indexer."));
    attention_bias_ = attention_bias_ || (planned.is_bias && absl::StrContains(module, "mixer.") &&
                                          absl::EndsWith(module, ".q_proj"));
    mlp_bias_ = mlp_bias_ ||
                (planned.is_bias && absl::StrContains(module, ".mlp.") &&
                 !absl::StrContains(module, ".experts.") && !absl::EndsWith(module, ".router"));
    plan_.tensors.push_back(std::move(planned));
  }

  // Qwen3-Next's in_proj_qkvz: for each key head its q, k, values and z.
  void JoinStateMaps() {
    if (architecture_->gguf != "qwen3next") {
      if (architecture_->gguf.substr(0, 8) == "nemotron") NameAsNemotron();
      return;
    }
    const uint64_t dim = context_.key_dim, key_heads = context_.key_heads;
    const uint64_t values = context_.value_heads / key_heads * context_.value_dim;
    std::vector<PlannedTensor> joined;
    for (PlannedTensor& tensor : plan_.tensors) {
      if (absl::EndsWith(tensor.module, "linear_attn.in_proj_z")) continue;
      if (!absl::EndsWith(tensor.module, "linear_attn.in_proj_qkv")) {
        joined.push_back(std::move(tensor));
        continue;
      }
      std::string gate = tensor.source->name;
      gate.replace(gate.find("attn_qkv"), 8, "attn_gate");
      tensor.other = model_.FindTensor(gate);
      if (tensor.other == nullptr) Broken(absl::StrCat("tensor '", gate, "' is missing"));
      ExpectSize(tensor, tensor.rows(), key_heads * (2 * dim + values));
      if (tensor.other->rows != key_heads * values || tensor.other->columns != tensor.columns()) {
        Broken(absl::StrCat("tensor '", gate, "' does not fit '", tensor.source->name, "'"));
      }
      const BlockForm* form = FormOf(*tensor.other);
      if ((form->bits == 0) != (tensor.bits == 0) || form->mxfp4 != tensor.form->mxfp4) {
        Unsupported(absl::StrCat("tensors '", tensor.source->name, "' and '", gate,
                                 "' are one map, stored as ", std::string(tensor.form->name),
                                 " and ", std::string(form->name)));
      }
      tensor.bits = std::max(tensor.bits, form->bits);
      tensor.module += "z";
      tensor.shape[0] = key_heads * (2 * dim + 2 * values);
      tensor.place_of = [=](uint64_t row) -> RowPlace {
        const uint64_t head = row / (2 * dim + 2 * values), at = row % (2 * dim + 2 * values);
        if (at < dim) return {0, head * dim + at};
        if (at < 2 * dim) return {0, key_heads * dim + head * dim + at - dim};
        if (at < 2 * dim + values) {
          return {0, 2 * key_heads * dim + head * values + at - 2 * dim};
        }
        return {1, head * values + at - 2 * dim - values};
      };
      joined.push_back(std::move(tensor));
    }
    plan_.tensors = std::move(joined);
  }

  void NameAsNemotron() {
    constexpr std::string_view kModel = "model.";
    for (PlannedTensor& tensor : plan_.tensors) {
      std::string& module = tensor.module;
      if (module.compare(0, kModel.size(), kModel) != 0) continue;
      module = "backbone." + module.substr(kModel.size());
      if (module == "backbone.embed_tokens") module = "backbone.embeddings";
      if (module == "backbone.norm") module = "backbone.norm_f";
    }
  }

  // How most weights are stored is the default; other modules are listed.
  void AddQuantization() {
    const auto traits = [](const PlannedTensor& tensor) -> json {
      json own = {{"group_size", kGroupSize}, {"bits", tensor.bits}};
      if (tensor.form->mxfp4) own["mode"] = "mxfp4";
      return own;
    };
    std::map<json, uint64_t> numbers;
    bool has_modes = false;
    for (const PlannedTensor& tensor : plan_.tensors) {
      if (tensor.bits == 0) continue;
      numbers[traits(tensor)] += tensor.rows() * tensor.columns();
      has_modes = has_modes || tensor.form->mxfp4;
    }
    if (numbers.empty()) return;
    const json most =
        std::max_element(numbers.begin(), numbers.end(), [](const auto& a, const auto& b) {
          return a.second < b.second;
        })->first;
    json quantization = most;
    for (const PlannedTensor& tensor : plan_.tensors) {
      json own = traits(tensor);
      if (tensor.bits == 0 || own == most) continue;
      if (has_modes && !own.contains("mode")) own["mode"] = "affine";
      quantization[tensor.module] = std::move(own);
    }
    if (has_modes && !quantization.contains("mode")) quantization["mode"] = "affine";
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
      if (tensor.is_exact) continue;
      for (uint64_t i = 0; i < tensor.source->columns * tensor.source->rows; ++i) {
        const float value = FloatAt(*tensor.form, tensor.source->data, i);
        half = half && IsHeld(tensor, value, "F16");
        bfloat = bfloat && IsHeld(tensor, value, "BF16");
      }
    }
    if (bfloat && has_bfloat_matrices && !has_half_matrices) return "BF16";
    if (half) return "F16";
    return bfloat ? "BF16" : "F32";
  }

  // Whether the file's number comes of one of this type.
  static bool IsHeld(const PlannedTensor& tensor, float stored, std::string_view type) {
    if (tensor.numbers != NumberForm::kPlusOne) return RoundedTo(stored, type) == stored;
    return RoundedTo(stored - 1.0F, type) + 1.0F == stored;
  }

  const GgufModel& model_;
  MetadataKeys keys_;
  const Architecture* architecture_ = nullptr;
  bool attention_bias_ = false, mlp_bias_ = false;
  ImportPlan plan_;
  ImportContext context_;
};

}  // namespace

uint64_t PlannedTensor::columns() const {
  if (is_flat) return shape.size() == 1 ? shape[0] : source->columns;
  return shape.back();
}

uint64_t PlannedTensor::rows() const {
  if (is_flat) return 1;
  return shape.size() == 3 ? shape[0] * shape[1] : shape[0];
}

uint64_t PlannedTensor::SourceRow(uint64_t row) const { return PlaceOf(row).row; }

RowPlace PlannedTensor::PlaceOf(uint64_t row) const {
  if (place_of) return place_of(row);
  if (heads == 0) return {0, row};
  const uint64_t head_dim = (is_vector() ? source->columns : source->rows) / heads;
  const uint64_t head = row / head_dim, within = row % head_dim, half = head_dim / 2;
  return {0, head * head_dim + within % half * 2 + within / half};
}

const GgufModel::Tensor& PlannedTensor::SourceOf(const RowPlace& place) const {
  return place.source == 0 ? *source : *other;
}

float PlannedTensor::NumberAt(uint64_t index) const {
  // Of a convolution's weights, rows are channels.
  const uint64_t side = is_flat && shape.size() == 3 ? shape[1] : 1;
  const uint64_t at = SourceRow(index / side) * side + index % side;
  const float stored = FloatAt(*form, source->data, at);
  if (numbers == NumberForm::kPlusOne) return stored - 1.0F;
  if (numbers == NumberForm::kMinusExp) {
    return static_cast<float>(std::log(-static_cast<double>(stored)));
  }
  return stored;
}

absl::StatusOr<ImportPlan> PlanImport(const GgufModel& model) {
  std::string code, message;
  try {
    ImportPlan plan = Planner(model).Plan();
    // The engine's own reader has the last word, before anything is written.
    const auto config = engine::ParseModelConfig(plan.config.dump(), model.path());
    if (!config.ok()) return config.status();
    return plan;
  } catch (const ImportFault& fault) {
    code = fault.code;
    message = absl::StrCat(model.path(), ": ", fault.message);
  }
  v1::Reason reason = MakeReason(code, std::move(message));
  if (code == reasons::kModelFormatUnsupported) {
    reason.set_remedy(
        "fetch the model in MLX's format, or as a GGUF in Q4_0 to Q8_0, K-quants, IQ kinds, MXFP4, "
        "F16 or BF16 that llama.cpp's own converter wrote");
  }
  if (code == reasons::kModelArchitectureUnknown) {
    reason.set_remedy(
        "fetch the model in Hugging Face's or MLX's format, of which README.md lists the "
        "architectures that are served, or a GGUF of one of those named here");
  }
  return ReasonStatus(absl::StatusCode::kInvalidArgument, reason);
}

}  // namespace macrame::runtime::gguf
