#include "runtime/model/weights/weight_needs.h"

#include <algorithm>
#include <cstdlib>
#include <functional>
#include <initializer_list>
#include <set>
#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "proto/reasons.h"
#include "runtime/model/weights/block_needs.h"
#include "runtime/model/weights/compressed_needs.h"
#include "runtime/model/weights/fp8_weights.h"
#include "runtime/model/weights/packed_weights.h"

namespace macrame::runtime::engine {
namespace {

class Checker {
 public:
  Checker(const ModelConfig& config, const WeightFiles& files) : config_(config), files_(files) {}

  void Linear(const LinearNeed& need);
  void Vector(const VectorNeed& need);
  void LeftOverLayers();
  absl::Status Result() const;

 private:
  void Fault(std::string text) {
    if (++faults_ <= kFaultsNamedMax) texts_.push_back(std::move(text));
  }
  enum class Form { kFloats, kFp8, kWords, kPacked, kBytes };
  const StoredTensor* Expect(const std::string& name, std::vector<int64_t> shape,
                             Form form = Form::kFloats);
  void Quantised(const LinearNeed& need, const StoredNames& names);
  void Blocks(const LinearNeed& need, const StoredNames& names);
  void Fused(const LinearNeed& need, const StoredNames& names);
  void Fp8(const LinearNeed& need, const StoredTensor& weight);
  std::vector<int64_t> ShapeOf(const LinearNeed& need, bool stacked, int64_t columns) const;

  const ModelConfig& config_;
  const WeightFiles& files_;
  int faults_ = 0;
  std::vector<std::string> texts_;
  std::set<std::pair<std::string, int>> stacks_;  // that were met: tensor and turn
  std::string code_ = reasons::kModelConfigInvalid;
};

std::string ShapeText(const std::vector<int64_t>& shape) {
  return absl::StrCat("[", absl::StrJoin(shape, ", "), "]");
}

const StoredTensor* Checker::Expect(const std::string& name, std::vector<int64_t> shape,
                                    Form form) {
  const StoredTensor* tensor = files_.Find(name);
  if (tensor == nullptr) {
    Fault(absl::StrCat("tensor '", name, "' ", ShapeText(shape), " is in no weights file"));
    return nullptr;
  }
  if (tensor->shape != shape) {
    Fault(absl::StrCat("tensor '", name, "' is ", ShapeText(tensor->shape),
                       ", config.json implies ", ShapeText(shape)));
    return nullptr;
  }
  const bool is_float = tensor->dtype == "F32" || tensor->dtype == "BF16" || tensor->dtype == "F16";
  const bool is_right = form == Form::kFloats   ? is_float
                        : form == Form::kFp8    ? IsFp8(*tensor)
                        : form == Form::kWords  ? tensor->dtype == "U32"
                        : form == Form::kPacked ? tensor->dtype == "I32"
                                                : tensor->dtype == "U8";
  if (!is_right) {
    code_ = reasons::kModelFormatUnsupported;
    Fault(absl::StrCat("tensor '", name, "' is stored as ", tensor->dtype));
    return nullptr;
  }
  return tensor;
}

void Checker::Vector(const VectorNeed& need) {
  if (need.name.empty()) return;
  if (need.taps == 0) {
    Expect(need.name, {need.size});
    return;
  }
  const int64_t channels = need.size / need.taps;
  const StoredTensor* tensor = files_.Find(need.name);
  const std::vector<int64_t> published = {channels, 1, need.taps};
  const bool is_published = tensor != nullptr && tensor->shape == published;
  Expect(need.name, is_published ? published : std::vector<int64_t>{channels, need.taps, 1});
}

std::vector<int64_t> Checker::ShapeOf(const LinearNeed& need, bool stacked, int64_t columns) const {
  if (stacked) return {need.experts, need.rows, columns};
  const StoredTensor* weight = files_.Find(absl::StrCat(need.module, ".weight"));
  const bool is_flat = need.may_be_flat && weight != nullptr && weight->shape.size() == 2;
  if (need.heads > 0 && !is_flat) return {need.heads, need.rows / need.heads, columns};
  return {need.all_stored_rows(), columns};
}

void Checker::Quantised(const LinearNeed& need, const StoredNames& names) {
  const std::string& module = names.module;
  const QuantizationTraits traits = config_.QuantizationOf(module);
  if (traits.bits == 0) {
    Fault(absl::StrCat("'", module, "' is stored quantised, config.json says it is not"));
    return;
  }
  if (need.columns % traits.group_size != 0) {
    Fault(absl::StrCat("'", module, "' has ", need.columns, " columns, not a multiple of the ",
                       "group size ", traits.group_size));
    return;
  }
  if (need.split == Split::kColumns &&
      (need.part.begin % traits.group_size != 0 || need.part.size() % traits.group_size != 0)) {
    Fault(absl::StrCat("'", module, "' can't be cut here: its groups of ", traits.group_size,
                       " differ from those of its layer; load it with fewer tensor ranks"));
    return;
  }
  const int64_t groups = need.columns / traits.group_size;
  const auto shape = [&](int64_t columns) { return ShapeOf(need, names.stacked, columns); };
  Expect(names.weight, shape(int64_t{need.columns} * traits.bits / 32),
         names.packed ? Form::kPacked : Form::kWords);
  if (names.packed) {
    Expect(names.scales, shape(groups));
    return;
  }
  if (!traits.has_biases()) {
    Expect(names.scales, shape(groups), Form::kBytes);
    if (files_.Find(absl::StrCat(module, ".global_scale")) != nullptr) {
      code_ = reasons::kModelFormatUnsupported;
      Fault(absl::StrCat("'", module, "' has a global scale, '", module,
                         ".global_scale', which is not implemented"));
    }
    return;
  }
  const auto* scales = Expect(names.scales, shape(groups));
  const auto* biases = Expect(names.biases, shape(groups));
  if (scales != nullptr && biases != nullptr && scales->dtype != biases->dtype) {
    Fault(absl::StrCat("'", module, "': scales and biases are of different types"));
  }
}

// What both of a pair share is checked with the first.
void Checker::Blocks(const LinearNeed& need, const StoredNames& names) {
  if (need.turn > 0) return;
  if (config_.QuantizationOf(names.module).mode != QuantizationMode::kMxfp4) {
    Fault(absl::StrCat("tensor '", names.weight, "' is MXFP4, config.json says otherwise"));
    return;
  }
  if (need.columns % 32 != 0) {
    Fault(absl::StrCat("tensor '", names.weight, "' would have rows of ", need.columns,
                       " numbers, not a multiple of MXFP4's groups of 32"));
    return;
  }
  const int64_t rows = int64_t{need.rows} * need.turns, groups = need.columns / 32;
  Expect(names.weight, {need.experts, rows, groups, 16}, Form::kBytes);
  Expect(names.scales, {need.experts, rows, groups}, Form::kBytes);
  if (need.bias) Expect(names.bias, {need.experts, rows});
}

// Gate and up share a tensor too.
void Checker::Fused(const LinearNeed& need, const StoredNames& names) {
  if (need.fused_row > 0 || need.turn > 0) return;
  const StoredTensor& weight = *files_.Find(names.weight);
  if (IsFp8(weight)) return Fp8(need, weight);
  Expect(names.weight, names.turned
                           ? std::vector<int64_t>{need.experts, need.columns, need.fused_rows}
                           : std::vector<int64_t>{need.experts, need.fused_rows, need.columns});
  if (need.bias) Expect(names.bias, {need.experts, need.fused_rows});
}

void Checker::Fp8(const LinearNeed& need, const StoredTensor& weight) {
  if ((need.heads > 0 && !need.may_be_flat) || weight.shape.size() != 2) {
    code_ = reasons::kModelFormatUnsupported;
    return Fault(absl::StrCat("tensor '", weight.name, "' holds ",
                              need.heads > 0 ? need.heads : need.experts,
                              " maps in 8-bit floats; those that stand by themselves are read"));
  }
  if (Expect(weight.name, {need.all_stored_rows(), need.columns}, Form::kFp8) == nullptr) return;
  const StoredTensor* scale = FindFp8Scale(weight, files_);
  if (scale == nullptr) {
    return Fault(absl::StrCat("tensor '", weight.name, "' is stored as ", weight.dtype,
                              ", and its scales, '", weight.name, "_scale_inv' or '", weight.name,
                              "_scale', are in no weights file"));
  }
  if (!Fp8BlockOf(config_, weight, *scale).has_value()) {
    return Fault(absl::StrCat("tensor '", scale->name, "' is ", ShapeText(scale->shape),
                              ", neither one scale for '", weight.name, "' ",
                              ShapeText(weight.shape), " nor one for each row or block of ",
                              config_.fp8_block_rows, " x ", config_.fp8_block_columns));
  }
  if (scale->dtype != "F32" && scale->dtype != "BF16" && !IsPowerScale(*scale)) {
    code_ = reasons::kModelFormatUnsupported;
    Fault(absl::StrCat("tensor '", scale->name, "' is stored as ", scale->dtype));
  }
}

void Checker::Linear(const LinearNeed& need) {
  const StoredNames names = StoredNamesOf(need, files_);
  // Checked with the first of those that share it.
  if (names.stacked && !stacks_.emplace(names.weight, names.turn).second) return;
  if (need.first_row > 0) return;
  if (names.blocks) return Blocks(need, names);
  if (names.fused) return Fused(need, names);
  const StoredTensor* weight = files_.Find(names.weight);
  if (names.packed || files_.Find(names.scales) != nullptr) {
    Quantised(need, names);
  } else if (weight != nullptr && IsFp8(*weight)) {
    Fp8(need, *weight);
  } else {
    Expect(names.weight, ShapeOf(need, names.stacked, need.columns));
  }
  if (!need.bias) return;
  if (names.stacked) {
    Expect(names.bias, {need.experts, need.rows});
  } else {
    Expect(names.bias, {need.all_stored_rows()});
  }
}

void Checker::LeftOverLayers() {
  constexpr std::string_view kPrefix = "model.layers.";
  int highest = -1;
  for (auto it = files_.tensors().lower_bound(kPrefix);
       it != files_.tensors().end() && it->first.compare(0, kPrefix.size(), kPrefix) == 0; ++it) {
    int layer = -1;
    const std::string rest = it->first.substr(kPrefix.size());
    if (absl::SimpleAtoi(rest.substr(0, rest.find('.')), &layer)) {
      highest = std::max(highest, layer);
    }
  }
  if (highest >= config_.layer_count + config_.ignored_layers) {
    Fault(absl::StrCat("config.json says ", config_.layer_count, " layers, the weights have ",
                       highest + 1));
  }
}

absl::Status Checker::Result() const {
  if (faults_ == 0) return absl::OkStatus();
  std::string text = absl::StrCat(files_.folder(), ": ", absl::StrJoin(texts_, "; "));
  if (faults_ > kFaultsNamedMax) {
    absl::StrAppend(&text, "; and ", faults_ - kFaultsNamedMax, " more");
  }
  return ReasonStatus(absl::StatusCode::kInvalidArgument, code_, text);
}

}  // namespace

namespace {

StoredNames FusedNamesOf(const LinearNeed& need, const StoredTensor& tensor) {
  StoredNames names;
  names.module = need.module;
  names.weight = need.fused;
  names.bias = absl::StrCat(need.fused, "_bias");
  names.stacked = names.fused = true;
  names.turns = need.turns;
  names.turn = need.turn;
  const std::vector<int64_t> as_rows = {need.experts, need.fused_rows, need.columns};
  const std::vector<int64_t> turned = {need.experts, need.columns, need.fused_rows};
  const bool told = (tensor.shape == as_rows) != (tensor.shape == turned);
  names.turned = told ? tensor.shape == turned : need.fused_turned;
  return names;
}

}  // namespace

StoredNames StoredNamesOf(const LinearNeed& need, const WeightFiles& files) {
  StoredNames names;
  names.stacked = need.experts > 0 && files.Find(absl::StrCat(need.module, ".weight")) != nullptr;
  if (!names.stacked && !need.blocks.empty() &&
      files.Find(absl::StrCat(need.blocks, "_blocks")) != nullptr) {
    return {need.module,
            absl::StrCat(need.blocks, "_blocks"),
            absl::StrCat(need.blocks, "_scales"),
            "",
            absl::StrCat(need.blocks, "_bias"),
            /*stacked=*/true,
            /*blocks=*/true,
            need.turns,
            need.turn};
  }
  if (!names.stacked && !need.fused.empty()) {
    if (const StoredTensor* fused = files.Find(need.fused)) return FusedNamesOf(need, *fused);
  }
  // Of a family that never stores an expert by itself, the stacked ones are missed by name.
  const bool own = need.experts > 0 && !names.stacked && !need.own_module.empty();
  names.stacked = need.experts > 0 && !own;
  names.module = own ? need.own_module : need.module;
  names.weight = absl::StrCat(names.module, ".weight");
  names.scales = absl::StrCat(names.module, ".scales");
  names.biases = absl::StrCat(names.module, ".biases");
  names.bias = absl::StrCat(names.module, ".bias");
  const std::string packed = absl::StrCat(names.module, std::string(kPackedWeight));
  if (files.Find(packed) == nullptr) return names;
  names.packed = true;
  names.weight = packed;
  names.scales = absl::StrCat(names.module, std::string(kPackedScale));
  names.biases.clear();
  return names;
}

bool IsStoredAsDifference(const VectorNeed& need, const WeightFiles& files) {
  if (need.published_by.empty()) return need.adds_one;
  const StoredTensor* sign = files.Find(need.published_by);
  return sign != nullptr && !sign->shape.empty() && sign->shape.back() != 1;
}

bool AreExpertsFused(const LayerNeeds& needs, const WeightFiles& files) {
  if (needs.experts.empty() || needs.experts[0].gate.module.empty()) return false;
  return StoredNamesOf(needs.experts[0].gate, files).weight ==
         StoredNamesOf(needs.experts[0].up, files).weight;
}

bool IsStoredByHead(const LatentNeeds& needs, const WeightFiles& files) {
  return files.Find(StoredNamesOf(needs.kv_b, files).weight) == nullptr;
}

namespace {

// Maps that are stored one below the other in one tensor: q, k and v, or gate and up.
void Fuse(const std::string& module, std::initializer_list<LinearNeed*> maps) {
  int rows = 0;
  for (LinearNeed* map : maps) {
    map->module = module;
    map->first_row = rows;
    rows += map->rows;
  }
  for (LinearNeed* map : maps) map->stored_rows = rows;
}

// A feed-forward of `width`, of which this rank has `part`.
FeedNeeds FeedOf(const ModelConfig& config, const std::string& prefix, int width, const Range& part,
                 bool bias) {
  const int hidden = config.hidden_size;
  const auto map = [&](const char* name, Split split) {
    const bool by_rows = split == Split::kRows;
    return LinearNeed{absl::StrCat(prefix, name),
                      by_rows ? width : hidden,
                      by_rows ? hidden : width,
                      split,
                      part,
                      bias};
  };
  return {config.gated_feeds ? map("gate_proj", Split::kRows) : LinearNeed(),
          map("up_proj", Split::kRows), map("down_proj", Split::kColumns)};
}

void AddExperts(const ModelConfig& config, const ShardPlace& place, int layer, LayerNeeds& needs) {
  const ExpertTraits& traits = config.experts;
  const std::string prefix =
      absl::StrCat("model.layers.", layer, ".", traits.module, traits.module.empty() ? "" : ".");
  const int hidden = config.hidden_size, stored = std::max(config.experts_stored, traits.count);
  needs.router = LinearNeed{absl::StrCat(prefix, traits.router_name), stored, hidden};
  needs.router->bias = traits.router_bias;
  needs.router->exact = traits.exact_router;
  if (!traits.score_bias.empty()) {
    needs.score_bias = {absl::StrCat(prefix, traits.score_bias), stored, {}, false, /*exact=*/true};
  }
  const Range own = ExpertsOf(config, place.slices());
  if (stored > traits.count) {
    needs.router->split = Split::kRows;
    needs.router->part = needs.score_bias.part = {0, traits.count};
  }
  const Range part = ExpertInnerOf(config, layer, place.slices());
  const std::string all = absl::StrCat(prefix, traits.stacked_name, ".");
  FeedNeeds stacked = FeedOf(config, all, traits.width, part, traits.bias);
  stacked.up.module = absl::StrCat(all, traits.stacked_up);
  stacked.down.module = absl::StrCat(all, traits.stacked_down);
  if (traits.stored_as_blocks) {
    stacked.gate.blocks = stacked.up.blocks =
        absl::StrCat(prefix, traits.stacked_name, ".gate_up_proj");
    stacked.gate.turns = stacked.up.turns = 2;
    stacked.up.turn = 1;
    stacked.down.blocks = stacked.down.module;
  }
  if (!traits.fused_name.empty()) {
    const std::string fused = absl::StrCat(prefix, traits.fused_name, ".");
    stacked.gate.fused = stacked.up.fused = absl::StrCat(fused, "gate_up_proj");
    stacked.gate.fused_rows = stacked.up.fused_rows = 2 * traits.width;
    if (!traits.stored_as_blocks) stacked.up.fused_row = traits.width;  // else they take turns
    stacked.down.fused = absl::StrCat(fused, "down_proj");
    stacked.down.fused_rows = hidden;
    for (LinearNeed* need : {&stacked.gate, &stacked.up, &stacked.down}) {
      need->fused_turned = traits.fused_turned;
    }
  }
  if (place.whole_experts) {
    // Each is there once: what it gives has its bias in it.
    stacked.gate.split = stacked.up.split = stacked.down.split = Split::kNone;
  }
  needs.first_expert = own.begin;
  for (int expert = own.begin; expert < own.end; ++expert) {
    const std::string alone = absl::StrCat(prefix, "experts.", expert, ".");
    for (const auto& [need, name] :
         {std::pair{&stacked.gate, &traits.gate_name}, std::pair{&stacked.up, &traits.up_name},
          std::pair{&stacked.down, &traits.down_name}}) {
      if (need->module.empty()) continue;
      need->experts = stored;
      need->expert = expert;
      if (!name->empty()) need->own_module = absl::StrCat(alone, *name);
    }
    needs.experts.push_back(stacked);
  }
  if (traits.shared_width == 0) return;
  const std::string shared = absl::StrCat(prefix, traits.shared_module);
  needs.shared = FeedOf(config, absl::StrCat(shared, "."), traits.shared_width,
                        SharedInnerOf(config, layer, place.slices()), /*bias=*/false);
  if (traits.shared_gate)
    needs.shared_router = LinearNeed{absl::StrCat(shared, "_gate"), 1, hidden};
}

VectorNeed NormOf(const ModelConfig& config, const std::string& name, int size) {
  VectorNeed need{name, size};
  need.adds_one = config.norm_adds_one;
  if (!config.published_norm_adds_one) return need;
  const auto found = std::find(config.mixers.begin(), config.mixers.end(), MixerKind::kRecurrent);
  need.published_by = absl::StrCat("model.layers.", found - config.mixers.begin(), ".",
                                   config.recurrent.module, ".conv1d.weight");
  return need;
}

// Of Gemma 4's layers, besides.
void AddExtras(const ModelConfig& config, int layer, const std::string& prefix, LayerNeeds& needs) {
  const int hidden = config.hidden_size, width = config.layer_input_width;
  const auto norm = [&](const char* name) {
    return NormOf(config, absl::StrCat(prefix, name, ".weight"), hidden);
  };
  const auto numbers = [&](const char* name, int size) {
    VectorNeed need{absl::StrCat(prefix, name), size};
    need.exact = true;
    return need;
  };
  if (config.layer_scalars) needs.scalar = numbers("layer_scalar", 1);
  if (config.experts.beside_feed && config.has_experts[static_cast<size_t>(layer)]) {
    const int count = config.experts.count;
    const int stored = std::max(config.experts_stored, count);
    VectorNeed scales = numbers("router.per_expert_scale", stored);
    if (stored > count) scales.part = {0, count};
    needs.beside =
        BesideNeeds{norm("post_feedforward_layernorm_1"), norm("pre_feedforward_layernorm_2"),
                    norm("post_feedforward_layernorm_2"), numbers("router.scale", hidden), scales};
  }
  if (width == 0) return;
  needs.input =
      LayerInputNeeds{LinearNeed{absl::StrCat(prefix, "per_layer_input_gate"), width, hidden},
                      LinearNeed{absl::StrCat(prefix, "per_layer_projection"), hidden, width},
                      norm("post_per_layer_input_norm")};
}

void AddNorms(const ModelConfig& config, int layer, const Range& kv_heads,
              const std::string& prefix, LayerNeeds& needs) {
  const auto norm = [&](const std::string& name, int size) {
    if (name.empty()) return VectorNeed();
    return NormOf(config, absl::StrCat(prefix, name, ".weight"), size);
  };
  if (config.has_feed[static_cast<size_t>(layer)]) {
    needs.feed_norm = norm(config.norms.feed_in, config.hidden_size);
    needs.feed_out_norm = norm(config.norms.feed_out, config.hidden_size);
  }
  if (config.MixerOf(layer) == MixerKind::kNone) return;
  needs.attention_norm = norm(config.norms.attention_in, config.hidden_size);
  needs.attention_out_norm = norm(config.norms.attention_out, config.hidden_size);
  if (config.IsRecurrent(layer)) return;
  if (config.qk_norm) {
    const int dim = config.HeadsOf(layer).dim;
    needs.q_norm = norm("self_attn.q_norm", dim);
    if (config.KvSourceOf(layer) == layer) needs.k_norm = norm("self_attn.k_norm", dim);
  } else if (config.qk_norm_whole) {
    const int group = config.attention_heads / config.kv_heads * config.head_dim;
    needs.q_norm = norm("self_attn.q_norm", config.kv_heads * group);
    needs.k_norm = norm("self_attn.k_norm", config.kv_heads * config.head_dim);
    needs.q_norm.part = {kv_heads.begin * group, kv_heads.end * group};
    needs.k_norm.part = {kv_heads.begin * config.head_dim, kv_heads.end * config.head_dim};
  }
}

// Keys and values by head.
void AddHeads(const ModelConfig& config, int layer, const Range& kv_heads,
              const std::string& prefix, LayerNeeds& needs) {
  const HeadTraits heads = config.HeadsOf(layer);
  const int query_width = config.attention_heads / heads.kv_heads * heads.dim;
  // Of the kv heads, and of the query heads that share them.
  const auto rows = [&](const char* name, int width) {
    LinearNeed need{absl::StrCat(prefix, name), heads.kv_heads * width, config.hidden_size};
    need.split = Split::kRows;
    need.part = Times(kv_heads, width);
    need.bias = config.qkv_bias;
    return need;
  };
  needs.q = rows("q_proj", config.attention_gate ? 2 * query_width : query_width);
  if (config.KvSourceOf(layer) != layer) return;
  needs.k = rows("k_proj", heads.dim);
  if (!heads.keys_are_values) needs.v = rows("v_proj", heads.dim);
  if (config.fused_qkv) {
    Fuse(absl::StrCat(prefix, "qkv_proj"), {&needs.q, &needs.k, &needs.v});
  }
}

void AddRecurrent(const ModelConfig& config, const Range& own, const std::string& prefix,
                  LayerNeeds& needs) {
  const RecurrentTraits& traits = config.recurrent;
  const int group = traits.group(), values = group * traits.value_dim;  // of a key head
  const std::string module = absl::StrCat(prefix, traits.module, ".");
  const auto by_head = [&](const char* name, int rows) {
    return LinearNeed{absl::StrCat(module, name), traits.key_heads * rows, config.hidden_size,
                      Split::kRows, Times(own, rows)};
  };
  RecurrentNeeds layer;
  if (traits.rule == RecurrenceRule::kStateSpace) {
    layer.in = {by_head("", values), by_head("", values), by_head("", traits.key_dim),
                by_head("", traits.key_dim), by_head("", group)};
    Fuse(absl::StrCat(module, "in_proj"),
         {&layer.in[0], &layer.in[1], &layer.in[2], &layer.in[3], &layer.in[4]});
    for (LinearNeed& map : layer.in) map.bias = traits.projection_bias;
  } else if (traits.by_key_head) {
    layer.in = {by_head("in_proj_qkvz", 2 * traits.key_dim + 2 * values),
                by_head("in_proj_ba", 2 * group)};
  } else {
    layer.in = {by_head("", traits.key_dim), by_head("", traits.key_dim),
                by_head("", values),         by_head("in_proj_z", values),
                by_head("in_proj_b", group), by_head("in_proj_a", group)};
    Fuse(absl::StrCat(module, "in_proj_qkv"), {&layer.in[0], &layer.in[1], &layer.in[2]});
  }
  const auto vector = [&](const char* name, int size) {
    VectorNeed need{absl::StrCat(module, name), size};
    need.exact = true;
    return need;
  };
  const int channels = traits.key_heads * (2 * traits.key_dim + values);
  layer.taps = vector("conv1d.weight", channels * traits.taps);
  layer.taps.taps = traits.taps;
  if (traits.taps_bias) layer.taps_bias = vector("conv1d.bias", channels);
  layer.decay = vector("A_log", traits.value_heads);
  layer.step_bias = vector("dt_bias", traits.value_heads);
  layer.norm = vector("norm.weight", traits.value_dim);
  if (traits.rule == RecurrenceRule::kStateSpace) {
    layer.skip = vector("D", traits.value_heads);
    layer.norm.size = traits.key_heads * values;
  }
  needs.o = LinearNeed{absl::StrCat(module, "out_proj"),
                       config.hidden_size,
                       traits.key_heads * values,
                       Split::kColumns,
                       Times(own, values),
                       traits.projection_bias};
  needs.recurrent = std::move(layer);
}

void AddLatent(const ModelConfig& config, const Range& own, const std::string& prefix,
               LayerNeeds& needs) {
  const LatentTraits& traits = config.latent;
  const int heads = config.attention_heads, hidden = config.hidden_size;
  const auto whole = [&](const char* name, int rows) {
    LinearNeed need{absl::StrCat(prefix, name), rows, hidden};
    need.bias = config.qkv_bias;
    return need;
  };
  const auto by_head = [&](const char* name, int rows, int columns) {
    return LinearNeed{absl::StrCat(prefix, name), heads * rows, columns, Split::kRows,
                      Times(own, rows)};
  };
  LatentNeeds latent;
  const int query_width = traits.nope + traits.rope;
  if (traits.q_rank > 0) {
    latent.q_a = whole("q_a_proj", traits.q_rank);
    latent.q_a_norm = {absl::StrCat(prefix, "q_a_layernorm.weight"), traits.q_rank};
    latent.q_b = by_head("q_b_proj", query_width, traits.q_rank);
  } else {
    latent.q_b = by_head("q_proj", query_width, hidden);
  }
  latent.kv_a = whole("kv_a_proj_with_mqa", traits.width());
  latent.kv_a_norm = {absl::StrCat(prefix, "kv_a_layernorm.weight"), traits.kv_rank};
  latent.kv_b = by_head("kv_b_proj", traits.nope + traits.value, traits.kv_rank);
  latent.embed_q = by_head("embed_q", traits.kv_rank, traits.nope);
  latent.unembed_out = by_head("unembed_out", traits.value, traits.kv_rank);
  latent.embed_q.heads = latent.unembed_out.heads = heads;
  if (config.has_index()) {
    const IndexTraits& index = config.index;
    const std::string indexer = absl::StrCat(prefix, "indexer.");
    latent.index = IndexNeeds{
        {absl::StrCat(indexer, "wq_b"), index.heads * index.dim, traits.q_rank},
        {absl::StrCat(indexer, "wk"), index.dim, hidden},
        {absl::StrCat(indexer, "weights_proj"), index.heads, hidden},
        {absl::StrCat(indexer, "k_norm.weight"), index.dim},
        {absl::StrCat(indexer, "k_norm.bias"), index.dim},
    };
  }
  needs.latent = std::move(latent);
}

void AddAttention(const ModelConfig& config, int layer, const Range& kv_heads,
                  const std::string& prefix, LayerNeeds& needs) {
  const std::string attention = absl::StrCat(prefix, config.attention_module, ".");
  if (config.has_compression()) {
    needs.compressed = CompressedNeedsOf(config, layer, kv_heads, attention);
  } else if (config.has_latent()) {
    AddLatent(config, kv_heads, attention, needs);
  } else {
    AddHeads(config, layer, kv_heads, attention, needs);
    if (config.ChoosesBlocks(layer)) {
      needs.block_index = BlockIndexNeedsOf(config, kv_heads, attention);
    }
  }
  const HeadTraits heads = config.HeadsOf(layer);
  const int width = config.OutputColumns(heads);
  needs.o = LinearNeed{absl::StrCat(attention, config.output_name()),
                       config.hidden_size,
                       heads.kv_heads * width,
                       Split::kColumns,
                       Times(kv_heads, width),
                       config.output_bias};
  if (!config.attention_sinks) return;
  needs.sinks = {absl::StrCat(attention, "sinks"), config.attention_heads,
                 Times(kv_heads, config.attention_heads / config.kv_heads),
                 /*adds_one=*/false, /*exact=*/config.has_compression()};
}

}  // namespace

LayerNeeds NeedsOfLayer(const ModelConfig& config, const ShardPlace& place, int layer) {
  const std::string prefix = absl::StrCat("model.layers.", layer, ".");
  const Range kv_heads = KvHeadsOf(config, layer, place.slices());
  const auto index = static_cast<size_t>(layer);
  LayerNeeds needs;
  if (config.IsRecurrent(layer)) {
    AddRecurrent(config, StateHeadsOf(config, place.slices()), prefix, needs);
  } else if (config.MixerOf(layer) == MixerKind::kAttention) {
    AddAttention(config, layer, kv_heads, prefix, needs);
  }
  if (config.has_streams()) {
    needs.attention_streams = StreamNeedsOf(config, absl::StrCat(prefix, "attn_hc."));
    needs.feed_streams = StreamNeedsOf(config, absl::StrCat(prefix, "ffn_hc."));
  }
  if (config.has_experts[index]) AddExperts(config, place, layer, needs);
  if (config.has_feed[index] && (!config.has_experts[index] || config.experts.beside_feed)) {
    needs.feed =
        FeedOf(config, absl::StrCat(prefix, config.feed_module, "."), config.FeedWidthOf(layer),
               InnerOf(config, layer, place.slices()), config.mlp_bias);
    if (config.fused_gate_up) {
      Fuse(absl::StrCat(prefix, "mlp.gate_up_proj"), {&needs.feed->gate, &needs.feed->up});
    }
  }
  AddNorms(config, layer, kv_heads, prefix, needs);
  AddExtras(config, layer, prefix, needs);
  return needs;
}

std::optional<InputNeeds> InputNeedsOf(const ModelConfig& config, const ShardPlace& place) {
  if (config.layer_input_width == 0) return std::nullopt;
  const int all = config.layer_count * config.layer_input_width;
  return InputNeeds{
      {"model.embed_tokens_per_layer", config.vocab_size, all, Split::kRows,
       VocabularyOf(config, place.slices())},
      {"model.per_layer_model_projection", all, config.hidden_size},
      NormOf(config, "model.per_layer_projection_norm.weight", config.layer_input_width)};
}

LinearNeed EmbeddingNeed(const ModelConfig& config, const ShardPlace& place) {
  return {"model.embed_tokens", config.vocab_size, config.hidden_size, Split::kRows,
          VocabularyOf(config, place.slices())};
}

LinearNeed HeadNeed(const ModelConfig& config, const ShardPlace& place) {
  LinearNeed need = EmbeddingNeed(config, place);
  if (!config.tied_embeddings) need.module = "lm_head";
  return need;
}

VectorNeed FinalNormNeed(const ModelConfig& config) {
  return NormOf(config, "model.norm.weight", config.hidden_size);
}

bool LoadsHead(const ModelConfig& config, const ShardPlace& place) {
  return place.has_head && config.has_head && !(place.embeds && config.tied_embeddings);
}

absl::Status CheckWeights(const ModelConfig& config, const ShardPlace& place,
                          const WeightFiles& files) {
  if (place.layer_begin < 0 || place.layer_begin >= place.layer_end ||
      place.layer_end > config.layer_count) {
    return ReasonStatus(absl::StatusCode::kInvalidArgument, reasons::kModelConfigInvalid,
                        absl::StrCat("layers [", place.layer_begin, ", ", place.layer_end,
                                     ") of a model that has ", config.layer_count));
  }
  Checker check(config, files);
  if (place.embeds) {
    check.Linear(EmbeddingNeed(config, place));
    if (const auto inputs = InputNeedsOf(config, place); inputs.has_value()) {
      check.Linear(inputs->embedding);
      check.Linear(inputs->projection);
      check.Vector(inputs->norm);
    }
  }
  for (int layer = place.layer_begin; layer < place.layer_end; ++layer) {
    const LayerNeeds needs = NeedsOfLayer(config, place, layer);
    for (const LinearNeed* need : LinearsOf(needs, files)) check.Linear(*need);
    for (const VectorNeed* need : VectorsOf(needs)) check.Vector(*need);
  }
  if (place.has_head) check.Vector(FinalNormNeed(config));
  if (LoadsHead(config, place)) check.Linear(HeadNeed(config, place));
  check.LeftOverLayers();
  return check.Result();
}

}  // namespace macrame::runtime::engine
