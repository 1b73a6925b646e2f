#include "runtime/model/families/rope_fields.h"

#include <algorithm>
#include <iterator>
#include <string_view>
#include <utility>

#include "absl/strings/str_cat.h"
#include "runtime/model/families/config_fields.h"

namespace macrame::runtime::engine {
namespace {

using nlohmann::json;

// What reads one kind's fields: `where` the object of the rotary form, `config` around it.
using ReadKind = void (*)(const json& config, const json& where, RopeTraits& out);

// Beside the form's other fields, or, in Phi's, beside all others.
int OriginalContext(const json& config, const json& where, std::optional<int> fallback) {
  constexpr const char* kKey = "original_max_position_embeddings";
  return FindField(where, kKey) != nullptr ? ReadInt(where, kKey, fallback)
                                           : ReadInt(config, kKey, fallback);
}

std::optional<double> OptionalNumber(const json& where, const char* key) {
  if (FindField(where, key) == nullptr) return std::nullopt;
  return ReadNumber(where, key, std::nullopt);
}

void ReadLinear(const json&, const json& where, RopeTraits& out) {
  out.scaling = RopeScalingKind::kLinear;
  out.factor = ReadNumber(where, "factor", std::nullopt);
}

void ReadDynamic(const json&, const json& where, RopeTraits& out) {
  out.scaling = RopeScalingKind::kDynamic;
  out.factor = ReadNumber(where, "factor", std::nullopt);
}

void ReadLlama3(const json& config, const json& where, RopeTraits& out) {
  out.scaling = RopeScalingKind::kLlama3;
  out.factor = ReadNumber(where, "factor", std::nullopt);
  out.low_freq_factor = ReadNumber(where, "low_freq_factor", 1.0);
  out.high_freq_factor = ReadNumber(where, "high_freq_factor", 4.0);
  out.original_context = OriginalContext(config, where, 8192);
  if (out.high_freq_factor <= out.low_freq_factor) {
    Invalid("rope scaling 'llama3': high_freq_factor is not above low_freq_factor");
  }
}

void ReadYarn(const json& config, const json& where, RopeTraits& out) {
  out.scaling = RopeScalingKind::kYarn;
  out.factor = ReadNumber(where, "factor", std::nullopt);
  out.original_context = OriginalContext(config, where, std::nullopt);
  out.beta_fast = ReadNumber(where, "beta_fast", 32.0);
  out.beta_slow = ReadNumber(where, "beta_slow", 1.0);
  out.mscale = ReadNumberFromZero(where, "mscale", 1.0);
  out.mscale_all_dim = ReadNumberFromZero(where, "mscale_all_dim", 0.0);
  out.truncate = ReadBool(where, "truncate", true);
  out.attention_factor = OptionalNumber(where, "attention_factor");
  // Kimi K2 has both at 1.
  if (out.beta_fast < out.beta_slow) {
    Invalid("rope scaling 'yarn': beta_fast is below beta_slow");
  }
  // Pairs are told apart by how often they turn, which is alike where theta is 1.
  if (out.theta <= 1.0) {
    Invalid(absl::StrCat("rope scaling 'yarn': 'rope_theta' ", out.theta, " is not above 1"));
  }
}

std::vector<double> ReadFactors(const json& where, const char* key, int dims) {
  const json* found = FindField(where, key);
  if (found == nullptr || !found->is_array() || found->size() != static_cast<size_t>(dims / 2)) {
    Invalid(absl::StrCat("rope scaling 'longrope': '", key, "' is not a list of ", dims / 2,
                         " numbers, one for each pair of the ", dims, " dimensions that turn"));
  }
  std::vector<double> factors;
  for (const json& factor : *found) {
    if (!factor.is_number() || !(factor.get<double>() > 0.0)) {
      Invalid(absl::StrCat("rope scaling 'longrope': '", key, "' holds ", factor.dump()));
    }
    factors.push_back(factor.get<double>());
  }
  return factors;
}

void ReadLongrope(const json& config, const json& where, RopeTraits& out) {
  out.scaling = RopeScalingKind::kLongrope;
  out.original_context = OriginalContext(config, where, std::nullopt);
  out.short_factors = ReadFactors(where, "short_factor", out.dims);
  out.long_factors = ReadFactors(where, "long_factor", out.dims);
  out.attention_factor = OptionalNumber(where, "attention_factor");
  if (out.original_context < 2) Invalid("rope scaling 'longrope': an original context of 1");
}

// Gemma 4.
void ReadProportional(const json&, const json& where, RopeTraits& out) {
  out.scaling = RopeScalingKind::kProportional;
  out.factor = ReadNumber(where, "factor", 1.0);
}

void ReadDefault(const json&, const json&, RopeTraits&) {}

constexpr std::pair<std::string_view, ReadKind> kKinds[] = {
    {"default", ReadDefault},   {"linear", ReadLinear}, {"dynamic", ReadDynamic},
    {"llama3", ReadLlama3},     {"yarn", ReadYarn},     {"deepseek_yarn", ReadYarn},
    {"longrope", ReadLongrope}, {"su", ReadLongrope},   {"proportional", ReadProportional},
};

void ReadScaling(const json& config, const json& where, RopeTraits& out) {
  const std::string name = ReadText(where, "rope_type", ReadText(where, "type", "default"));
  std::string known;
  for (const auto& [kind, read] : kKinds) {
    if (kind == name) return read(config, where, out);
    known += (known.empty() ? "" : ", ") + std::string(kind);
  }
  Unsupported(absl::StrCat("rope scaling '", name, "' is not implemented; ", known, " are"));
}

// Any other field of a rotary form changes what turns and how far.
void CheckFields(const json& form, const char* key) {
  constexpr std::string_view kKnown[] = {
      "rope_type", "type", "rope_theta", "partial_rotary_factor", "factor",
      "original_max_position_embeddings", "attention_factor", "beta_fast", "beta_slow", "mscale",
      "mscale_all_dim", "truncate", "short_factor", "long_factor", "low_freq_factor",
      "high_freq_factor",
      "llama_4_scaling_beta",  // ministral.cc
      // Of the positions of pictures, and what other programs note.
      "mrope_section", "mrope_interleaved", "finetuned", "max_position_embeddings"};
  for (const auto& [field, value] : form.items()) {
    if (value.is_null()) continue;
    if (std::find(std::begin(kKnown), std::end(kKnown), field) != std::end(kKnown)) continue;
    Unsupported(absl::StrCat("'", key, "' has '", field,
                             "', which rankd does not read: it would turn heads in another way"));
  }
}

}  // namespace

RopeTraits ReadRope(const json& config, int head_dim, int context_length_max) {
  RopeTraits rope;
  rope.context_length_max = context_length_max;
  rope.theta = ReadNumber(config, "rope_theta", 10000.0);
  rope.interleaved = ReadBool(config, "rope_traditional", false);
  const bool is_new = FindField(config, "rope_parameters") != nullptr;
  const char* key = is_new ? "rope_parameters" : "rope_scaling";
  const json* found = FindField(config, key);
  if (found != nullptr && !found->is_object()) {
    Invalid(absl::StrCat("'", key, "' is not an object"));
  }
  if (found != nullptr) CheckFields(*found, key);
  double part = ReadNumber(config, "partial_rotary_factor", 1.0);
  if (found != nullptr) part = ReadNumber(*found, "partial_rotary_factor", part);
  rope.dims = static_cast<int>(head_dim * part);
  if (part > 1.0 || rope.dims % 2 != 0 || rope.dims == 0) {
    Invalid(absl::StrCat("'partial_rotary_factor' ", part, " of a head of ", head_dim,
                         " is no even number of dimensions"));
  }
  if (found == nullptr) return rope;
  rope.theta = ReadNumber(*found, "rope_theta", rope.theta);
  ReadScaling(config, *found, rope);
  if (rope.scaling == RopeScalingKind::kProportional) {
    rope.turned = rope.dims;
    rope.dims = head_dim;
  }
  return rope;
}

}  // namespace macrame::runtime::engine
