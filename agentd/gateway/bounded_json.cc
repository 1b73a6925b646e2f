#include "agentd/gateway/bounded_json.h"

#include <limits>
#include <vector>

#include "absl/strings/str_cat.h"

namespace macrame::agentd {

JsonShape ShapeOfJson(absl::string_view text, size_t depth_max) {
  std::vector<size_t> members;  // of each object that is open; arrays have none
  size_t squares = 0, values = 0;
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
      if (++values > kJsonValuesMax) return JsonShape::kTooManyValues;
    } else if (c == '{' || c == '[') {
      if (members.size() == depth_max) return JsonShape::kTooDeep;
      if (++values > kJsonValuesMax) return JsonShape::kTooManyValues;
      members.push_back(0);
    } else if ((c == '}' || c == ']') && !members.empty()) {
      members.pop_back();
    } else if (c == ':' && !members.empty()) {
      squares += 2 * members.back()++ + 1;
      if (squares > kSquaredMembersMax) return JsonShape::kTooManyMembers;
    }
  }
  return JsonShape::kFine;
}

bool HasLongerList(absl::string_view text, size_t depth_max, size_t entries_max) {
  constexpr size_t kNoList = std::numeric_limits<size_t>::max();
  std::vector<size_t> commas;  // of each list or object that is open
  bool is_string = false;
  for (size_t i = 0; i < text.size(); ++i) {
    const char c = text[i];
    if (is_string) {
      if (c == '\\') ++i;
      is_string = c != '"';
    } else if (c == '"') {
      is_string = true;
    } else if (c == '[' || c == '{') {
      if (commas.size() == depth_max) return false;
      commas.push_back(c == '[' ? 0 : kNoList);
    } else if ((c == ']' || c == '}') && !commas.empty()) {
      commas.pop_back();
    } else if (c == ',' && !commas.empty() && commas.back() != kNoList) {
      if (++commas.back() >= entries_max) return true;
    }
  }
  return false;
}

std::optional<ApiError> ParseBoundedJson(absl::string_view text, size_t depth_max, Json* out) {
  switch (ShapeOfJson(text, depth_max)) {
    case JsonShape::kFine:
      break;
    case JsonShape::kTooDeep:
      return BadRequest(absl::StrCat("The JSON body is nested more than ", depth_max, " deep."), "",
                        "json_too_deep");
    case JsonShape::kTooManyMembers:
      return BadRequest(
          "The JSON body's objects have too many members: one may have 4,096, several fewer each.",
          "", "json_too_large");
    case JsonShape::kTooManyValues:
      return BadRequest(absl::StrCat("The JSON body has more than ", kJsonValuesMax,
                                     " objects, arrays and strings. Send less in one request."),
                        "", "json_too_large");
  }
  try {
    *out = Json::parse(text);
  } catch (const Json::parse_error& error) {
    return BadRequest(
        absl::StrCat("The body is not valid JSON: see byte ", error.byte, " of ", text.size(), "."),
        "", "invalid_json");
  } catch (const Json::exception&) {
    return BadRequest("The JSON body holds a number that is too large.", "", "invalid_json");
  }
  return std::nullopt;
}

std::optional<ApiError> ParseJsonObject(absl::string_view text, size_t depth_max, Json* out) {
  if (auto error = ParseBoundedJson(text, depth_max, out)) return error;
  if (out->is_object()) return std::nullopt;
  return BadRequest("The body must be a JSON object.", "", "invalid_type");
}

}  // namespace macrame::agentd
