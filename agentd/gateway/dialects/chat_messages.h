#pragma once

// The `messages` of a chat request: roles, names, text, past tool calls and their results. Content
// may be a string or a list of text parts, which are joined as they stand. Pure.

#include <optional>
#include <string>
#include <vector>

#include "agentd/gateway/base/api_error.h"
#include "agentd/gateway/fields/bounded_json.h"
#include "macrame/v1/rank.pb.h"

namespace macrame::agentd {

// Adds to `request.messages`, or says (400, with `param` such as "messages[3].content[0].type")
// what is wrong. "developer" becomes "system": chat templates know only that word.
//
// Text parts are `text`, `input_text`, `output_text` and `refusal`. Before the last answer, a part
// of another type is told as its `text`, where it has one, or as a sentence; what can't be told is
// left out. All of these are named in `ignored` by their types.
std::optional<ApiError> ReadMessages(const Json& body, v1::GenerateRequest& request,
                                     std::vector<std::string>& ignored);

}  // namespace macrame::agentd
