#include "agentd/gateway/dialects/chat_tools.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <string>

#include "agentd/gateway/dialects/chat_request.h"

namespace macrame::agentd {
namespace {

using nlohmann::json;

constexpr char kTools[] = R"([
  {"type": "function", "function": {"name": "get_weather", "description": "w",
    "parameters": {"type": "object", "properties": {"zone": {}, "city": {}}}}},
  {"type": "function", "function": {"name": "get_time", "strict": null}}])";

// A body with these members beside the least.
std::string Body(const std::string& members) {
  return R"({"model": "tiny", "messages": [{"role": "user", "content": "hi"}], )" + members + "}";
}

ChatRequest Accepted(const std::string& members) {
  auto parsed = ParseChatRequest(Body(members), 32);
  if (auto* error = std::get_if<ApiError>(&parsed)) {
    ADD_FAILURE() << error->message << " for " << members;
    return {};
  }
  return std::get<ChatRequest>(std::move(parsed));
}

std::string Refused(const std::string& members) {
  auto parsed = ParseChatRequest(Body(members), 32);
  const auto* error = std::get_if<ApiError>(&parsed);
  return error == nullptr ? "" : error->param;
}

std::string WithTools(const std::string& more) {
  return std::string("\"tools\": ") + kTools + (more.empty() ? "" : ", ") + more;
}

TEST(ChatTools, ToolsGoToTheModelAsTheyWereWritten) {
  const ChatRequest request = Accepted(WithTools(""));
  const v1::ToolOptions& tools = request.generate.tools();
  EXPECT_EQ(tools.choice(), v1::TOOL_CHOICE_KIND_AUTO);
  EXPECT_FALSE(tools.single_call());
  EXPECT_TRUE(request.ignored.empty());
  // Members in the client's order: models see the text.
  EXPECT_NE(tools.tools_json().find(R"("properties":{"zone":{},"city":{}})"), std::string::npos);
  const json list = json::parse(tools.tools_json());
  ASSERT_EQ(list.size(), 2U);
  // What templates read without asking is there.
  EXPECT_EQ(list[1]["function"]["parameters"]["type"], "object");
  EXPECT_EQ(list[1]["function"]["description"], "");
  EXPECT_FALSE(list[1]["function"].contains("strict"));
}

TEST(ChatTools, ChoicesAreTakenOver) {
  const auto tools = [](const std::string& more) {
    return Accepted(WithTools(more)).generate.tools();
  };
  EXPECT_EQ(tools(R"("tool_choice": "auto")").choice(), v1::TOOL_CHOICE_KIND_AUTO);
  EXPECT_EQ(tools(R"("tool_choice": "required")").choice(), v1::TOOL_CHOICE_KIND_REQUIRED);
  EXPECT_FALSE(tools(R"("tool_choice": "required")").single_call());
  const auto named =
      tools(R"("tool_choice": {"type": "function", "function": {"name": "get_time"}})");
  EXPECT_EQ(named.choice(), v1::TOOL_CHOICE_KIND_NAMED);
  EXPECT_EQ(named.name(), "get_time");
  EXPECT_TRUE(named.single_call());
  EXPECT_TRUE(tools(R"("parallel_tool_calls": false)").single_call());
  // With none the model is not shown the tools at all.
  EXPECT_FALSE(Accepted(WithTools(R"("tool_choice": "none")")).generate.has_tools());
  const auto allowed = tools(
      R"("tool_choice": {"type": "allowed_tools", "allowed_tools": {"mode": "required",
         "tools": [{"type": "function", "function": {"name": "get_time"}}]}})");
  EXPECT_EQ(allowed.choice(), v1::TOOL_CHOICE_KIND_REQUIRED);
  EXPECT_EQ(json::parse(allowed.tools_json()).size(), 1U);
}

TEST(ChatTools, WhatCannotBeIsRefusedByName) {
  EXPECT_EQ(Refused(R"("tools": {})"), "tools");
  EXPECT_EQ(Refused(R"("tools": [5])"), "tools[0]");
  EXPECT_EQ(Refused(R"("tools": [{"type": "web_search"}])"), "tools[0].type");
  EXPECT_EQ(Refused(R"("tools": [{"type": "function"}])"), "tools[0].function");
  for (const char* name : {"5", "\"\"", "\"a b\"", "\"<|im_end|>\""}) {
    EXPECT_EQ(Refused(std::string(R"("tools": [{"function": {"name": )") + name + "}}]"),
              "tools[0].function.name")
        << name;
  }
  EXPECT_EQ(Refused(R"("tools": [{"function": {"name": "f"}}, {"function": {"name": "f"}}])"),
            "tools[1].function.name");
  EXPECT_EQ(Refused(R"("tools": [{"function": {"name": "f", "parameters": []}}])"),
            "tools[0].function.parameters");
  EXPECT_EQ(Refused(R"("tool_choice": "required")"), "tool_choice");
  EXPECT_EQ(Refused(R"("tool_choice": "none")"), "");
  EXPECT_EQ(Refused(WithTools(R"("tool_choice": "sometimes")")), "tool_choice");
  EXPECT_EQ(Refused(WithTools(R"("tool_choice": {"function": {"name": "other"}})")), "tool_choice");
  EXPECT_EQ(Refused(WithTools(R"("parallel_tool_calls": 1)")), "parallel_tool_calls");
}

// Free calls are held to it in some families; a call that must be made is in others too.
TEST(ChatTools, StrictDependsOnTheModelWhereCallsAreFree) {
  const std::string tools = R"("tools": [{"function": {"name": "f", "strict": true}}])";
  const ChatRequest request = Accepted(tools);
  EXPECT_TRUE(request.ignored.empty());
  EXPECT_EQ(request.by_model, std::vector<std::string>{"tools.strict"});
  EXPECT_THAT(request.generate.tools().tools_json(), testing::HasSubstr("\"strict\":true"));
  EXPECT_TRUE(Accepted(tools + R"(, "tool_choice": "required")").by_model.empty());
  EXPECT_TRUE(Accepted(tools + R"(, "tool_choice": "none")").by_model.empty());
  EXPECT_TRUE(Accepted(R"("tools": [{"function": {"name": "f"}}])").by_model.empty());
}

TEST(ChatTools, PastCallsAndTheirResultsAreTakenOver) {
  const std::string body = R"({"model": "tiny", "messages": [
    {"role": "user", "content": "hi"},
    {"role": "assistant", "content": null, "reasoning_content": "hm", "tool_calls": [
      {"id": "call_1", "type": "function",
       "function": {"name": "f", "arguments": "{\"b\": 1.0, \"a\": 2}"}}]},
    {"role": "tool", "tool_call_id": "call_1", "content": [{"type": "text", "text": "ok"}]}]})";
  auto parsed = ParseChatRequest(body, 32);
  ASSERT_TRUE(std::holds_alternative<ChatRequest>(parsed));
  const v1::GenerateRequest& request = std::get<ChatRequest>(parsed).generate;
  const v1::ChatMessage& answer = request.messages(1);
  EXPECT_EQ(answer.reasoning(), "hm");
  ASSERT_EQ(answer.tool_calls_size(), 1);
  EXPECT_EQ(answer.tool_calls(0).id(), "call_1");
  EXPECT_EQ(answer.tool_calls(0).arguments(), R"({"b": 1.0, "a": 2})");
  EXPECT_EQ(request.messages(2).tool_call_id(), "call_1");
  EXPECT_EQ(request.messages(2).content(), "ok");
}

// LiteLLM's ids hold a signature of the model's reasoning.
TEST(ChatTools, IdsOfCallsMayHoldASignature) {
  const auto parse = [](size_t bytes) {
    const std::string id = "call_7__thought__" + std::string(bytes - 17, 'A');
    const json body = {
        {"model", "tiny"},
        {"messages",
         {{{"role", "user"}, {"content", "hi"}},
          {{"role", "assistant"}, {"tool_calls", {{{"id", id}, {"function", {{"name", "f"}}}}}}},
          {{"role", "tool"}, {"tool_call_id", id}, {"content", "ok"}}}}};
    return ParseChatRequest(body.dump(), 32);
  };
  const auto taken = parse(2'200);
  ASSERT_TRUE(std::holds_alternative<ChatRequest>(taken)) << std::get<ApiError>(taken).message;
  const v1::GenerateRequest& request = std::get<ChatRequest>(taken).generate;
  EXPECT_EQ(request.messages(1).tool_calls(0).id().size(), 2'200U);
  EXPECT_EQ(request.messages(2).tool_call_id(), request.messages(1).tool_calls(0).id());
  const auto refused = parse(kCallIdBytesMax + 1);
  ASSERT_TRUE(std::holds_alternative<ApiError>(refused));
  EXPECT_EQ(std::get<ApiError>(refused).param, "messages[1].tool_calls[0].id");
}

TEST(ChatTools, ReasoningIsSwitchedAndBounded) {
  const auto reasoning = [](const std::string& members) {
    return Accepted(members).generate.reasoning();
  };
  EXPECT_FALSE(Accepted(R"("temperature": 0)").generate.has_reasoning());
  for (const char* off :
       {R"("enable_thinking": false)", R"("reasoning_effort": "none")",
        R"("reasoning": {"enabled": false})", R"("reasoning": {"effort": "none"})",
        R"("thinking": {"type": "disabled"})",
        R"("chat_template_kwargs": {"enable_thinking": false})"}) {
    EXPECT_TRUE(reasoning(off).has_enabled()) << off;
    EXPECT_FALSE(reasoning(off).enabled()) << off;
  }
  for (const char* budget : {R"("thinking_budget": 64)", R"("thinking_token_budget": 64)",
                             R"("reasoning": {"max_tokens": 64})", R"("max_reasoning_tokens": 64)",
                             R"("thinking": {"type": "enabled", "budget_tokens": 64})"}) {
    EXPECT_EQ(reasoning(budget).tokens_max(), 64U) << budget;
  }
  EXPECT_FALSE(reasoning(R"("thinking_budget": -1)").has_tokens_max());
  EXPECT_TRUE(reasoning(R"("thinking_budget": 0)").has_tokens_max());
  EXPECT_TRUE(Accepted(R"("reasoning": {"exclude": true})").excludes_reasoning);
  EXPECT_TRUE(Accepted(R"("include_reasoning": false)").excludes_reasoning);
  EXPECT_EQ(Accepted(R"("reasoning": {"effort": "low"})").generate.template_arguments_json(),
            R"({"reasoning_effort":"low"})");
  EXPECT_EQ(Refused(R"("thinking_budget": "much")"), "thinking_budget");
  EXPECT_EQ(Refused(R"("thinking_budget": -2)"), "thinking_budget");
  EXPECT_EQ(Refused(R"("reasoning": 5)"), "reasoning");
  EXPECT_EQ(Refused(R"("thinking": {})"), "thinking");
}

}  // namespace
}  // namespace macrame::agentd
