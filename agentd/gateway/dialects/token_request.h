#pragma once

// The bodies of vLLM's POST /tokenize and POST /detokenize. Pure.

#include <cstddef>
#include <variant>

#include "absl/strings/string_view.h"
#include "agentd/gateway/base/api_error.h"
#include "agentd/gateway/dialects/chat_request.h"

namespace macrame::agentd {

inline constexpr size_t kTokensMax = 1 << 20;  // of one /detokenize

// `model` with `prompt` (and `add_special_tokens`, true), or with `messages`, `tools` and what else
// of a chat request reaches the template (and `add_generation_prompt`, true).
std::variant<ChatRequest, ApiError> ParseTokenizeRequest(absl::string_view body,
                                                         size_t json_depth_max);
// `model` and `tokens`; 413 for more of them than kTokensMax.
std::variant<ChatRequest, ApiError> ParseDetokenizeRequest(absl::string_view body,
                                                           size_t json_depth_max);

}  // namespace macrame::agentd
