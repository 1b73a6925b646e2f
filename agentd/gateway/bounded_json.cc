#include "agentd/gateway/bounded_json.h"

#include <algorithm>

#include "absl/strings/str_cat.h"

namespace macrame::agentd {
namespace {

size_t NestingDepth(absl::string_view text) {
  size_t depth = 0, deepest = 0;
  bool in_string = false;
  for (size_t i = 0; i < text.size(); ++i) {
    const char c = text[i];
    if (in_string) {
      if (c == '\\') {
        ++i;
      } else if (c == '"') {
        in_string = false;
      }
    } else if (c == '"') {
      in_string = true;
    } else if (c == '{' || c == '[') {
      deepest = std::max(deepest, ++depth);
    } else if ((c == '}' || c == ']') && depth > 0) {
      --depth;
    }
  }
  return deepest;
}

}  // namespace

bool IsNestedWithin(absl::string_view text, size_t depth_max) {
  return NestingDepth(text) <= depth_max;
}

std::optional<ApiError> ParseBoundedJson(absl::string_view text, size_t depth_max,
                                         nlohmann::json* out) {
  if (!IsNestedWithin(text, depth_max)) {
    return BadRequest(absl::StrCat("The JSON body is nested more than ", depth_max, " deep."), "",
                      "json_too_deep");
  }
  try {
    *out = nlohmann::json::parse(text);
  } catch (const nlohmann::json::parse_error& error) {
    return BadRequest(
        absl::StrCat("The body is not valid JSON: see byte ", error.byte, " of ", text.size(), "."),
        "", "invalid_json");
  } catch (const nlohmann::json::exception&) {
    return BadRequest("The JSON body holds a number that is too large.", "", "invalid_json");
  }
  return std::nullopt;
}

}  // namespace macrame::agentd
