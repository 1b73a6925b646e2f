#include "agentd/gateway/dialects/response_request.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

namespace macrame::agentd {
namespace {

using nlohmann::json;

json Body(const json& more) {
  json body = {{"model", "tiny"}, {"input", "Hello"}};
  body.update(more);
  return body;
}

ResponseRequest Good(const json& more, const std::string& before = "") {
  auto read = ParseResponseRequest(Body(more).dump(), 32, before);
  if (auto* error = std::get_if<ApiError>(&read)) {
    ADD_FAILURE() << error->message;
    return {};
  }
  return std::get<ResponseRequest>(std::move(read));
}

std::string Refused(const json& more) {
  auto read = ParseResponseRequest(Body(more).dump(), 32, "");
  if (!std::holds_alternative<ApiError>(read)) return "was taken";
  EXPECT_EQ(std::get<ApiError>(read).http_status, 400);
  return std::get<ApiError>(read).message;
}

TEST(ResponseRequest, TextAndInstructionsBecomeMessages) {
  const ResponseRequest read = Good({{"instructions", "Be brief."},
                                     {"max_output_tokens", 9},
                                     {"temperature", 0.5},
                                     {"seed", 7},
                                     {"stream", true}});
  const v1::GenerateRequest& generate = read.chat.generate;
  ASSERT_EQ(generate.messages_size(), 2);
  EXPECT_EQ(generate.messages(0).role(), "system");
  EXPECT_EQ(generate.messages(1).content(), "Hello");
  EXPECT_EQ(generate.max_tokens(), 9u);
  EXPECT_EQ(generate.sampling().seed(), 7u);
  EXPECT_TRUE(read.chat.stream);
  EXPECT_TRUE(read.is_kept);
  // Instructions are of this answer alone.
  EXPECT_EQ(read.messages.size(), 1u);
  EXPECT_EQ(read.echo["instructions"], "Be brief.");
  EXPECT_FALSE(Good({{"store", false}}).is_kept);
}

TEST(ResponseRequest, ItemsBecomeTurns) {
  const json input = {
      {{"role", "user"}, {"content", {{{"type", "input_text"}, {"text", "Weather?"}}}}},
      {{"type", "reasoning"},
       {"id", "rs_1"},
       {"summary", json::array()},
       {"content", {{{"type", "reasoning_text"}, {"text", "Look."}}}}},
      {{"type", "message"},
       {"role", "assistant"},
       {"content", {{{"type", "output_text"}, {"text", "I look."}}}}},
      {{"type", "function_call"}, {"call_id", "c1"}, {"name", "get"}, {"arguments", "{}"}},
      {{"type", "function_call"}, {"call_id", "c2"}, {"name", "now"}, {"arguments", "{}"}},
      {{"type", "function_call_output"}, {"call_id", "c1"}, {"output", "7"}},
      {{"type", "function_call_output"},
       {"call_id", "c2"},
       {"output", {{{"type", "input_text"}, {"text", "noon"}}}}},
      {{"type", "function_call"}, {"call_id", "c3"}, {"name", "get"}, {"arguments", "{}"}}};
  const ResponseRequest read = Good({{"input", input}});
  const auto& messages = read.chat.generate.messages();
  ASSERT_EQ(messages.size(), 5);
  EXPECT_EQ(messages[1].reasoning(), "Look.");
  EXPECT_EQ(messages[1].content(), "I look.");
  EXPECT_EQ(messages[1].tool_calls_size(), 2);
  EXPECT_EQ(messages[2].tool_call_id(), "c1");
  EXPECT_EQ(messages[3].content(), "noon");
  EXPECT_EQ(messages[4].tool_calls(0).id(), "c3");
}

// It is stored and sent back: without bounds a small prompt would fill the store.
TEST(ResponseRequest, MetadataHasTheBoundsOfOpenAi) {
  json most = json::object();
  for (int i = 0; i < 16; ++i) most[std::string(62, 'k') + std::to_string(10 + i)] = "v";
  std::string wide;
  for (int i = 0; i < 512; ++i) wide += "\u00e9";
  most[most.begin().key()] = wide;
  EXPECT_EQ(json(Good({{"metadata", most}}).echo["metadata"]), most);
  EXPECT_EQ(json(Good({{"metadata", nullptr}}).echo["metadata"]), json::object());
  json more = most;
  more["k"] = "v";
  const std::vector<json> refused = {
      more,       {{std::string(65, 'k'), "v"}}, {{"k", std::string(513, 'v')}},
      {{"k", 7}}, {{"k", {{"k", "v"}}}},         json::array({json::array({"k", "v"})}),
      "text"};
  for (const json& metadata : refused) {
    auto read = ParseResponseRequest(Body({{"metadata", metadata}}).dump(), 32, "");
    ASSERT_TRUE(std::holds_alternative<ApiError>(read)) << metadata;
    EXPECT_EQ(std::get<ApiError>(read).http_status, 400);
    EXPECT_EQ(std::get<ApiError>(read).param, "metadata") << metadata;
  }
}

TEST(ResponseRequest, FunctionsOfANamespaceHaveBothNames) {
  const json tools = {{{"type", "function"}, {"name", "now"}},
                      {{"type", "namespace"},
                       {"name", "crm"},
                       {"description", "Customers."},
                       {"tools",
                        {{{"type", "function"}, {"name", "find"}, {"description", "By name."}},
                         {{"type", "function"}, {"name", "now"}}}}}};
  const json input = {{{"role", "user"}, {"content", "Who?"}},
                      {{"type", "function_call"},
                       {"call_id", "c1"},
                       {"namespace", "crm"},
                       {"name", "find"},
                       {"arguments", "{}"}},
                      {{"type", "function_call_output"}, {"call_id", "c1"}, {"output", "Ada"}}};
  const ResponseRequest read = Good({{"tools", tools}, {"input", input}});
  const json offered = json::parse(read.chat.generate.tools().tools_json());
  ASSERT_EQ(offered.size(), 3u);
  EXPECT_EQ(offered[1]["function"]["name"], "crm__find");
  EXPECT_EQ(offered[1]["function"]["description"], "Customers.\n\nBy name.");
  EXPECT_EQ(offered[2]["function"]["name"], "crm__now");
  EXPECT_EQ(read.chat.generate.messages(1).tool_calls(0).name(), "crm__find");
  EXPECT_EQ(read.namespaced.at("crm__now"), (std::pair<std::string, std::string>("crm", "now")));
  EXPECT_EQ(read.namespaced.size(), 2u);
  EXPECT_NE(Refused({{"tools",
                      {{{"type", "namespace"},
                        {"name", "crm"},
                        {"tools", {{{"type", "custom"}, {"name", "free"}}}}}}}})
                .find("tools[0].tools[0].type"),
            std::string::npos);
}

TEST(ResponseRequest, ThePreviousTurnsStandBefore) {
  const std::string before =
      R"([{"role":"user","content":"One"},{"role":"assistant","content":"Two"}])";
  const ResponseRequest read = Good({{"previous_response_id", "resp_1"}}, before);
  ASSERT_EQ(read.chat.generate.messages_size(), 3);
  EXPECT_EQ(read.chat.generate.messages(1).content(), "Two");
  EXPECT_EQ(read.messages.size(), 3u);
  EXPECT_EQ(PreviousResponseOf(R"({"previous_response_id":"resp_1"})", 32), "resp_1");
  for (const char* body : {"", "{}", "[]", R"({"previous_response_id":null})"}) {
    EXPECT_EQ(PreviousResponseOf(body, 32), "") << body;
  }
}

TEST(ResponseRequest, ToolsFormatAndReasoning) {
  const json tools = {{{"type", "function"},
                       {"name", "get"},
                       {"parameters", {{"type", "object"}}},
                       {"strict", true}}};
  const ResponseRequest read = Good({{"tools", tools},
                                     {"tool_choice", {{"type", "function"}, {"name", "get"}}},
                                     {"reasoning", {{"effort", "low"}}}});
  EXPECT_EQ(read.chat.generate.tools().name(), "get");
  EXPECT_NE(read.chat.generate.template_arguments_json().find("low"), std::string::npos);
  const json format = {{"type", "json_schema"},
                       {"name", "city"},
                       {"strict", true},
                       {"schema", {{"type", "object"}}}};
  EXPECT_EQ(Good({{"text", {{"format", format}}}}).chat.generate.structure().json_schema(),
            R"({"type":"object"})");
  EXPECT_TRUE(Good({{"text", {{"format", {{"type", "json_object"}}}}}})
                  .chat.generate.structure()
                  .json_object());
  EXPECT_FALSE(Good({{"text", {{"format", {{"type", "text"}}}}}}).chat.generate.has_structure());
}

TEST(ResponseRequest, WhatCannotBeHonouredIsRefusedByName) {
  const auto item = [](const json& one) { return json{{"input", {one}}}; };
  const std::pair<json, const char*> kRefused[] = {
      {{{"background", true}}, "background"},
      {{{"conversation", "conv_1"}}, "conversation"},
      {{{"prompt", {{"id", "p"}}}}, "prompt"},
      {{{"truncation", "auto"}}, "truncation"},
      {{{"top_logprobs", 3}}, "top_logprobs"},
      {{{"max_tool_calls", 3}}, "max_tool_calls"},
      {{{"include", {"file_search_call.results"}}}, "include"},
      {{{"tools", {{{"type", "web_search"}}}}}, "web_search"},
      {{{"tool_choice", {{"type", "file_search"}}}}, "tool_choice"},
      {{{"max_output_tokens", 0}}, "max_output_tokens"},
      {{{"store", "yes"}}, "store"},
      {{{"input", nullptr}}, "'input' is missing"},
      {{{"input", json::array()}}, "'input'"},
      {item({{"type", "item_reference"}, {"id", "msg_1"}}), "previous_response_id"},
      {item({{"type", "computer_call"}}), "computer_call"},
      {item({{"role", "user"}, {"content", {{{"type", "input_image"}}}}}), "input_image"},
      {item({{"role", "tool"}, {"content", "x"}}), "input[0].role"}};
  for (const auto& [more, expected] : kRefused) {
    const std::string message = Refused(more);
    EXPECT_NE(message.find(expected), std::string::npos) << more << "\n" << message;
  }
}

TEST(ResponseRequest, FieldsWithoutEffectAreNamed) {
  const ResponseRequest read = Good({{"include", {"reasoning.encrypted_content"}},
                                     {"reasoning", {{"summary", "auto"}}},
                                     {"text", {{"verbosity", "low"}}},
                                     {"novel", 1}});
  EXPECT_EQ(read.chat.ignored,
            (std::vector<std::string>{"reasoning.summary", "text.verbosity", "novel"}));
}

TEST(ResponseRequest, WhereNothingIsStoredAskingForItIsRefused) {
  const auto read = [](const json& more) {
    json body = {{"model", "tiny"}, {"input", "Hello"}};
    body.update(more);
    return ParseResponseRequest(body.dump(), 32, "", /*may_store=*/false);
  };
  const auto refused = read({{"store", true}});
  ASSERT_TRUE(std::holds_alternative<ApiError>(refused));
  EXPECT_EQ(std::get<ApiError>(refused).http_status, 400);
  EXPECT_EQ(std::get<ApiError>(refused).param, "store");
  for (const json& more : {json::object(), json{{"store", false}}, json{{"store", nullptr}}}) {
    const auto taken = read(more);
    ASSERT_TRUE(std::holds_alternative<ResponseRequest>(taken)) << more;
    EXPECT_FALSE(std::get<ResponseRequest>(taken).is_kept) << more;
    EXPECT_EQ(std::get<ResponseRequest>(taken).echo["store"], false) << "the answer says so";
  }
}

}  // namespace
}  // namespace macrame::agentd
