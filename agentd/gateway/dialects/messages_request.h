#pragma once

// The bodies of Anthropic's POST /v1/messages and /v1/messages/count_tokens as a chat. Pure.
//
// System prompts, thinking, tool_use and tool_result blocks become a chat's messages; `thinking`,
// `tool_choice` and `output_config` what a chat says with other words. Images, documents that are
// no text, server tools and a prefilled answer are refused by name. `cache_control` is taken
// everywhere and without effect: prefixes are cached anyway.

#include <cstddef>
#include <variant>

#include "absl/strings/string_view.h"
#include "agentd/gateway/base/api_error.h"
#include "agentd/gateway/dialects/chat_request.h"

namespace macrame::agentd {

std::variant<ChatRequest, ApiError> ParseMessagesRequest(absl::string_view body,
                                                         size_t json_depth_max);
// Asks for the number of tokens instead: `max_tokens` may be missing.
std::variant<ChatRequest, ApiError> ParseCountTokensRequest(absl::string_view body,
                                                            size_t json_depth_max);

}  // namespace macrame::agentd
