#pragma once

// What a stored response was asked, as OpenAI's API lists it. Pure.

#include <string>
#include <variant>

#include "absl/strings/string_view.h"
#include "agentd/gateway/base/api_error.h"

namespace macrame::agentd {

// The items of the response `id`: those of its conversation up to its answer. `messages`: the
// stored chat with the answer, a JSON list. `query`: `order` (newest first unless it is "asc"),
// `limit` (1 to 100, 20) and `after` (an item's id).
std::variant<std::string, ApiError> InputItemsBody(const std::string& id,
                                                   const std::string& messages,
                                                   absl::string_view query);

}  // namespace macrame::agentd
