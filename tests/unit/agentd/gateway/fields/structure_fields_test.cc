#include "agentd/gateway/fields/structure_fields.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <string>

#include "agentd/gateway/dialects/chat_request.h"
#include "agentd/gateway/dialects/text_request.h"

namespace macrame::agentd {
namespace {

using nlohmann::json;
using ::testing::HasSubstr;

std::variant<ChatRequest, ApiError> ParseText(const std::string& fields) {
  return ParseChatRequest(
      R"({"model": "tiny", "messages": [{"role": "user", "content": "hi"}], )" + fields + "}", 32);
}

v1::Structure Accepted(const std::string& fields) {
  auto parsed = ParseText(fields);
  if (auto* error = std::get_if<ApiError>(&parsed)) {
    ADD_FAILURE() << error->message << " for " << fields;
    return {};
  }
  const ChatRequest& request = std::get<ChatRequest>(parsed);
  EXPECT_TRUE(request.ignored.empty()) << fields;
  return request.generate.structure();
}

ApiError Refused(const std::string& fields) {
  auto parsed = ParseText(fields);
  if (auto* error = std::get_if<ApiError>(&parsed)) {
    EXPECT_EQ(error->http_status, 400);
    return *error;
  }
  ADD_FAILURE() << fields << " was taken";
  return {};
}

TEST(StructureFields, OpenAisForms) {
  EXPECT_EQ(Accepted(R"("response_format": null)").form_case(), v1::Structure::FORM_NOT_SET);
  EXPECT_EQ(Accepted(R"("response_format": {"type": "text"})").form_case(),
            v1::Structure::FORM_NOT_SET);
  EXPECT_TRUE(Accepted(R"("response_format": {"type": "json_object"})").json_object());
  EXPECT_EQ(Accepted(R"("response_format": {"type": "json_schema", "json_schema": {"name": "a-1",
                "strict": true, "schema": {"type": "object", "properties": {"z": {}, "a": {}}}}})")
                .json_schema(),
            R"({"type":"object","properties":{"z":{},"a":{}}})")
      << "members stay in the schema's order";
  EXPECT_TRUE(
      Accepted(R"("response_format": {"type": "json_schema", "json_schema": {"name": "a"}})")
          .json_object());
}

// The bound on the body's depth does not look into its strings.
TEST(StructureFields, ASchemaThatIsTextIsBoundedInDepthAndSize) {
  const auto nested = [](size_t depth) {
    return R"("guided_json": "{\"a\":)" + std::string(depth, '[') + std::string(depth, ']') + "}\"";
  };
  EXPECT_NE(Accepted(nested(60)).json_schema(), "");
  EXPECT_EQ(Refused(nested(kStructureDepthMax)).code, "json_too_deep");
  EXPECT_EQ(Refused(nested(50'000)).code, "json_too_deep");
  EXPECT_EQ(Refused(nested(1'000'000)).code, "string_above_max_length");
}

TEST(StructureFields, WhatOtherServersAreAsked) {
  EXPECT_EQ(Accepted(R"("guided_json": {"type": "null"})").json_schema(), R"({"type":"null"})");
  EXPECT_EQ(Accepted(R"("guided_json": "{\"type\": \"null\"}")").json_schema(),
            R"({"type":"null"})");
  EXPECT_EQ(Accepted(R"("guided_regex": "a+")").regex(), "a+");
  EXPECT_EQ(Accepted(R"("guided_choice": ["a", "b"])").choices().texts_size(), 2);
  EXPECT_EQ(Accepted(R"("guided_grammar": "start: \"a\"")").lark(), "start: \"a\"");
  EXPECT_EQ(Accepted(R"("structured_outputs": {"regex": "a", "json": null})").regex(), "a");
  EXPECT_TRUE(Accepted(R"("structured_outputs": {"json_object": true})").json_object());
  EXPECT_EQ(Accepted(R"("response_format": {"type": "json_object", "schema": {"type": "null"}})")
                .json_schema(),
            R"({"type":"null"})");
}

TEST(StructureFields, ErrorsNameTheFieldAtFault) {
  const std::pair<const char*, const char*> cases[] = {
      {R"("response_format": "json")", "response_format"},
      {R"("response_format": {"type": "xml"})", "response_format.type"},
      {R"("response_format": {"type": "json_schema"})", "response_format.json_schema"},
      {R"("response_format": {"type": "json_schema", "json_schema": {"schema": {}}})",
       "response_format.json_schema.name"},
      {R"("response_format": {"type": "json_schema", "json_schema": {"name": "a b"}})",
       "response_format.json_schema.name"},
      {R"("response_format": {"type": "json_schema", "json_schema": {"name": "a", "schema": 1}})",
       "response_format.json_schema.schema"},
      {R"("response_format": {"type": "json_schema", "json_schema": {"name": "a", "strict": 1}})",
       "response_format.json_schema.strict"},
      {R"("guided_json": "{")", "guided_json"},
      {R"("guided_choice": [])", "guided_choice"},
      {R"("guided_choice": ["a", ""])", "guided_choice[1]"},
      {R"("guided_regex": "")", "guided_regex"},
      {R"("structured_outputs": {})", "structured_outputs"},
      {R"("structured_outputs": {"regex": "a", "choice": ["a"]})", "structured_outputs"},
      {R"("guided_regex": "a", "guided_json": {})", "guided_regex"},
      {R"("guided_regex": "a", "min_tokens": 2)", "min_tokens"},
      {R"("grammar": "root ::= \"a\"")", "grammar"}};
  for (const auto& [fields, param] : cases) EXPECT_EQ(Refused(fields).param, param) << fields;
  EXPECT_THAT(Refused(R"("guided_grammar": "root ::= \"a\"")").message, HasSubstr("Lark"));
  const std::string tools =
      R"("tools": [{"type": "function", "function": {"name": "f"}}], "tool_choice": "required", )";
  EXPECT_EQ(Refused(tools + R"("response_format": {"type": "json_object"})").param, "tool_choice");
  const std::string long_text(kStructureBytesMax + 1, 'a');
  EXPECT_EQ(Refused(R"("guided_regex": ")" + long_text + "\"").param, "guided_regex");
}

TEST(StructureFields, PromptsOfTextHaveThemToo) {
  const auto parsed =
      ParseTextRequest(R"({"model": "tiny", "prompt": "a", "guided_json": {"b": 1, "a": 2}})", 32);
  ASSERT_TRUE(std::holds_alternative<TextRequest>(parsed));
  EXPECT_EQ(std::get<TextRequest>(parsed).generate.structure().json_schema(), R"({"b":1,"a":2})");
}

}  // namespace
}  // namespace macrame::agentd
