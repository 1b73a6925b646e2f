#include "runtime/serving/markup/tool_set.h"

#include <nlohmann/json.hpp>
#include <vector>

#include "runtime/serving/markup/json_text.h"
#include "runtime/serving/markup/python_text.h"

namespace macrame::runtime::markup {
namespace {

using nlohmann::json;

// Of references within a schema, and of schemas within schemas.
constexpr int kSchemaDepthMax = 8;
// Schemas that are looked at for one parameter: references may lead to the same ones for ever.
constexpr int kSchemaVisitsMax = 1000;

void AddKind(const std::string& name, ValueKinds& kinds) {
  kinds.is_known = true;
  if (name == "string" || name == "str") kinds.string = true;
  if (name == "number" || name == "integer" || name == "float" || name == "int") {
    kinds.number = true;
  }
  if (name == "boolean" || name == "bool") kinds.boolean = true;
  if (name == "null") kinds.null = true;
  if (name == "object" || name == "dict") kinds.object = true;
  if (name == "array" || name == "list") kinds.array = true;
}

void AddKindOfValue(const json& value, ValueKinds& kinds) {
  if (value.is_string()) AddKind("string", kinds);
  if (value.is_number()) AddKind("number", kinds);
  if (value.is_boolean()) AddKind("boolean", kinds);
  if (value.is_null()) AddKind("null", kinds);
  if (value.is_object()) AddKind("object", kinds);
  if (value.is_array()) AddKind("array", kinds);
}

// What a schema's "$ref" points at within `root`; null for none.
const json* Referred(const json& schema, const json& root) {
  const auto reference = schema.find("$ref");
  if (reference == schema.end() || !reference->is_string()) return nullptr;
  const std::string& path = reference->get_ref<const std::string&>();
  if (path.empty() || path[0] != '#') return nullptr;
  try {
    const json::json_pointer pointer(path.substr(1));
    return root.contains(pointer) ? &root[pointer] : nullptr;
  } catch (const json::exception&) {
    return nullptr;  // it points nowhere
  }
}

// What "type" says: a name or a list of names.
void AddNamedKinds(const json& type, ValueKinds& kinds) {
  if (type.is_string()) AddKind(type.get<std::string>(), kinds);
  if (!type.is_array()) return;
  for (const json& one : type) {
    if (one.is_string()) AddKind(one.get<std::string>(), kinds);
  }
}

// Of a schema that names no type.
void AddKindsOfValues(const json& schema, ValueKinds& kinds) {
  const auto values = schema.find("enum");
  if (values != schema.end() && values->is_array()) {
    for (const json& value : *values) AddKindOfValue(value, kinds);
  }
  if (schema.contains("const")) AddKindOfValue(schema["const"], kinds);
}

// `root`: where references point into.
void CollectKinds(const json& schema, const json& root, int depth, int& visits_left,
                  ValueKinds& kinds) {
  if (!schema.is_object() || depth > kSchemaDepthMax || visits_left <= 0) return;
  --visits_left;
  if (const auto type = schema.find("type"); type != schema.end()) {
    AddNamedKinds(*type, kinds);
  } else {
    AddKindsOfValues(schema, kinds);
  }
  for (const char* key : {"anyOf", "oneOf", "allOf"}) {
    const auto list = schema.find(key);
    if (list == schema.end() || !list->is_array()) continue;
    for (const json& one : *list) CollectKinds(one, root, depth + 1, visits_left, kinds);
  }
  const json* referred = Referred(schema, root);
  if (referred != nullptr) CollectKinds(*referred, root, depth + 1, visits_left, kinds);
}

// The schemas of a member, or of a list's items, of what `schema` describes.
void CollectSteps(const json& schema, const json& root, const std::string& step, int depth,
                  int& visits_left, std::vector<const json*>& found) {
  if (!schema.is_object() || depth > kSchemaDepthMax || visits_left <= 0) return;
  --visits_left;
  if (step == ToolSet::kItems) {
    const auto items = schema.find("items");
    if (items != schema.end()) found.push_back(&*items);
  } else {
    const auto properties = schema.find("properties");
    if (properties != schema.end() && properties->is_object() && properties->contains(step)) {
      found.push_back(&(*properties)[step]);
    }
  }
  for (const char* key : {"anyOf", "oneOf", "allOf"}) {
    const auto list = schema.find(key);
    if (list == schema.end() || !list->is_array()) continue;
    for (const json& one : *list) CollectSteps(one, root, step, depth + 1, visits_left, found);
  }
  const json* referred = Referred(schema, root);
  if (referred != nullptr) CollectSteps(*referred, root, step, depth + 1, visits_left, found);
}

const json& FunctionOf(const json& tool) {
  const auto function = tool.find("function");
  return function != tool.end() && function->is_object() ? *function : tool;
}

// Where no string is allowed, any other value is nearer to what was meant.
bool IsAllowed(const json& value, const ValueKinds& kinds) {
  if (!kinds.is_known || !kinds.string) return true;
  if (value.is_number()) return kinds.number;
  if (value.is_boolean()) return kinds.boolean;
  if (value.is_null()) return kinds.null;
  if (value.is_object()) return kinds.object;
  return kinds.array;
}

std::string_view Stripped(std::string_view text) {
  const size_t begin = text.find_first_not_of(" \t\r\n");
  if (begin == std::string_view::npos) return "";
  return text.substr(begin, text.find_last_not_of(" \t\r\n") - begin + 1);
}

}  // namespace

ToolSet::ToolSet(std::string_view tools_json) {
  json_ =
      std::make_shared<const json>(json::parse(tools_json, nullptr, /*allow_exceptions=*/false));
  const json& tools = *json_;
  if (!tools.is_array()) return;
  for (const json& tool : tools) {
    if (!tool.is_object()) continue;
    const json& function = FunctionOf(tool);
    const auto name = function.find("name");
    if (name == function.end() || !name->is_string()) continue;
    Parameters& parameters = tools_[name->get<std::string>()];
    const auto schema = function.find("parameters");
    if (schema == function.end() || !schema->is_object()) continue;
    const auto properties = schema->find("properties");
    if (properties == schema->end() || !properties->is_object()) continue;
    for (const auto& [key, property] : properties->items()) {
      int visits_left = kSchemaVisitsMax;
      CollectKinds(property, *schema, 0, visits_left, parameters[key]);
    }
  }
}

ValueKinds ToolSet::KindsOf(std::string_view tool, std::string_view parameter) const {
  const auto found = tools_.find(tool);
  if (found == tools_.end()) return {};
  const auto kinds = found->second.find(parameter);
  return kinds == found->second.end() ? ValueKinds() : kinds->second;
}

ValueKinds ToolSet::KindsAt(std::string_view tool, std::span<const std::string> path) const {
  ValueKinds kinds;
  if (json_ == nullptr || !json_->is_array()) return kinds;
  int visits_left = kSchemaVisitsMax;
  for (const json& one : *json_) {
    if (!one.is_object()) continue;
    const json& function = FunctionOf(one);
    const auto name = function.find("name");
    const auto schema = function.find("parameters");
    if (name == function.end() || *name != tool || schema == function.end()) continue;
    std::vector<const json*> at = {&*schema};
    for (const std::string& step : path) {
      std::vector<const json*> next;
      for (const json* from : at) CollectSteps(*from, *schema, step, 0, visits_left, next);
      at = std::move(next);
    }
    for (const json* from : at) CollectKinds(*from, *schema, 0, visits_left, kinds);
  }
  return kinds;
}

std::string ValueAsJson(std::string_view raw, const ValueKinds& kinds) {
  if (!kinds.OnlyString()) {
    const std::string_view text = Stripped(raw);
    json value = json::parse(text, nullptr, /*allow_exceptions=*/false);
    // Strings stand without quotes in these families: quotes are a part of the text.
    if (!value.is_discarded() && !value.is_string() && IsAllowed(value, kinds)) {
      return std::string(text);
    }
    if (const auto python = PythonAsJson(text)) {
      value = json::parse(*python, nullptr, /*allow_exceptions=*/false);
      if (!value.is_discarded() && !value.is_string() && IsAllowed(value, kinds)) return *python;
    }
  }
  return QuotedJson(raw);
}

}  // namespace macrame::runtime::markup
