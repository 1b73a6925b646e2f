#include "agentd/gateway/dialects/messages_request.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

namespace macrame::agentd {
namespace {

using nlohmann::json;

json Body(const json& more = json::object()) {
  json body = {{"model", "tiny"},
               {"max_tokens", 100},
               {"messages", {{{"role", "user"}, {"content", "Hello"}}}}};
  body.update(more);
  return body;
}

ChatRequest Good(const json& more = json::object()) {
  auto read = ParseMessagesRequest(Body(more).dump(), 32);
  if (auto* error = std::get_if<ApiError>(&read)) {
    ADD_FAILURE() << error->message;
    return {};
  }
  return std::get<ChatRequest>(read);
}

std::string Refused(const json& more) {
  auto read = ParseMessagesRequest(Body(more).dump(), 32);
  if (!std::holds_alternative<ApiError>(read)) return "was taken";
  EXPECT_EQ(std::get<ApiError>(read).http_status, 400);
  return std::get<ApiError>(read).message;
}

json Messages(const json& blocks) {
  return {{"messages", {{{"role", "user"}, {"content", blocks}}}}};
}

TEST(MessagesRequest, PlainFieldsReachTheGeneration) {
  const ChatRequest read = Good({{"system", "Be brief."},
                                 {"stop_sequences", {"END", "\n\n"}},
                                 {"temperature", 0.5},
                                 {"top_p", 0.9},
                                 {"top_k", 40},
                                 {"stream", true}});
  const v1::GenerateRequest& generate = read.generate;
  EXPECT_EQ(generate.deployment(), "tiny");
  EXPECT_EQ(generate.max_tokens(), 100u);
  ASSERT_EQ(generate.messages_size(), 2);
  EXPECT_EQ(generate.messages(0).role(), "system");
  EXPECT_EQ(generate.messages(0).content(), "Be brief.");
  EXPECT_EQ(generate.messages(1).content(), "Hello");
  EXPECT_EQ(generate.stop(1), "\n\n");
  EXPECT_EQ(generate.sampling().temperature(), 0.5);
  EXPECT_EQ(generate.sampling().top_p(), 0.9);
  EXPECT_EQ(generate.sampling().top_k(), 40u);
  EXPECT_TRUE(read.stream);
}

TEST(MessagesRequest, SystemMayBeBlocksWithCacheControl) {
  const ChatRequest read =
      Good({{"system",
             {{{"type", "text"}, {"text", "One. "}, {"cache_control", {{"type", "ephemeral"}}}},
              {{"type", "text"}, {"text", "Two."}}}}});
  EXPECT_EQ(read.generate.messages(0).content(), "One. Two.");
}

TEST(MessagesRequest, ToolTurnsBecomeCallsAndResults) {
  const json turns = {
      {{"role", "user"}, {"content", "Weather?"}},
      {{"role", "assistant"},
       {"content",
        {{{"type", "thinking"}, {"thinking", "Look it up."}, {"signature", "sig"}},
         {{"type", "text"}, {"text", "I look."}},
         {{"type", "tool_use"}, {"id", "c1"}, {"name", "get"}, {"input", {{"city", "Oslo"}}}},
         {{"type", "tool_use"}, {"id", "c2"}, {"name", "now"}, {"input", json::object()}}}}},
      {{"role", "user"},
       {"content",
        {{{"type", "tool_result"}, {"tool_use_id", "c1"}, {"content", "7°"}},
         {{"type", "tool_result"},
          {"tool_use_id", "c2"},
          {"is_error", true},
          {"content", {{{"type", "text"}, {"text", "no clock"}}}}},
         {{"type", "text"}, {"text", "Go on."}}}}}};
  const ChatRequest read = Good({{"messages", turns}});
  const auto& messages = read.generate.messages();
  ASSERT_EQ(messages.size(), 5);
  EXPECT_EQ(messages[1].reasoning(), "Look it up.");
  EXPECT_EQ(messages[1].content(), "I look.");
  ASSERT_EQ(messages[1].tool_calls_size(), 2);
  EXPECT_EQ(messages[1].tool_calls(0).arguments(), R"({"city":"Oslo"})");
  EXPECT_EQ(messages[1].tool_calls(1).id(), "c2");
  EXPECT_EQ(messages[2].role(), "tool");
  EXPECT_EQ(messages[2].tool_call_id(), "c1");
  EXPECT_EQ(messages[2].content(), "7°");
  EXPECT_EQ(messages[3].content(), "Error: no clock");
  EXPECT_EQ(messages[4].role(), "user");
  EXPECT_EQ(messages[4].content(), "Go on.");
}

json Tools() {
  return {
      {{"name", "get"},
       {"description", "Weather"},
       {"input_schema", {{"type", "object"}, {"properties", {{"city", {{"type", "string"}}}}}}}},
      {{"type", "custom"}, {"name", "now"}, {"input_schema", {{"type", "object"}}}}};
}

TEST(MessagesRequest, DeferredToolsWaitForAReference) {
  json tools = Tools();
  tools[1]["defer_loading"] = true;
  EXPECT_EQ(Good({{"tools", tools}}).generate.tools().tools_json().find("\"now\""),
            std::string::npos);
  const json turns = {
      {{"role", "user"}, {"content", "Time?"}},
      {{"role", "assistant"},
       {"content",
        {{{"type", "tool_use"}, {"id", "c1"}, {"name", "get"}, {"input", json::object()}}}}},
      {{"role", "user"},
       {"content",
        {{{"type", "tool_result"},
          {"tool_use_id", "c1"},
          {"content", {{{"type", "tool_reference"}, {"tool_name", "now"}}}}}}}}};
  const ChatRequest read = Good({{"tools", tools}, {"messages", turns}});
  EXPECT_NE(read.generate.tools().tools_json().find("\"now\""), std::string::npos);
  EXPECT_EQ(read.generate.messages(2).content(), "The tool now is loaded.");
}

TEST(MessagesRequest, ThreadsAreRefusedByACodeThatClientsKnow) {
  const json thread = {{"type", "continue"}, {"previous_message_id", "msg_1"}};
  const auto read = ParseMessagesRequest(Body({{"thread", thread}}).dump(), 32);
  ASSERT_TRUE(std::holds_alternative<ApiError>(read));
  EXPECT_EQ(std::get<ApiError>(read).code, "thread_unsupported_request");
  EXPECT_EQ(std::get<ApiError>(read).param, "thread");
}

TEST(MessagesRequest, ToolChoicesInAllForms) {
  EXPECT_EQ(Good({{"tools", Tools()}}).generate.tools().choice(), v1::TOOL_CHOICE_KIND_AUTO);
  EXPECT_EQ(
      Good({{"tools", Tools()}, {"tool_choice", {{"type", "any"}}}}).generate.tools().choice(),
      v1::TOOL_CHOICE_KIND_REQUIRED);
  const ChatRequest named =
      Good({{"tools", Tools()}, {"tool_choice", {{"type", "tool"}, {"name", "now"}}}});
  EXPECT_EQ(named.generate.tools().choice(), v1::TOOL_CHOICE_KIND_NAMED);
  EXPECT_EQ(named.generate.tools().name(), "now");
  EXPECT_FALSE(
      Good({{"tools", Tools()}, {"tool_choice", {{"type", "none"}}}}).generate.has_tools());
  const ChatRequest single =
      Good({{"tools", Tools()},
            {"tool_choice", {{"type", "auto"}, {"disable_parallel_tool_use", true}}}});
  EXPECT_TRUE(single.generate.tools().single_call());
  const json tools = json::parse(named.generate.tools().tools_json());
  EXPECT_EQ(tools[0]["function"]["parameters"]["properties"]["city"]["type"], "string");
}

TEST(MessagesRequest, ThinkingIsSwitchedAndBounded) {
  const auto reasoning = [](const json& thinking) {
    return Good({{"thinking", thinking}}).generate.reasoning();
  };
  EXPECT_TRUE(reasoning({{"type", "enabled"}, {"budget_tokens", 2048}}).enabled());
  EXPECT_EQ(reasoning({{"type", "enabled"}, {"budget_tokens", 2048}}).tokens_max(), 2048u);
  EXPECT_FALSE(reasoning({{"type", "disabled"}}).enabled());
  EXPECT_FALSE(reasoning({{"type", "adaptive"}}).has_enabled());
  EXPECT_TRUE(
      Good({{"thinking", {{"type", "adaptive"}, {"display", "omitted"}}}}).excludes_reasoning);
}

TEST(MessagesRequest, AnOutputFormatIsAStructure) {
  const json format = {{"type", "json_schema"}, {"schema", {{"type", "object"}}}};
  EXPECT_EQ(Good({{"output_config", {{"format", format}}}}).generate.structure().json_schema(),
            R"({"type":"object"})");
  EXPECT_EQ(Good({{"output_format", format}}).generate.structure().json_schema(),
            R"({"type":"object"})");
}

TEST(MessagesRequest, WhatCannotBeHonouredIsRefusedByName) {
  const std::pair<json, const char*> kRefused[] = {
      {Messages({{{"type", "image"}, {"source", json::object()}}}), "image"},
      {Messages({{{"type", "document"}, {"source", {{"type", "base64"}}}}}), "plain text"},
      {Messages({{{"type", "search_result"}}}), "search_result"},
      {{{"tools", {{{"type", "web_search_20250305"}, {"name", "web_search"}}}}}, "web_search_2025"},
      {{{"mcp_servers", {{{"url", "x"}}}}}, "mcp_servers"},
      {{{"container", "c"}}, "container"},
      {{{"max_tokens", nullptr}}, "'max_tokens' is missing"},
      {{{"max_tokens", 0}}, "'max_tokens'"},
      {{{"stop_sequences", {""}}}, "stop_sequences[0]"},
      {{{"tool_choice", {{"type", "any"}}}}, "'tools'"},
      {{{"thinking", {{"type", "off"}}}}, "thinking.type"},
      {{{"messages", json::array()}}, "'messages'"},
      {{{"system", 7}}, "'system'"},
      {{{"messages", {{{"role", "tool"}, {"content", "x"}}}}}, "messages[0].role"},
      {{{"messages",
         {{{"role", "user"}, {"content", "a"}}, {{"role", "assistant"}, {"content", "The"}}}}},
       "begun for the model"},
      {Messages({{{"type", "text"}, {"text", "a"}},
                 {{"type", "tool_result"}, {"tool_use_id", "c"}, {"content", "b"}}}),
       "before text"}};
  for (const auto& [more, expected] : kRefused) {
    const std::string message = Refused(more);
    EXPECT_NE(message.find(expected), std::string::npos) << more << "\n" << message;
  }
}

TEST(MessagesRequest, UnknownFieldsAreNamed) {
  const ChatRequest read = Good({{"context_management", {{"edits", json::array()}}}, {"new", 1}});
  EXPECT_EQ(read.ignored, (std::vector<std::string>{"context_management", "new"}));
}

TEST(MessagesRequest, ACountNeedsNoLimit) {
  json body = Body();
  body.erase("max_tokens");
  auto read = ParseCountTokensRequest(body.dump(), 32);
  ASSERT_TRUE(std::holds_alternative<ChatRequest>(read)) << std::get<ApiError>(read).message;
  EXPECT_TRUE(std::get<ChatRequest>(read).generate.tokenize().count_only());
}

// Agents count what they hold, also behind an answer.
TEST(MessagesRequest, ACountMayEndWithAnAnswer) {
  const json turns = {{{"role", "user"}, {"content", "a"}},
                      {{"role", "assistant"}, {"content", "The"}}};
  auto read = ParseCountTokensRequest(Body({{"messages", turns}}).dump(), 32);
  ASSERT_TRUE(std::holds_alternative<ChatRequest>(read)) << std::get<ApiError>(read).message;
  const v1::GenerateRequest& generate = std::get<ChatRequest>(read).generate;
  ASSERT_EQ(generate.messages_size(), 2);
  EXPECT_EQ(generate.messages(1).content(), "The");
  EXPECT_TRUE(generate.tokenize().count_only());
  EXPECT_TRUE(generate.tokenize().without_opening());
  auto user = ParseCountTokensRequest(Body().dump(), 32);
  ASSERT_TRUE(std::holds_alternative<ChatRequest>(user));
  EXPECT_FALSE(std::get<ChatRequest>(user).generate.tokenize().without_opening());
}

TEST(MessagesRequest, MalformedBodiesAre400) {
  for (const char* body : {"", "[]", "{", "\"x\"", "null", "{\"messages\":{}}"}) {
    auto read = ParseMessagesRequest(body, 32);
    ASSERT_TRUE(std::holds_alternative<ApiError>(read)) << body;
    EXPECT_EQ(std::get<ApiError>(read).http_status, 400) << body;
  }
}

}  // namespace
}  // namespace macrame::agentd
