#include "agentd/gateway/fields/bounded_json.h"

#include <charconv>
#include <cstdint>
#include <limits>
#include <string>
#include <system_error>
#include <vector>

#include "absl/strings/str_cat.h"

namespace macrame::agentd {
namespace {

constexpr size_t kUnitBytes = 6;  // of an escape such as \u00e9

// The UTF-16 unit of the escape that begins at `at`; none: no such escape is there.
std::optional<uint16_t> EscapedUnit(absl::string_view text, size_t at) {
  if (at > text.size() || text.size() - at < kUnitBytes) return std::nullopt;
  if (text[at] != '\\' || text[at + 1] != 'u') return std::nullopt;
  const char* end = text.data() + at + kUnitBytes;
  uint16_t unit = 0;
  const auto read = std::from_chars(end - 4, end, unit, 16);
  if (read.ec != std::errc() || read.ptr != end) return std::nullopt;
  return unit;
}

bool IsFirstHalf(uint16_t unit) { return unit >= 0xd800 && unit <= 0xdbff; }
bool IsSecondHalf(uint16_t unit) { return unit >= 0xdc00 && unit <= 0xdfff; }

// Replaces escaped halves of surrogate pairs in strings by U+FFFD, which has as many bytes. Whether
// there were any.
bool ReplaceHalfPairs(std::string* text) {
  bool is_string = false, is_replaced = false;
  for (size_t i = 0; i < text->size();) {
    const char c = (*text)[i];
    if (!is_string || c != '\\') {
      if (c == '"') is_string = !is_string;
      ++i;
      continue;
    }
    const auto unit = EscapedUnit(*text, i);
    if (!unit.has_value()) {
      i += 2;
      continue;
    }
    const auto next = EscapedUnit(*text, i + kUnitBytes);
    if (IsFirstHalf(*unit) && next.has_value() && IsSecondHalf(*next)) {
      i += 2 * kUnitBytes;
      continue;
    }
    if (IsFirstHalf(*unit) || IsSecondHalf(*unit)) {
      text->replace(i, kUnitBytes, "\\ufffd");
      is_replaced = true;
    }
    i += kUnitBytes;
  }
  return is_replaced;
}

std::optional<ApiError> ParseJson(absl::string_view text, Json* out) {
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

}  // namespace

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
  auto error = ParseJson(text, out);
  if (!error.has_value()) return std::nullopt;
  // Agents in JavaScript cut text by UTF-16 units, and so within a pair.
  std::string whole(text);
  return ReplaceHalfPairs(&whole) ? ParseJson(whole, out) : error;
}

std::optional<ApiError> ParseJsonObject(absl::string_view text, size_t depth_max, Json* out) {
  if (auto error = ParseBoundedJson(text, depth_max, out)) return error;
  if (out->is_object()) return std::nullopt;
  return BadRequest("The body must be a JSON object.", "", "invalid_type");
}

}  // namespace macrame::agentd
