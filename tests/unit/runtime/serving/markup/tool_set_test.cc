// What a request's schemas say of its tools' parameters, however they are written, and what a
// model's bare text becomes by them.

#include "runtime/serving/markup/tool_set.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <vector>

namespace macrame::runtime::markup {
namespace {

using nlohmann::json;

// Short: s(tring), n(umber), b(oolean), 0 (null), o(bject), a(rray); "?": nothing is known.
std::string Short(const ValueKinds& kinds) {
  if (!kinds.is_known) return "?";
  std::string text;
  if (kinds.string) text += "s";
  if (kinds.number) text += "n";
  if (kinds.boolean) text += "b";
  if (kinds.null) text += "0";
  if (kinds.object) text += "o";
  if (kinds.array) text += "a";
  return text;
}

// One tool "f" with a parameter "p" of this schema, and some definitions.
ToolSet With(const std::string& schema) {
  const json defs = json::parse(R"({"text": {"type": "string"}, "list": {"type": "array"},
      "loop": {"$ref": "#/$defs/loop"},
      "far": {"anyOf": [{"$ref": "#/$defs/text"}, {"type": "null"}]},
      "a/b": {"type": "boolean"}})");
  const json tool = {
      {"type", "function"},
      {"function",
       {{"name", "f"},
        {"parameters",
         {{"type", "object"}, {"properties", {{"p", json::parse(schema)}}}, {"$defs", defs}}}}}};
  return ToolSet(json::array({tool}).dump());
}

TEST(ToolSetTest, ASchemaSaysWhichKindsOfValuesThereAre) {
  const std::pair<const char*, const char*> cases[] = {
      {R"({"type": "string"})", "s"},
      {R"({"type": "integer"})", "n"},
      {R"({"type": "number"})", "n"},
      {R"({"type": ["string", "null"]})", "s0"},
      {R"({"type": ["integer", 5, {}]})", "n"},
      {R"({"anyOf": [{"type": "array"}, {"type": "object"}]})", "oa"},
      {R"({"oneOf": [{"type": "boolean"}, {"enum": ["auto"]}]})", "sb"},
      {R"({"allOf": [{"type": "string"}]})", "s"},
      {R"({"enum": ["a", 1, null, true]})", "snb0"},
      {R"({"type": "string", "enum": [1, 2]})", "s"},
      {R"({"const": [1]})", "a"},
      {R"({"const": null})", "0"},
      {R"({"type": "dict"})", "o"},
      {R"({"type": "list"})", "a"},
      {R"({"type": "float"})", "n"},
      {R"({"$ref": "#/$defs/text"})", "s"},
      {R"({"$ref": "#/$defs/far"})", "s0"},
      {R"({"$ref": "#/$defs/a~1b"})", "b"},
      {R"({"$ref": "#"})", "o"},
      // What says nothing, or leads nowhere.
      {R"({})", "?"},
      {R"(true)", "?"},
      {R"("string")", "?"},
      {R"([{"type": "string"}])", "?"},
      {R"({"type": 7})", "?"},
      {R"({"anyOf": "string"})", "?"},
      {R"({"enum": {"a": 1}})", "?"},
      {R"({"enum": []})", "?"},
      {R"({"$ref": "#/$defs/loop"})", "?"},
      {R"({"$ref": "#/$defs/nowhere"})", "?"},
      {R"({"$ref": "#/properties/p"})", "?"},
      {R"({"$ref": "https://example.com/schema"})", "?"},
      {R"({"$ref": ""})", "?"},
      {R"({"$ref": "#no pointer"})", "?"},
      {R"({"$ref": "#/$defs/~7"})", "?"},
      {R"({"$ref": 12})", "?"}};
  for (const auto& [schema, kinds] : cases) {
    EXPECT_EQ(Short(With(schema).KindsOf("f", "p")), kinds) << schema;
    const std::vector<std::string> path = {"p"};
    EXPECT_EQ(Short(With(schema).KindsAt("f", path)), kinds) << schema;
  }
}

TEST(ToolSetTest, OfOthersNothingIsKnown) {
  const ToolSet tools = With(R"({"type": "string"})");
  EXPECT_EQ(Short(tools.KindsOf("f", "q")), "?");
  EXPECT_EQ(Short(tools.KindsOf("g", "p")), "?");
  EXPECT_EQ(Short(tools.KindsOf("", "")), "?");
  EXPECT_FALSE(tools.Has("g"));
  EXPECT_TRUE(ToolSet().empty());
  EXPECT_EQ(Short(ToolSet().KindsOf("f", "p")), "?");
  const std::vector<std::string> path = {"p"};
  EXPECT_EQ(Short(ToolSet().KindsAt("f", path)), "?");
}

TEST(ToolSetTest, WhatIsMalformedCountsAsNotThere) {
  for (const char* none : {"", "{", "null", "{}", "\"f\"", "12", "[]", "[1, null, \"f\", []]",
                           R"([{"function": {"parameters": {}}}])", R"([{"name": 5}])",
                           R"([{"function": {"name": ["f"]}}])"}) {
    EXPECT_TRUE(ToolSet(none).empty()) << none;
    const std::vector<std::string> path = {"p", "[]", "q"};
    EXPECT_EQ(Short(ToolSet(none).KindsAt("f", path)), "?") << none;
  }
  // A tool whose parameters can't be read is a tool nevertheless, and its neighbours are whole.
  for (const char* parameters :
       {"null", "5", "[]", "{}", R"({"properties": []})", R"({"properties": null})"}) {
    const ToolSet tools(
        "[{\"function\": {\"name\": \"f\", \"parameters\": " + std::string(parameters) +
        R"(}}, {"name": "g", "parameters": {"properties": {"p": {"type": "null"}}}}])");
    EXPECT_TRUE(tools.Has("f")) << parameters;
    EXPECT_EQ(Short(tools.KindsOf("f", "p")), "?") << parameters;
    EXPECT_EQ(Short(tools.KindsOf("g", "p")), "0") << "without a 'function' around it";
  }
}

TEST(ToolSetTest, ASchemaIsFollowedIntoMembersAndItems) {
  const ToolSet tools = With(R"({"type": "object", "properties": {
      "deep": {"anyOf": [
        {"type": "null"},
        {"type": "array", "items": {"type": "object", "properties": {"x": {"type": "number"}}}}]},
      "node": {"type": "object", "properties": {
        "next": {"$ref": "#/properties/p/properties/node"}, "name": {"$ref": "#/$defs/text"}}},
      "pair": {"type": "array", "items": [{"type": "string"}, {"type": "number"}]}}})");
  const auto at = [&tools](const std::vector<std::string>& path) {
    return Short(tools.KindsAt("f", path));
  };
  const std::string items(ToolSet::kItems);
  EXPECT_EQ(at({"p"}), "o");
  EXPECT_EQ(at({"p", "deep"}), "0a");
  EXPECT_EQ(at({"p", "deep", items}), "o");
  EXPECT_EQ(at({"p", "deep", items, "x"}), "n");
  EXPECT_EQ(at({"p", "deep", items, "y"}), "?");
  EXPECT_EQ(at({"p", "deep", "x"}), "?") << "a list has no members";
  EXPECT_EQ(at({"p", "node", "next", "next", "next", "name"}), "s");
  EXPECT_EQ(at({"p", "pair", items}), "?") << "items one by one aren't read";
  EXPECT_EQ(at({}), "o") << "of all parameters";
}

// A path that a model writes may be as long as it likes, in a schema that leads back to itself by
// many ways.
TEST(ToolSetTest, ALongPathThroughASchemaWithoutEndIsBounded) {
  std::string ways;
  for (int i = 0; i < 50; ++i) ways += std::string(i > 0 ? ", " : "") + R"({"$ref": "#/$defs/n"})";
  const ToolSet tools(R"([{"name": "f", "parameters": {"properties": {"n": {"$ref": "#/$defs/n"}},)"
                      R"( "$defs": {"n": {"type": "object", "properties": {"n": {"anyOf": [)" +
                      ways + "]}}}}}}]");
  EXPECT_EQ(Short(tools.KindsAt("f", std::vector<std::string>{"n", "n"})), "o");
  tools.KindsAt("f", std::vector<std::string>(500, "n"));
}

TEST(ToolSetTest, BareTextBecomesTheValueThatItsSchemaAllows) {
  const struct {
    const char *schema, *raw, *value;
  } cases[] = {{R"({"type": "string"})", "12", "\"12\""},
               {R"({"type": "string"})", " {\"a\": 1}\n", "\" {\\\"a\\\": 1}\\n\""},
               {R"({"type": "string"})", "null", "\"null\""},
               {R"({"type": ["string", "null"]})", "null", "null"},
               {R"({"type": ["string", "null"]})", "nullable", "\"nullable\""},
               {R"({"type": ["string", "integer"]})", "12", "12"},
               {R"({"type": ["string", "integer"]})", "true", "\"true\""},
               {R"({"type": ["string", "array"]})", "[1, 2]", "[1, 2]"},
               {R"({"type": ["string", "array"]})", "{\"a\": 1}", "\"{\\\"a\\\": 1}\""},
               {R"({"type": "boolean"})", "True", "true"},
               {R"({"type": "object"})", "{'a': None}", "{\"a\": null}"},
               {R"({"type": "array"})", "('a', 'b')", "[\"a\", \"b\"]"},
               // Quotes belong to the text of families that write strings without them.
               {R"({"type": "string"})", "\"a\"", "\"\\\"a\\\"\""},
               {R"({})", "\"a\"", "\"\\\"a\\\"\""},
               // Where no text is allowed, what can't be another value is text nevertheless.
               {R"({"type": "integer"})", "a dozen", "\"a dozen\""},
               {R"({"type": "integer"})", "", "\"\""},
               {R"({"type": "integer"})", "[1", "\"[1\""}};
  for (const auto& one : cases) {
    const std::string value = ValueAsJson(one.raw, With(one.schema).KindsOf("f", "p"));
    EXPECT_EQ(value, one.value) << one.schema << " " << one.raw;
    EXPECT_TRUE(json::accept(value)) << value;
  }
}

}  // namespace
}  // namespace macrame::runtime::markup
