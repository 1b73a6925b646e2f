#pragma once

// JSON from clients: parsed only when it is not nested too deeply, with errors that say where.
// Pure.

#include <cstddef>
#include <nlohmann/json.hpp>
#include <optional>

#include "absl/strings/string_view.h"
#include "agentd/gateway/api_error.h"

namespace macrame::agentd {

// Whether brackets outside of strings stand at most so deep; malformed text may be misjudged, which
// its parser refuses anyway. Writing a value takes the stack that its depth needs.
bool IsNestedWithin(absl::string_view text, size_t depth_max);

// Fills `out`, or says (400) what is wrong: nesting above `depth_max`, malformed text or numbers
// that do not fit a double, bytes that are not UTF-8. The size is the caller's to limit.
std::optional<ApiError> ParseBoundedJson(absl::string_view text, size_t depth_max,
                                         nlohmann::json* out);

}  // namespace macrame::agentd
