// DeepSeek-V4.1: several residual streams; attention over a window and over compressed entries that
// some layers make, some choose and all behind them share; experts in every layer beside one that
// every token takes.

#include <algorithm>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "runtime/model/families/config_fields.h"
#include "runtime/model/families/family.h"

namespace macrame::runtime::engine {
namespace {

using nlohmann::json;

// As mlx-lm's model has them.
json WithDefaults(const json& given) {
  json config = {{"max_position_embeddings", 1048576},
                 {"rms_norm_eps", 1e-20},
                 {"sliding_window", 128},
                 {"rope_theta", 10000.0},
                 {"compress_rope_theta", 160000.0},
                 {"swiglu_limit", 10.0},
                 {"routed_scaling_factor", 1.5}};
  const json* text = FindField(given, "text_config");
  const json& own = text != nullptr && text->is_object() ? *text : given;
  for (const auto& [key, value] : own.items()) {
    if (!value.is_null()) config[key] = value;
  }
  return config;
}

// Numbers of a list that is missing or null are none.
std::vector<int> ReadList(const json& config, const char* key, int most) {
  const json* found = FindField(config, key);
  std::vector<int> numbers;
  if (found == nullptr) return numbers;
  if (!found->is_array()) Invalid(absl::StrCat("'", key, "' is not a list"));
  for (const json& value : *found) {
    if (!value.is_number_integer() || value < 0 || value > most) {
      Invalid(
          absl::StrCat("'", key, "' holds ", value.dump(), ", no whole number of [0, ", most, "]"));
    }
    numbers.push_back(value.get<int>());
  }
  return numbers;
}

std::vector<bool> ReadLayers(const json& config, const char* key, int layers) {
  std::vector<bool> marked(static_cast<size_t>(layers));
  for (const int layer : ReadList(config, key, layers - 1)) {
    marked[static_cast<size_t>(layer)] = true;
  }
  return marked;
}

void ReadDeepSeekV41Ropes(const json& config, ModelConfig& out) {
  out.local_rope = out.rope;  // of layers that look at the window alone: no scaling
  RopeTraits& rope = out.rope;
  rope.theta = ReadNumber(config, "compress_rope_theta", std::nullopt);
  const json* scaling = FindField(config, "rope_scaling");
  if (scaling == nullptr) return;
  if (!scaling->is_object()) Invalid("'rope_scaling' is not an object");
  const std::string type = ReadText(*scaling, "rope_type", ReadText(*scaling, "type", "yarn"));
  if (type != "yarn" && type != "deepseek_yarn" && type != "default") {
    Unsupported(
        absl::StrCat("rope scaling '", type, "' of deepseek_v41 is not implemented; ", "yarn is"));
  }
  rope.scaling = RopeScalingKind::kYarn;
  rope.factor = ReadNumber(*scaling, "factor", 1.0);
  rope.original_context =
      ReadInt(*scaling, "original_max_position_embeddings", out.context_length_max);
  rope.beta_fast = ReadNumber(*scaling, "beta_fast", 32.0);
  rope.beta_slow = ReadNumber(*scaling, "beta_slow", 1.0);
  rope.mscale = rope.mscale_all_dim = 0.0;  // what is turned keeps its length
}

// Which layers make entries and which choose: what each layer looks at must have been made, and
// chosen from, before it.
void CheckSources(const CompressTraits& traits, int layers) {
  int maker = -1, chooser = -1;
  for (int layer = 0; layer < layers; ++layer) {
    const auto at = static_cast<size_t>(layer);
    const int ratio = traits.ratios[at];
    if (ratio == 0 && (traits.makes[at] || traits.chooses[at])) {
      Invalid(absl::StrCat("layer ", layer, " is a KV or index source, and its ratio in ",
                           "'compress_ratios' is 0"));
    }
    if (ratio == 0) continue;
    if (traits.makes[at] && !traits.chooses[at]) {
      Unsupported(absl::StrCat("layer ", layer, " is in 'kv_source_layer_ids' and not in ",
                               "'index_source_layer_ids': entries without index keys are not ",
                               "implemented"));
    }
    if (traits.makes[at]) maker = layer;
    if (traits.chooses[at]) chooser = layer;
    if (maker < 0 || chooser < maker) {
      Invalid(absl::StrCat("layer ", layer, " compresses, and no layer of 'kv_source_layer_ids' ",
                           "and 'index_source_layer_ids' up to it does it for it"));
    }
    if (traits.ratios[static_cast<size_t>(maker)] != ratio) {
      Unsupported(absl::StrCat("layer ", layer, " has the compress ratio ", ratio,
                               ", its KV source, layer ", maker, ", ",
                               traits.ratios[static_cast<size_t>(maker)]));
    }
    if (ratio > CompressTraits::kRatioMax || CompressTraits::kRatioMax % ratio != 0) {
      Unsupported(absl::StrCat("a compress ratio of ", ratio, "; those that divide ",
                               CompressTraits::kRatioMax, " are implemented"));
    }
  }
}

void ReadCandidates(const json& config, ModelConfig& out) {
  CompressTraits& traits = out.compress;
  const json* found = FindField(config, "candidate_source_layer_id");
  const bool is_unset = found == nullptr || *found == -1;
  const int blocks = ReadInt(config, "candidate_topk_blocks", 2048, 0);
  if (is_unset || blocks == 0) return;
  const int layer = ReadInt(config, "candidate_source_layer_id", std::nullopt, 0);
  if (layer >= out.layer_count || !traits.chooses[static_cast<size_t>(layer)]) {
    Invalid(absl::StrCat("'candidate_source_layer_id' ", layer,
                         " is not among 'index_source_layer_ids'"));
  }
  traits.candidate_layer = layer;
  traits.candidate_block = ReadInt(config, "candidate_block_size", 8);
  traits.candidate_blocks = blocks;
  if (traits.SourceOf(out.layer_count - 1) != traits.SourceOf(layer)) {
    Unsupported(absl::StrCat("a KV source behind 'candidate_source_layer_id' ", layer,
                             " is not implemented"));
  }
  // The newest block may hold but one entry.
  const int64_t least = (int64_t{blocks} - 1) * traits.candidate_block + 1;
  if (least < traits.index_top) {
    Unsupported(absl::StrCat("'candidate_topk_blocks' ", blocks, " of ", traits.candidate_block,
                             " entries are too few for 'index_topk' ", traits.index_top));
  }
}

void ReadCompression(const json& config, ModelConfig& out) {
  CompressTraits& traits = out.compress;
  traits.groups = ReadInt(config, "o_groups", std::nullopt);
  traits.group_rank = ReadInt(config, "o_lora_rank", std::nullopt);
  traits.q_rank = ReadInt(config, "q_lora_rank", std::nullopt);
  traits.window = ReadInt(config, "sliding_window", std::nullopt);
  traits.index_heads = ReadInt(config, "index_n_heads", 32);
  traits.index_dim = ReadInt(config, "index_head_dim", 128);
  traits.index_top = ReadInt(config, "index_topk", 512);
  traits.ratios = ReadList(config, "compress_ratios", kDimensionMax);
  traits.ratios.resize(static_cast<size_t>(out.layer_count));  // more: of layers that predict
  traits.makes = ReadLayers(config, "kv_source_layer_ids", out.layer_count);
  traits.chooses = ReadLayers(config, "index_source_layer_ids", out.layer_count);
  if (out.attention_heads % traits.groups != 0) {
    Invalid(absl::StrCat("'num_attention_heads' ", out.attention_heads,
                         " is not a multiple of 'o_groups' ", traits.groups));
  }
  if (traits.rope > out.head_dim || traits.rope > traits.index_dim) {
    Invalid(absl::StrCat("'qk_rope_head_dim' ", traits.rope, " is above 'head_dim' ", out.head_dim,
                         " or 'index_head_dim' ", traits.index_dim));
  }
  // As they stand in the KV cache.
  if (out.head_dim % 16 != 0 || traits.index_dim % 16 != 0) {
    Unsupported(absl::StrCat("'head_dim' ", out.head_dim, " with 'index_head_dim' ",
                             traits.index_dim, "; multiples of 16 are implemented"));
  }
  const int64_t widest = std::max(int64_t{traits.index_heads} * traits.index_dim,
                                  int64_t{traits.groups} * traits.group_rank);
  if (widest > kDimensionMax || traits.index_top > kDimensionMax) {
    Invalid(absl::StrCat("the indexer's or output groups' maps would have ", widest, " rows"));
  }
  CheckSources(traits, out.layer_count);
  ReadCandidates(config, out);
  for (const int ratio : traits.ratios) {
    out.rope_uses.push_back(ratio > 0 ? RopeUse::kGlobal : RopeUse::kLocal);
  }
}

void ReadStreams(const json& config, ModelConfig& out) {
  out.streams.count = ReadInt(config, "hc_mult", 4);
  out.streams.rounds = ReadInt(config, "hc_sinkhorn_iters", 20);
  out.streams.eps = static_cast<float>(ReadNumber(config, "hc_eps", 1e-6));
  if (out.streams.count > StreamTraits::kStreamsMax ||
      int64_t{out.streams.count} * out.hidden_size > kDimensionMax) {
    Unsupported(absl::StrCat("'hc_mult' ", out.streams.count, ": at most ",
                             StreamTraits::kStreamsMax, " residual streams are implemented"));
  }
}

void ReadRouter(const json& config, ModelConfig& out) {
  ExpertTraits& experts = out.experts;
  experts.count = ReadInt(config, "n_routed_experts", std::nullopt);
  experts.width = experts.shared_width = ReadInt(config, "moe_intermediate_size", std::nullopt);
  experts.shared_module = "shared_experts";
  experts.stacked_name = "experts.switch_mlp";
  experts.module = "mlp";
  experts.score_bias = "gate.e_score_correction_bias";
  experts.published_as_fp4 = true;
  experts.exact_router = true;
  const int shared = ReadInt(config, "n_shared_experts", 1, 0);
  if (shared != 1) {
    Unsupported(absl::StrCat("'n_shared_experts' ", shared, " of deepseek_v41; 1 is implemented"));
  }
  const std::string scores = ReadText(config, "scoring_func", "sqrtsoftplus");
  if (scores != "sqrtsoftplus" && scores != "sigmoid") {
    Unsupported(absl::StrCat("router's scoring_func '", scores,
                             "' is not implemented; sqrtsoftplus and sigmoid are"));
  }
  experts.scores = scores == "sigmoid" ? RouterScores::kSigmoid : RouterScores::kRootSoftplus;
  experts.score_divisor = ReadNumber(config, "gate_temp", 1.0);
  experts.weight_scale = ReadNumber(config, "routed_scaling_factor", std::nullopt);
  experts.gate_limit = static_cast<float>(ReadNumberFromZero(config, "swiglu_limit", 10.0));
  ReadActiveExperts(config, out);
  experts.normalized = experts.active > 1 && ReadBool(config, "norm_topk_prob", true);
}

}  // namespace

void ReadDeepseekV41(const json& given, ModelConfig& out) {
  const json config = WithDefaults(given);
  const auto engram = ReadList(config, "engram_layer_ids", kLayersMax);
  if (!engram.empty()) {
    Unsupported(absl::StrCat("layers ", absl::StrJoin(engram, ", "),
                             " ('engram_layer_ids') read an n-gram memory, which is not "
                             "implemented"));
  }
  json frame = config;
  frame.erase("rope_scaling");
  frame.erase("rope_parameters");
  frame["head_dim"] = ReadInt(config, "qk_rope_head_dim", 64);  // of what is turned
  ReadFrame(frame, out);
  out.compress.rope = out.rope.dims;
  out.rope.interleaved = true;
  out.head_dim = ReadInt(config, "head_dim", std::nullopt);
  if (out.activation != Activation::kSilu) Unsupported("deepseek_v41 with another gate than silu");
  out.tied_embeddings = false;
  out.attention_sinks = true;
  ReadDeepSeekV41Ropes(config, out);
  ReadCompression(config, out);
  // What a tensor split cuts: a group of heads has an output map of its own.
  out.kv_heads = out.compress.groups;
  ReadStreams(config, out);
  ReadRouter(config, out);
}

}  // namespace macrame::runtime::engine
