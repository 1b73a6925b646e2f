#pragma once

// What a chat request says of tools and of reasoning. Pure.

#include <array>
#include <cstddef>
#include <optional>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"
#include "agentd/gateway/base/api_error.h"
#include "agentd/gateway/fields/answer_fields.h"
#include "agentd/gateway/fields/bounded_json.h"
#include "macrame/v1/rank.pb.h"

namespace macrame::agentd {

inline constexpr size_t kToolsMax = 512;
inline constexpr size_t kToolNameBytesMax = 128;

// The fields that these functions read.
inline constexpr std::array<absl::string_view, 12> kToolFields = {"tools",
                                                                  "tool_choice",
                                                                  "parallel_tool_calls",
                                                                  "reasoning",
                                                                  "thinking",
                                                                  "thinking_budget",
                                                                  "include_reasoning",
                                                                  "thinking_token_budget",
                                                                  "thinking_budget_tokens",
                                                                  "max_reasoning_tokens",
                                                                  "reasoning_effort",
                                                                  "enable_thinking"};

// `tools`, `tool_choice` and `parallel_tool_calls` of `body`. The tools go to the model in the
// order, and with their members in the order, in which the client wrote them. Calls that the model
// makes by itself are held to schemas in some families only: `by_model` names "tools.strict" then.
std::optional<ApiError> ReadTools(const Json& body, AnswerRequest& request);

// The switch and the budget of reasoning, in the words of the servers that clients know:
// `reasoning` {enabled, effort, max_tokens, exclude}, `thinking` {type, budget_tokens},
// `enable_thinking`, `thinking_budget`, `thinking_token_budget`, `thinking_budget_tokens`,
// `max_reasoning_tokens`, `reasoning_effort`, `chat_template_kwargs.enable_thinking`,
// `include_reasoning`. `excludes`: the client wants none of it.
std::optional<ApiError> ReadReasoning(const Json& body, v1::GenerateRequest& request,
                                      bool* excludes);

}  // namespace macrame::agentd
