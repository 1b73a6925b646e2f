#include "agentd/gateway/dialects/chat_request.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

namespace macrame::agentd {
namespace {

using nlohmann::json;

json Minimal() {
  return {{"model", "tiny"}, {"messages", {{{"role", "user"}, {"content", "hi"}}}}};
}

std::variant<ChatRequest, ApiError> Parse(const json& body) {
  return ParseChatRequest(body.dump(), 32);
}

ChatRequest Accepted(const json& body) {
  auto parsed = Parse(body);
  if (auto* error = std::get_if<ApiError>(&parsed)) {
    ADD_FAILURE() << error->message << " for " << body.dump();
    return {};
  }
  return std::get<ChatRequest>(std::move(parsed));
}

ChatRequest With(const char* name, json value) {
  json body = Minimal();
  body[name] = std::move(value);
  return Accepted(body);
}

// The refused field; empty when the body was taken.
std::string Refused(const char* name, json value) {
  json body = Minimal();
  body[name] = std::move(value);
  auto parsed = Parse(body);
  const auto* error = std::get_if<ApiError>(&parsed);
  if (error == nullptr) return "";
  EXPECT_EQ(error->http_status, 400);
  EXPECT_EQ(error->type, "invalid_request_error");
  EXPECT_FALSE(error->message.empty());
  EXPECT_FALSE(error->code.empty());
  return error->param;
}

TEST(ChatRequest, TheLeastRequestLeavesAllToTheModel) {
  const ChatRequest request = Accepted(Minimal());
  EXPECT_EQ(request.generate.deployment(), "tiny");
  ASSERT_EQ(request.generate.messages_size(), 1);
  EXPECT_EQ(request.generate.messages(0).role(), "user");
  EXPECT_EQ(request.generate.messages(0).content(), "hi");
  EXPECT_FALSE(request.generate.sampling().has_temperature());
  EXPECT_FALSE(request.generate.sampling().has_seed());
  EXPECT_EQ(request.generate.max_tokens(), 0u);
  EXPECT_FALSE(request.stream);
}

TEST(ChatRequest, SamplingIsTakenOver) {
  json body = Minimal();
  body.update({{"temperature", 0.5},
               {"top_p", 0.9},
               {"top_k", 40},
               {"min_p", 0.05},
               {"seed", -1},
               {"max_tokens", 7},
               {"stop", {"a", "b", "c", "d", "e"}}});
  const v1::GenerateRequest generate = Accepted(body).generate;
  EXPECT_DOUBLE_EQ(generate.sampling().temperature(), 0.5);
  EXPECT_DOUBLE_EQ(generate.sampling().top_p(), 0.9);
  EXPECT_EQ(generate.sampling().top_k(), 40u);
  EXPECT_DOUBLE_EQ(generate.sampling().min_p(), 0.05);
  EXPECT_EQ(generate.sampling().seed(), ~uint64_t{0});
  EXPECT_EQ(generate.max_tokens(), 7u);
  EXPECT_EQ(generate.stop_size(), 5);
  EXPECT_EQ(With("stop", "END").generate.stop(0), "END");
  EXPECT_EQ(With("max_completion_tokens", 9).generate.max_tokens(), 9u);
  EXPECT_EQ(With("top_k", -1).generate.sampling().top_k(), 0u);
}

TEST(ChatRequest, ContentPartsAreJoinedAndDevelopersAreSystem) {
  json body = Minimal();
  body["messages"] = json::parse(R"([
    {"role":"developer","content":"be brief"},
    {"role":"user","content":[{"type":"text","text":"a"},{"type":"text","text":"b"}],"name":"x"},
    {"role":"assistant","content":null},
    {"role":"user","content":""}])");
  const v1::GenerateRequest generate = Accepted(body).generate;
  EXPECT_EQ(generate.messages(0).role(), "system");
  EXPECT_EQ(generate.messages(1).content(), "ab");
  EXPECT_EQ(generate.messages(2).content(), "");
}

TEST(ChatRequest, EachMessageMayNameItsSpeaker) {
  json body = Minimal();
  body["messages"] = json::parse(R"([
    {"role":"system","name":"house","content":"a"},
    {"role":"user","name":"alice","content":"b"},
    {"role":"assistant","name":"critic","content":"c"},
    {"role":"tool","name":"find","tool_call_id":"1","content":"d"},
    {"role":"user","name":null,"content":"e"},
    {"role":"user","name":"","content":"f"}])");
  const v1::GenerateRequest generate = Accepted(body).generate;
  std::vector<std::string> names;
  for (const v1::ChatMessage& message : generate.messages()) names.push_back(message.name());
  EXPECT_EQ(names, (std::vector<std::string>{"house", "alice", "critic", "find", "", ""}));
  EXPECT_EQ(generate.messages(1).content(), "b");
}

// Clients of OpenAI's responses send their names of parts in chats, too.
TEST(ChatRequest, PartsOfResponsesAreText) {
  json body = Minimal();
  body["messages"] = json::parse(R"([
    {"role":"user","content":[{"type":"input_text","text":"a"},{"type":"text","text":"b"}]},
    {"role":"assistant","content":[{"type":"output_text","text":"c"}]},
    {"role":"user","content":[{"type":"input_text","text":"d"}]}])");
  const ChatRequest request = Accepted(body);
  EXPECT_EQ(request.generate.messages(0).content(), "ab");
  EXPECT_EQ(request.generate.messages(1).content(), "c");
  EXPECT_EQ(request.generate.messages(2).content(), "d");
  EXPECT_TRUE(request.ignored.empty());
}

TEST(ChatRequest, WrongMessagesAreNamedByTheirPlace) {
  const auto refused = [](const char* messages) {
    json body = Minimal();
    body["messages"] = json::parse(messages);
    auto parsed = Parse(body);
    const auto* error = std::get_if<ApiError>(&parsed);
    return error == nullptr ? std::string("taken") : error->param;
  };
  EXPECT_EQ(refused("[]"), "messages");
  EXPECT_EQ(refused("{}"), "messages");
  EXPECT_EQ(refused("[1]"), "messages[0]");
  EXPECT_EQ(refused(R"([{"content":"x"}])"), "messages[0].role");
  EXPECT_EQ(refused(R"([{"role":"admin","content":"x"}])"), "messages[0].role");
  EXPECT_EQ(refused(R"([{"role":"function","content":"x"}])"), "messages[0].role");
  EXPECT_EQ(refused(R"([{"role":"tool","content":"x","tool_call_id":5}])"),
            "messages[0].tool_call_id");
  EXPECT_EQ(refused(R"([{"role":"user"}])"), "messages[0].content");
  EXPECT_EQ(refused(R"([{"role":"user","name":5,"content":"x"}])"), "messages[0].name");
  const std::string named = R"([{"role":"user","content":"x","name":")" +
                            std::string(kMessageNameBytesMax + 1, 'a') + "\"}]";
  EXPECT_EQ(refused(named.c_str()), "messages[0].name");
  EXPECT_EQ(refused(R"([{"role":"user","content":5}])"), "messages[0].content");
  EXPECT_EQ(refused(R"([{"role":"user","content":[{"type":"text"}]}])"),
            "messages[0].content[0].text");
  EXPECT_EQ(refused(R"([{"role":"user","content":[{"type":"input_text","input_text":"a"}]}])"),
            "messages[0].content[0].text");
  EXPECT_EQ(refused(R"([{"role":"user","content":[{"type":"novel","text":"a"}]}])"),
            "messages[0].content[0].type");
  EXPECT_EQ(refused(R"([{"role":"user","content":[{"type":"image_url","image_url":{}}]}])"),
            "messages[0].content[0].type");
  EXPECT_EQ(refused(R"([{"role":"user","content":"x"},
                        {"role":"assistant","tool_calls":[{"id":"1"}]}])"),
            "messages[1].tool_calls[0].function");
  EXPECT_EQ(refused(R"([{"role":"assistant","tool_calls":{}}])"), "messages[0].tool_calls");
  EXPECT_EQ(refused(R"([{"role":"assistant","tool_calls":[{"function":{"name":""}}]}])"),
            "messages[0].tool_calls[0].function.name");
  EXPECT_EQ(refused(R"([{"role":"assistant",
                         "tool_calls":[{"function":{"name":"f","arguments":5}}]}])"),
            "messages[0].tool_calls[0].function.arguments");
}

TEST(ChatRequest, NumbersAreHeldToTheirRanges) {
  const json huge = 1e300;
  for (const char* name : {"temperature", "top_p", "min_p"}) {
    EXPECT_EQ(Refused(name, -0.1), name);
    EXPECT_EQ(Refused(name, 2.1), name);
    EXPECT_EQ(Refused(name, huge), name);
    EXPECT_EQ(Refused(name, "1"), name);
    EXPECT_EQ(Refused(name, true), name);
    EXPECT_EQ(Refused(name, nullptr), "");
  }
  for (const char* name : {"max_tokens", "max_completion_tokens"}) {
    EXPECT_EQ(Refused(name, -1), "") << "no limit";
    for (const json& value : {json(0), json(-2), json(1.5), json(uint64_t{1} << 31),
                              json(uint64_t{1} << 53), json(~uint64_t{0}), json("9"), huge}) {
      EXPECT_EQ(Refused(name, value), name) << value;
    }
  }
  for (const json& value : {json(-2), json(1.5), json(~uint64_t{0}), huge}) {
    EXPECT_EQ(Refused("top_k", value), "top_k") << value;
  }
  EXPECT_EQ(Refused("seed", 1.5), "seed");
  EXPECT_EQ(Refused("n", 9), "n");
  EXPECT_EQ(Refused("n", 0), "n");
  EXPECT_EQ(Refused("n", 1), "");
}

TEST(ChatRequest, WhatWouldChangeTheMeaningIsRefusedAndItsDefaultTaken) {
  EXPECT_EQ(Refused("functions", json::array({{{"name", "f"}}})), "functions");
  EXPECT_EQ(Refused("tools", json::array()), "");
  EXPECT_EQ(Refused("tool_choice", "required"), "tool_choice");
  EXPECT_EQ(Refused("tool_choice", "auto"), "");
  EXPECT_EQ(Refused("response_format", {{"type", "json_schema"}}), "response_format.json_schema");
  EXPECT_EQ(Refused("response_format", {{"type", "json_object"}}), "");
  EXPECT_EQ(Refused("response_format", {{"type", "text"}}), "");
  EXPECT_EQ(Refused("logprobs", false), "");
  EXPECT_EQ(Refused("top_logprobs", 3), "top_logprobs");
  EXPECT_EQ(Refused("audio", json::object()), "audio");
  EXPECT_EQ(Refused("modalities", {"text", "audio"}), "modalities");
  EXPECT_EQ(Refused("modalities", json::array({"text"})), "");
  EXPECT_EQ(Refused("presence_penalty", 0), "");
  EXPECT_EQ(Refused("repeat_penalty", 1.1), "repeat_penalty");
  EXPECT_EQ(Refused("repeat_penalty", 1.0), "");
  EXPECT_EQ(Refused("best_of", 3), "best_of");
  EXPECT_EQ(Refused("use_beam_search", true), "use_beam_search");
  EXPECT_EQ(Refused("prompt_logprobs", 1), "prompt_logprobs");
  EXPECT_EQ(Refused("bad_words", json::array({"x"})), "bad_words");
  EXPECT_EQ(Refused("stream_options", {{"include_usage", true}}), "stream_options");
  EXPECT_EQ(Refused("stop", ""), "stop");
  EXPECT_EQ(Refused("stop", json::array({"a", ""})), "stop[1]");
  EXPECT_EQ(Refused("stop", json(std::vector<std::string>(17, "a"))), "stop");
  EXPECT_EQ(Refused("model", ""), "model");
  EXPECT_EQ(Refused("model", nullptr), "model");
  EXPECT_EQ(Refused("model", std::string(257, 'a')), "model");
  EXPECT_EQ(Refused("stream", "yes"), "stream");
}

TEST(ChatRequest, WhatHasNoEffectHereIsTaken) {
  json body = Minimal();
  body.update({{"user", "u"},
               {"metadata", {{"a", "b"}}},
               {"store", true},
               {"service_tier", "auto"},
               {"safety_identifier", "s"},
               {"prompt_cache_key", "k"},
               {"verbosity", "low"},
               {"parallel_tool_calls", true},
               {"stream", true},
               {"stream_options", {{"include_usage", true}, {"include_obfuscation", false}}}});
  const ChatRequest request = Accepted(body);
  EXPECT_TRUE(request.ignored.empty());
  EXPECT_TRUE(request.stream);
  EXPECT_TRUE(request.include_usage);
}

TEST(ChatRequest, UnknownFieldsAreNamedSafely) {
  const ChatRequest request = With("max_token\r\nx: y", 5);
  ASSERT_EQ(request.ignored.size(), 1u);
  EXPECT_EQ(request.ignored[0], "max_token--x--y");
}

TEST(ChatRequest, TemplateArgumentsReachTheTemplate) {
  json body = Minimal();
  body.update({{"chat_template_kwargs", {{"a", 1}}},
               {"enable_thinking", false},
               {"reasoning_effort", "low"}});
  const json arguments = json::parse(Accepted(body).generate.template_arguments_json());
  EXPECT_EQ(arguments, (json{{"a", 1}, {"enable_thinking", false}, {"reasoning_effort", "low"}}));
}

TEST(ChatRequest, BrokenJsonIsAnErrorAndNothingMore) {
  const std::string deep(100'000, '[');
  for (const std::string& body :
       {std::string(""), std::string("{"), std::string("null"), std::string("[]"),
        std::string("{\"model\":NaN}"), std::string("{\"model\":1e999}"),
        std::string("{\"model\":\"\xFF\"}"), std::string("{\"model\":\"\\ud80\"}"), deep,
        deep + std::string(100'000, ']'), std::string("{\"a\":1}{"), std::string("\0", 1)}) {
    auto parsed = ParseChatRequest(body, 32);
    ASSERT_TRUE(std::holds_alternative<ApiError>(parsed)) << body.substr(0, 40);
    EXPECT_EQ(std::get<ApiError>(parsed).http_status, 400);
  }
}

}  // namespace
}  // namespace macrame::agentd
