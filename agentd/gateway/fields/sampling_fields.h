#pragma once

// The fields of a request that say how tokens are chosen, when an answer may end, and what is told
// of each token. OpenAI's names and ranges where it has them, vLLM's for the others. Pure.

#include <cstddef>
#include <cstdint>
#include <vector>

#include "absl/strings/string_view.h"
#include "agentd/gateway/fields/request_fields.h"
#include "macrame/v1/rank.pb.h"

namespace macrame::agentd {

inline constexpr size_t kLogitBiasesMax = 1024;
inline constexpr double kLogitBiasMax = 100;  // and -100
inline constexpr double kPenaltyMax = 2;      // and -2
inline constexpr double kRepetitionPenaltyMin = 0.01;
inline constexpr double kRepetitionPenaltyMax = 100;
inline constexpr size_t kStopTokenIdsMax = 128;
inline constexpr int64_t kTopLogprobsMax = 20;
inline constexpr int64_t kChoicesMax = 8;

// temperature, top_p, top_k, min_p, typical_p, seed, logit_bias and the penalties; min_tokens (to
// be called once max_tokens is set), stop_token_ids, ignore_eos.
void ReadSamplingFields(RequestFields& fields, v1::GenerateRequest& request);
// logprobs and top_logprobs of a chat; `logprobs` of a text prompt, a number.
void ReadLogprobs(RequestFields& fields, v1::GenerateRequest& request);
void ReadTextLogprobs(RequestFields& fields, v1::GenerateRequest& request);
// `n`: how many answers are wanted.
uint32_t ReadChoices(RequestFields& fields);
// Whether those above read this field.
bool IsSamplingField(absl::string_view name);

// One request for each answer. Only the seed differs: the first has the one that was asked for, the
// others numbers that follow from it; without one, each is given its own by the entry rank. They go
// out together, so the prefix cache computes their prompt once.
std::vector<v1::GenerateRequest> RequestsOfChoices(const v1::GenerateRequest& request,
                                                   uint32_t choices);

}  // namespace macrame::agentd
