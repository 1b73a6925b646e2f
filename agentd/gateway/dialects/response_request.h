#pragma once

// The body of OpenAI's POST /v1/responses as a chat. Pure.
//
// `input` is text or items: messages, function_call, function_call_output and reasoning items
// become a chat's messages, behind those of `previous_response_id` where that is named. Functions
// of a namespace are a chat's tools under both names. Tools of OpenAI's servers, images, files,
// `background` and `conversation` are refused by name.

#include <cstddef>
#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>
#include <variant>

#include "absl/strings/string_view.h"
#include "agentd/gateway/base/api_error.h"
#include "agentd/gateway/dialects/chat_request.h"

namespace macrame::agentd {

// Namespace and name of functions, by the name that the chat's tool has.
using NamespacedTools = std::map<std::string, std::pair<std::string, std::string>>;

struct ResponseRequest {
  ChatRequest chat;
  nlohmann::ordered_json echo;      // what of the request an answer repeats
  nlohmann::ordered_json messages;  // the chat without `instructions`, which don't stay
  bool is_kept = true;              // `store`, where anything is
  NamespacedTools namespaced;
};

// The id that the body names; empty: none. Malformed bodies name none, which their reader says.
std::string PreviousResponseOf(absl::string_view body, size_t json_depth_max);

// `before`: the chat up to and with the previous response, a JSON list; empty: none. `may_store`:
// false where nothing of whoever asks is stored; asking for it is then refused.
std::variant<ResponseRequest, ApiError> ParseResponseRequest(absl::string_view body,
                                                             size_t json_depth_max,
                                                             const std::string& before,
                                                             bool may_store = true);

}  // namespace macrame::agentd
