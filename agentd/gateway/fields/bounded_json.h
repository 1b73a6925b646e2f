#pragma once

// JSON from clients: parsed only when it is not nested too deeply and none of its objects is too
// large, with errors that say where. Pure.

#include <cstddef>
#include <nlohmann/json.hpp>
#include <optional>

#include "absl/strings/string_view.h"
#include "agentd/gateway/base/api_error.h"

namespace macrame::agentd {

// Members keep their order: schemas and arguments are followed in it.
using Json = nlohmann::ordered_json;

enum class JsonShape { kFine, kTooDeep, kTooManyMembers, kTooManyValues };

// Objects that keep their members' order look each member up among those before it, so an object
// of n members takes n²/2 comparisons. This bounds the sum of n² over a text's objects: one
// object of 4,096 members, or thousands of small ones, and some 10 ms at most.
inline constexpr size_t kSquaredMembersMax = size_t{1} << 24;

// Objects, arrays and strings (names of members too) in one text. Each takes up to a hundred bytes
// where "{}," takes three, so a body of 4 MiB could take more than a hundred. Numbers are not
// counted: a million ids are a proper request, and take 16 bytes each.
inline constexpr size_t kJsonValuesMax = 400'000;

// How deep brackets stand outside of strings, how many members objects have, and how many values
// there are; malformed text may be misjudged, which its parser refuses anyway. Writing a value
// takes the stack that its depth needs.
JsonShape ShapeOfJson(absl::string_view text, size_t depth_max);

// Whether a list in the text has more than `entries_max` entries, counted without reading them.
// What stands deeper than `depth_max` is left to its parser to refuse, as malformed text is.
bool HasLongerList(absl::string_view text, size_t depth_max, size_t entries_max);

// Fills `out`, or says (400) what is wrong: nesting above `depth_max`, too many members or values,
// malformed text or numbers that do not fit a double, bytes that are not UTF-8. An escaped half of
// a surrogate pair (\ud83d alone) is read as U+FFFD. The size is the caller's to limit.
std::optional<ApiError> ParseBoundedJson(absl::string_view text, size_t depth_max, Json* out);
// Likewise; what is no object is wrong, too.
std::optional<ApiError> ParseJsonObject(absl::string_view text, size_t depth_max, Json* out);

}  // namespace macrame::agentd
