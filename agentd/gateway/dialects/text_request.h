#pragma once

// The body of POST /v1/completions, checked field by field and turned into GenerateRequests:
// prompts that the model continues as they are, without a chat template. Pure.

#include <cstddef>
#include <string>
#include <variant>
#include <vector>

#include "absl/strings/string_view.h"
#include "agentd/gateway/base/api_error.h"
#include "agentd/gateway/fields/answer_fields.h"
#include "agentd/gateway/fields/bounded_json.h"
#include "agentd/gateway/fields/prompt_fields.h"
#include "macrame/v1/rank.pb.h"

namespace macrame::agentd {

inline constexpr size_t kAnswersMax = 32;  // prompts times `n`
// What OpenAI gives a request that names no max_tokens. -1 is no limit.
inline constexpr uint32_t kTextTokensDefault = 16;

struct TextRequest : AnswerRequest {
  std::vector<Prompt> prompts{};
  bool echo = false;  // each answer begins with its prompt
};

std::variant<TextRequest, ApiError> ParseTextRequest(absl::string_view body, size_t json_depth_max);
// Of a body that was parsed already: an object.
std::variant<TextRequest, ApiError> ReadTextRequest(const Json& body);

// One request for each answer: the choices of the first prompt, then those of the second, ….
std::vector<v1::GenerateRequest> RequestsOfPrompts(const TextRequest& request);

}  // namespace macrame::agentd
