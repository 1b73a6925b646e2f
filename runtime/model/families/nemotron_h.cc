// Nemotron-H and Nemotron 3 Nano: each layer is one half: a state space (Mamba 2), attention that
// knows no positions, a feed-forward or experts. Feed-forwards have no gate.

#include <algorithm>
#include <limits>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "runtime/model/families/config_fields.h"
#include "runtime/model/families/family.h"

namespace macrame::runtime::engine {
namespace {

using nlohmann::json;

enum class Half { kState, kAttention, kDense, kExperts };

Half HalfOf(const json& kind) {
  if (kind == "M" || kind == "linear_attention" || kind == "mamba" || kind == "conv") {
    return Half::kState;
  }
  if (kind == "*" || kind == "full_attention" || kind == "attention") return Half::kAttention;
  if (kind == "-" || kind == "mlp") return Half::kDense;
  if (kind == "E" || kind == "moe") return Half::kExperts;
  Unsupported(absl::StrCat("a layer of kind ", kind.dump(), "; M (mamba), * (attention), - (mlp) ",
                           "and E (moe) are implemented"));
}

// A text of one letter a layer, or a list of words.
std::vector<Half> ReadPattern(const json& config) {
  std::vector<Half> halves;
  for (const char* key : {"hybrid_override_pattern", "layers_block_type", "layer_types"}) {
    const json* found = FindField(config, key);
    if (found == nullptr) continue;
    if (found->is_string()) {
      for (const char letter : found->get<std::string>()) {
        halves.push_back(HalfOf(std::string(1, letter)));
      }
    } else if (found->is_array()) {
      for (const json& kind : *found) halves.push_back(HalfOf(kind));
    }
    if (halves.empty()) Invalid(absl::StrCat("'", key, "' names no layers"));
    return halves;
  }
  Invalid(
      "'hybrid_override_pattern' and 'layers_block_type' are missing, and with them "
      "'num_hidden_layers'");
}

// transformers writes what is not finite as {"__float__": "Infinity"}.
float StepLimit(const json& limit) {
  constexpr float kInfinity = std::numeric_limits<float>::infinity();
  const bool is_named = limit.is_object() && limit.size() == 1 && limit.contains("__float__") &&
                        limit["__float__"] == "Infinity";
  if (is_named) return kInfinity;
  if (!limit.is_number()) Invalid("'time_step_limit' is not a pair of numbers");
  const auto value = limit.get<double>();
  return value > std::numeric_limits<float>::max() ? kInfinity : static_cast<float>(value);
}

void ReadMamba(const json& config, ModelConfig& out) {
  RecurrentTraits& traits = out.recurrent;
  traits.rule = RecurrenceRule::kStateSpace;
  traits.module = "mixer";
  traits.key_heads = ReadInt(config, "n_groups", std::nullopt);
  traits.value_heads = ReadInt(config, "mamba_num_heads", std::nullopt);
  traits.key_dim = ReadInt(config, "ssm_state_size", std::nullopt);
  traits.value_dim = ReadInt(config, "mamba_head_dim", std::nullopt);
  traits.taps = ReadInt(config, "conv_kernel", 4, 2);
  traits.taps_bias = ReadBool(config, "use_conv_bias", true);
  traits.projection_bias = ReadBool(config, "mamba_proj_bias", false);
  CheckRecurrent("mamba_num_heads", "n_groups", "conv_kernel", traits);
  const json* limits = FindField(config, "time_step_limit");
  if (limits == nullptr) return;
  if (!limits->is_array() || limits->size() != 2) {
    Invalid("'time_step_limit' is not a pair of numbers");
  }
  traits.step_min = StepLimit((*limits)[0]);
  traits.step_max = StepLimit((*limits)[1]);
  if (!(traits.step_min <= traits.step_max)) {
    Invalid(absl::StrCat("'time_step_limit' ", limits->dump(), " is no range"));
  }
}

void ReadNemotronExperts(const json& config, ModelConfig& out) {
  if (FindField(config, "moe_latent_size") != nullptr) {
    Unsupported("'moe_latent_size': experts in a latent space are not implemented");
  }
  ExpertTraits& experts = out.experts;
  experts.count = ReadInt(config, "n_routed_experts", std::nullopt);
  experts.width = ReadInt(config, "moe_intermediate_size", std::nullopt);
  experts.normalized = ReadBool(config, "norm_topk_prob", true);
  experts.scores = RouterScores::kSigmoid;
  experts.score_bias = "gate.e_score_correction_bias";
  experts.weight_scale = ReadNumber(config, "routed_scaling_factor", 1.0);
  experts.module = "mixer";
  experts.stacked_up = "fc1";
  experts.stacked_down = "fc2";
  if (ReadInt(config, "n_shared_experts", 0, 0) > 0) {
    experts.shared_width = ReadInt(config, "moe_shared_expert_intermediate_size", std::nullopt);
    experts.shared_module = "shared_experts";
  }
  ReadActiveExperts(config, out);
  ReadExpertGroups(config, experts);
}

}  // namespace

void ReadNemotronH(const json& given, ModelConfig& out) {
  const std::vector<Half> halves = ReadPattern(given);
  json config = given;
  config["num_hidden_layers"] = halves.size();
  config["rms_norm_eps"] = ReadNumber(given, "layer_norm_epsilon", 1e-5);
  ReadFrame(config, out);
  out.qkv_bias = out.output_bias = ReadBool(config, "attention_bias", false);
  out.mlp_bias = ReadBool(config, "mlp_bias", false);
  out.activation = Activation::kRelu2;
  out.gated_feeds = false;
  out.attention_module = out.feed_module = "mixer";
  out.norms = {"norm", "", "norm", ""};
  out.rope_uses.assign(halves.size(), RopeUse::kNone);
  ReadMamba(config, out);
  const bool has_experts = std::find(halves.begin(), halves.end(), Half::kExperts) != halves.end();
  if (has_experts) ReadNemotronExperts(config, out);
  out.has_experts.assign(halves.size(), false);
  for (size_t layer = 0; layer < halves.size(); ++layer) {
    const Half half = halves[layer];
    out.mixers.push_back(half == Half::kState       ? MixerKind::kRecurrent
                         : half == Half::kAttention ? MixerKind::kAttention
                                                    : MixerKind::kNone);
    out.has_feed.push_back(half == Half::kDense || half == Half::kExperts);
    out.has_experts[layer] = half == Half::kExperts;
  }
}

}  // namespace macrame::runtime::engine
