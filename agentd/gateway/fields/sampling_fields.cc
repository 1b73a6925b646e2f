#include "agentd/gateway/fields/sampling_fields.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <string>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"

namespace macrame::agentd {
namespace {

constexpr int64_t kInt32Max = std::numeric_limits<int32_t>::max();

constexpr std::array<absl::string_view, 16> kSamplingNames = {"temperature",
                                                              "top_p",
                                                              "top_k",
                                                              "min_p",
                                                              "typical_p",
                                                              "seed",
                                                              "logit_bias",
                                                              "min_tokens",
                                                              "stop_token_ids",
                                                              "ignore_eos",
                                                              "presence_penalty",
                                                              "frequency_penalty",
                                                              "repetition_penalty",
                                                              "logprobs",
                                                              "top_logprobs",
                                                              "n"};

void ReadSeed(RequestFields& fields, v1::Sampling& sampling) {
  const Json* given = fields.Find("seed");
  if (given == nullptr) return;
  const Json seed = WholeNumber(*given);
  if (!seed.is_number_integer()) {
    fields.Fail("seed", "invalid_type", "'seed' must be an integer of at most 64 bits.");
    return;
  }
  sampling.set_seed(seed.is_number_unsigned() ? seed.get<uint64_t>()
                                              : static_cast<uint64_t>(seed.get<int64_t>()));
}

void ReadPenalties(RequestFields& fields, v1::Sampling& sampling) {
  if (const auto value = fields.Decimal("presence_penalty", -kPenaltyMax, kPenaltyMax)) {
    sampling.set_presence_penalty(*value);
  }
  if (const auto value = fields.Decimal("frequency_penalty", -kPenaltyMax, kPenaltyMax)) {
    sampling.set_frequency_penalty(*value);
  }
  if (const auto value =
          fields.Decimal("repetition_penalty", kRepetitionPenaltyMin, kRepetitionPenaltyMax)) {
    sampling.set_repetition_penalty(*value);
  }
}

// Token ids are object keys, so text.
void ReadBiases(RequestFields& fields, v1::Sampling& sampling) {
  constexpr absl::string_view kName = "logit_bias";
  const Json* biases = fields.Find(kName);
  if (biases == nullptr) return;
  if (!biases->is_object()) {
    fields.Fail(kName, "invalid_type", "'logit_bias' must be an object of token ids.");
    return;
  }
  if (biases->size() > kLogitBiasesMax) {
    fields.Fail(kName, "object_above_max_properties",
                absl::StrCat("'logit_bias' may have at most ", kLogitBiasesMax, " entries."));
    return;
  }
  for (const auto& [key, bias] : biases->items()) {
    int32_t token = 0;
    if (!absl::SimpleAtoi(key, &token) || token < 0 || absl::StrCat(token) != key) {
      fields.Fail(
          kName, "invalid_value",
          absl::StrCat("'logit_bias' must have token ids as keys, not '", key.substr(0, 64), "'."));
      return;
    }
    if (!bias.is_number() || !(std::fabs(bias.get<double>()) <= kLogitBiasMax)) {
      fields.Fail(kName, "invalid_value",
                  absl::StrCat("'logit_bias' of token ", token, " must be a number from ",
                               -kLogitBiasMax, " to ", kLogitBiasMax, "."));
      return;
    }
    (*sampling.mutable_logit_bias())[token] = bias.get<float>();
  }
}

void ReadStopTokens(RequestFields& fields, v1::GenerateRequest& request) {
  constexpr absl::string_view kName = "stop_token_ids";
  const Json* tokens = fields.Find(kName);
  if (tokens == nullptr) return;
  if (!tokens->is_array()) {
    fields.Fail(kName, "invalid_type", "'stop_token_ids' must be a list of token ids.");
    return;
  }
  if (tokens->size() > kStopTokenIdsMax) {
    fields.Fail(kName, "array_above_max_length",
                absl::StrCat("'stop_token_ids' may hold at most ", kStopTokenIdsMax, " ids."));
    return;
  }
  for (size_t i = 0; i < tokens->size(); ++i) {
    const Json token = WholeNumber((*tokens)[i]);
    // Negative numbers become large ones.
    if (!token.is_number_integer() || token.get<uint64_t>() > uint64_t{kInt32Max}) {
      fields.Fail(absl::StrCat(kName, "[", i, "]"), "invalid_value",
                  absl::StrCat("'", kName, "[", i, "]' must be a token id."));
      return;
    }
    request.add_stop_token_ids(token.get<int32_t>());
  }
}

void ReadEnds(RequestFields& fields, v1::GenerateRequest& request) {
  ReadStopTokens(fields, request);
  if (fields.Boolean("ignore_eos")) request.set_ignore_eos(true);
  const auto least = fields.Integer("min_tokens", 0, kInt32Max);
  if (!least.has_value()) return;
  if (request.max_tokens() > 0 && *least > int64_t{request.max_tokens()}) {
    fields.Fail("min_tokens", "invalid_value", "'min_tokens' must not be above 'max_tokens'.");
    return;
  }
  request.set_min_tokens(static_cast<uint32_t>(*least));
}

// SplitMix64's finalizer. Not just a sum: the sampler counts a seed up with the position, so two
// seeds that are near would give one choice the chances of another, shifted.
uint64_t SeedOfChoice(uint64_t seed, uint32_t choice) {
  if (choice == 0) return seed;
  uint64_t z = seed ^ (0xd1b54a32d192ed03ULL * choice);
  z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9ULL;
  z = (z ^ (z >> 27)) * 0x94d049bb133111ebULL;
  return z ^ (z >> 31);
}

}  // namespace

void ReadSamplingFields(RequestFields& fields, v1::GenerateRequest& request) {
  v1::Sampling& sampling = *request.mutable_sampling();
  if (const auto value = fields.Decimal("temperature", 0, 2)) sampling.set_temperature(*value);
  if (const auto value = fields.Decimal("top_p", 0, 1)) sampling.set_top_p(*value);
  if (const auto value = fields.Decimal("min_p", 0, 1)) sampling.set_min_p(*value);
  if (const auto value = fields.Decimal("typical_p", 0, 1)) sampling.set_typical_p(*value);
  // -1 is how other servers say "all".
  if (const auto value = fields.Integer("top_k", -1, kInt32Max)) {
    sampling.set_top_k(*value < 0 ? 0 : static_cast<uint32_t>(*value));
  }
  ReadSeed(fields, sampling);
  ReadPenalties(fields, sampling);
  ReadBiases(fields, sampling);
  ReadEnds(fields, request);
}

void ReadLogprobs(RequestFields& fields, v1::GenerateRequest& request) {
  const bool wanted = fields.Boolean("logprobs");
  const auto top = fields.Integer("top_logprobs", 0, kTopLogprobsMax);
  if (!wanted && top.value_or(0) > 0) {
    fields.Fail("top_logprobs", "invalid_value", "'top_logprobs' needs 'logprobs': true.");
  } else if (wanted) {
    request.set_top_logprobs(static_cast<uint32_t>(top.value_or(0)));
  }
}

void ReadTextLogprobs(RequestFields& fields, v1::GenerateRequest& request) {
  const auto top = fields.Integer("logprobs", 0, kTopLogprobsMax);
  if (top.has_value()) request.set_top_logprobs(static_cast<uint32_t>(*top));
}

uint32_t ReadChoices(RequestFields& fields) {
  return static_cast<uint32_t>(fields.Integer("n", 1, kChoicesMax).value_or(1));
}

bool IsSamplingField(absl::string_view name) {
  return std::find(kSamplingNames.begin(), kSamplingNames.end(), name) != kSamplingNames.end();
}

std::vector<v1::GenerateRequest> RequestsOfChoices(const v1::GenerateRequest& request,
                                                   uint32_t choices) {
  std::vector<v1::GenerateRequest> requests(choices, request);
  for (uint32_t choice = 1; choice < choices; ++choice) {
    requests[choice].set_request_id(absl::StrCat(request.request_id(), "-", choice));
    if (!request.sampling().has_seed()) continue;
    requests[choice].mutable_sampling()->set_seed(SeedOfChoice(request.sampling().seed(), choice));
  }
  return requests;
}

}  // namespace macrame::agentd
