#include "runtime/serving/structure/ignorable_keywords.h"

#include <algorithm>
#include <array>
#include <string>
#include <string_view>

namespace macrame::runtime::engine {
namespace {

using nlohmann::ordered_json;

// Formats of texts that the grammar library knows.
constexpr std::array<std::string_view, 10> kFormats = {
    "date-time", "time", "date", "duration", "email", "hostname", "ipv4", "ipv6", "uuid", "uri"};
// Keywords whose values are no schemas.
constexpr std::array<std::string_view, 4> kValues = {"enum", "const", "default", "examples"};
// Keywords whose values have schemas by name, so that a name in them is no keyword.
constexpr std::array<std::string_view, 4> kMaps = {"properties", "patternProperties", "$defs",
                                                   "definitions"};

template <typename Names>
bool IsOneOf(const Names& names, std::string_view name) {
  return std::find(names.begin(), names.end(), name) != names.end();
}

bool SaysNothing(std::string_view keyword, const ordered_json& value) {
  if (keyword == "format") {
    return value.is_string() && !IsOneOf(kFormats, value.get_ref<const std::string&>());
  }
  if (keyword == "propertyNames") {
    return value == true || value == ordered_json::object() ||
           value == ordered_json({{"type", "string"}});
  }
  return keyword == "uniqueItems" && value == false;
}

}  // namespace

void DropIgnorableKeywords(ordered_json* schema) {
  if (schema->is_array()) {
    for (ordered_json& one : *schema) DropIgnorableKeywords(&one);
    return;
  }
  if (!schema->is_object()) return;
  for (const char* keyword : {"format", "propertyNames", "uniqueItems"}) {
    const auto found = schema->find(keyword);
    if (found != schema->end() && SaysNothing(keyword, *found)) schema->erase(found);
  }
  for (auto& [name, value] : schema->items()) {
    if (IsOneOf(kMaps, name) && value.is_object()) {
      for (auto& [key, one] : value.items()) DropIgnorableKeywords(&one);
    } else if (!IsOneOf(kValues, name)) {
      DropIgnorableKeywords(&value);
    }
  }
}

}  // namespace macrame::runtime::engine
