#pragma once

// The tools of one request: their names, and what their parameters may be. Some families write a
// parameter's value without saying its type; the schema says whether 12 is a number or a text.

#include <cstddef>
#include <map>
#include <memory>
#include <nlohmann/json_fwd.hpp>
#include <span>
#include <string>
#include <string_view>

namespace macrame::runtime::markup {

// Kinds of JSON values that a schema allows.
struct ValueKinds {
  bool is_known = false;  // the schema says something
  bool string = false;
  bool number = false;
  bool boolean = false;
  bool null = false;
  bool object = false;
  bool array = false;

  bool OnlyString() const { return string && !number && !boolean && !null && !object && !array; }
};

class ToolSet {
 public:
  ToolSet() = default;
  // A JSON list as OpenAI's `tools`. What is malformed in it counts as not there.
  explicit ToolSet(std::string_view tools_json);

  bool empty() const { return tools_.empty(); }
  bool Has(std::string_view name) const { return tools_.find(name) != tools_.end(); }
  // Not known for tools and parameters that it has not.
  ValueKinds KindsOf(std::string_view tool, std::string_view parameter) const;
  // Of a value within a parameter: the parameter's name, then names of members, or kItems for what
  // a list holds.
  static constexpr std::string_view kItems = "[]";
  ValueKinds KindsAt(std::string_view tool, std::span<const std::string> path) const;

 private:
  using Parameters = std::map<std::string, ValueKinds, std::less<>>;
  std::map<std::string, Parameters, std::less<>> tools_;
  std::shared_ptr<const nlohmann::json> json_;  // as it was given
};

// What a model wrote as a parameter's value, as JSON: the JSON that it is, or Python's writing of
// one, where the schema allows its kind; else a string.
std::string ValueAsJson(std::string_view raw, const ValueKinds& kinds);

}  // namespace macrame::runtime::markup
