#include "tests/unit/runtime/serving/structure/random_schema.h"

#include <algorithm>
#include <random>
#include <string>

namespace macrame::runtime::engine {
namespace {

using nlohmann::json;
using nlohmann::ordered_json;

class SchemaMaker {
 public:
  explicit SchemaMaker(uint64_t seed) : random_(seed) {}

  ordered_json Make(int depth) {
    switch (Roll(depth > 0 ? 9 : 6)) {
      case 0:
        return Text();
      case 1:
        return Integer();
      case 2:
        return {{"type", "boolean"}};
      case 3:
        return Enum();
      case 4:
        return {{"type", "number"}, {"minimum", -1}, {"maximum", 1}};
      case 5:
        return {{"type", {"integer", "null"}}, {"minimum", 0}, {"maximum", 9}};
      case 6:
        return List(depth);
      case 7:
        return {{"anyOf", {Make(depth - 1), Make(depth - 1)}}};
      default:
        return Object(depth);
    }
  }

 private:
  uint64_t Roll(uint64_t bound) { return random_() % bound; }

  ordered_json Text() {
    ordered_json schema = {{"type", "string"}, {"maxLength", Roll(12)}};
    if (Roll(3) == 0) schema["minLength"] = Roll(schema["maxLength"].get<uint64_t>() + 1);
    if (Roll(4) == 0) schema = {{"type", "string"}, {"pattern", "^[a-c]{2,4}-[0-9]+$"}};
    return schema;
  }

  ordered_json Integer() {
    const auto least = static_cast<int64_t>(Roll(2000)) - 1000;
    return {{"type", "integer"},
            {"minimum", least},
            {"maximum", least + static_cast<int64_t>(Roll(500))}};
  }

  ordered_json Enum() {
    ordered_json values = {
        1, "zwei", nullptr, true, "a \"quoted\" one", "ä", ordered_json::array()};
    std::shuffle(values.begin(), values.end(), random_);
    values.erase(values.begin() + 1 + static_cast<int64_t>(Roll(6)), values.end());
    return Roll(3) > 0 ? ordered_json{{"enum", values}} : ordered_json{{"const", values[0]}};
  }

  ordered_json List(int depth) {
    const uint64_t least = Roll(3);
    return {{"type", "array"},
            {"items", Make(depth - 1)},
            {"minItems", least},
            {"maxItems", least + Roll(3)}};
  }

  ordered_json Object(int depth) {
    ordered_json properties = ordered_json::object(), required = ordered_json::array();
    const uint64_t count = 1 + Roll(4);
    for (uint64_t i = 0; i < count; ++i) {
      const std::string name =
          std::string(1, static_cast<char>('z' - Roll(26))) + (Roll(2) == 0 ? " name" : "");
      properties[name] = Make(depth - 1);
    }
    for (const auto& [name, schema] : properties.items()) {
      if (Roll(3) > 0) required.push_back(name);
    }
    return {{"type", "object"},
            {"properties", properties},
            {"required", required},
            {"additionalProperties", false}};
  }

  std::mt19937_64 random_;
};

size_t CharactersOf(const std::string& text) {
  return static_cast<size_t>(std::count_if(text.begin(), text.end(), [](char c) {
    return (static_cast<unsigned char>(c) & 0xC0U) != 0x80U;
  }));
}

bool IsOfType(const std::string& type, const json& value) {
  if (type == "string") return value.is_string();
  if (type == "integer") return value.is_number_integer();
  if (type == "number") return value.is_number();
  if (type == "boolean") return value.is_boolean();
  if (type == "null") return value.is_null();
  if (type == "array") return value.is_array();
  return type == "object" && value.is_object();
}

bool HasType(const ordered_json& type, const json& value) {
  if (type.is_string()) return IsOfType(type, value);
  return std::any_of(type.begin(), type.end(),
                     [&](const ordered_json& one) { return IsOfType(one, value); });
}

bool HasRange(const ordered_json& schema, const json& value) {
  if (value.is_number()) {
    return value >= json(schema.value("minimum", -1e300)) &&
           value <= json(schema.value("maximum", 1e300));
  }
  if (value.is_string()) {
    const size_t size = CharactersOf(value);
    return size >= schema.value("minLength", size_t{0}) &&
           size <= schema.value("maxLength", size_t{1000});
  }
  if (value.is_array()) {
    return value.size() >= schema.value("minItems", size_t{0}) &&
           value.size() <= schema.value("maxItems", size_t{1000});
  }
  return true;
}

bool HasMembers(const ordered_json& schema, const json& value) {
  for (const ordered_json& name : schema["required"]) {
    if (!value.contains(name.get<std::string>())) return false;
  }
  for (const auto& [name, member] : value.items()) {
    const auto found = schema["properties"].find(name);
    if (found == schema["properties"].end() || !Validates(*found, member)) return false;
  }
  return true;
}

}  // namespace

ordered_json RandomSchema(uint64_t seed, int depth) { return SchemaMaker(seed).Make(depth); }

bool Validates(const ordered_json& schema, const json& value) {
  const auto is_value = [&](const ordered_json& one) { return json(one) == value; };
  const auto validates = [&](const ordered_json& one) { return Validates(one, value); };
  if (schema.contains("const")) return is_value(schema["const"]);
  if (schema.contains("enum")) {
    return std::any_of(schema["enum"].begin(), schema["enum"].end(), is_value);
  }
  if (schema.contains("anyOf")) {
    return std::any_of(schema["anyOf"].begin(), schema["anyOf"].end(), validates);
  }
  if (!HasType(schema["type"], value) || !HasRange(schema, value)) return false;
  if (value.is_array()) {
    return std::all_of(value.begin(), value.end(),
                       [&](const json& item) { return Validates(schema["items"], item); });
  }
  return !value.is_object() || HasMembers(schema, value);
}

}  // namespace macrame::runtime::engine
