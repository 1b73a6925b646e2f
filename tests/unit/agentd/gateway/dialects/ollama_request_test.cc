#include "agentd/gateway/dialects/ollama_request.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

namespace macrame::agentd {
namespace {

using nlohmann::json;

json ChatBody(const json& more) {
  json body = {{"model", "tiny"}, {"messages", {{{"role", "user"}, {"content", "Hello"}}}}};
  body.update(more);
  return body;
}

using Parsed = std::variant<OllamaRequest, ApiError>;

OllamaRequest Good(Parsed read) {
  if (auto* error = std::get_if<ApiError>(&read)) {
    ADD_FAILURE() << error->message;
    return {};
  }
  return std::get<OllamaRequest>(std::move(read));
}
OllamaRequest Chat(const json& more) { return Good(ParseOllamaChat(ChatBody(more).dump(), 32)); }
OllamaRequest Generate(const json& body) { return Good(ParseOllamaGenerate(body.dump(), 32)); }

std::string Refusal(Parsed read) {
  if (!std::holds_alternative<ApiError>(read)) return "was taken";
  return std::get<ApiError>(read).message;
}

TEST(OllamaRequest, StreamsUnlessToldOtherwise) {
  EXPECT_TRUE(Chat(json::object()).chat.stream);
  EXPECT_FALSE(Chat({{"stream", false}}).chat.stream);
  EXPECT_EQ(Chat({{"model", "tiny:latest"}}).chat.generate.deployment(), "tiny");
}

TEST(OllamaRequest, OptionsReachTheSampler) {
  const OllamaRequest read = Chat({{"options",
                                    {{"num_predict", 5},
                                     {"temperature", 0.5},
                                     {"top_k", 40},
                                     {"top_p", 0.9},
                                     {"min_p", 0.1},
                                     {"seed", 7},
                                     {"stop", {"END"}},
                                     {"repeat_penalty", 1.1},
                                     {"presence_penalty", 0.5},
                                     {"num_ctx", 8192},
                                     {"num_gpu", 1}}}});
  const v1::GenerateRequest& generate = read.chat.generate;
  EXPECT_EQ(generate.max_tokens(), 5u);
  EXPECT_EQ(generate.sampling().temperature(), 0.5);
  EXPECT_EQ(generate.sampling().top_k(), 40u);
  EXPECT_EQ(generate.sampling().seed(), 7u);
  EXPECT_EQ(generate.sampling().repetition_penalty(), 1.1);
  EXPECT_EQ(generate.stop(0), "END");
  EXPECT_EQ(read.chat.ignored, (std::vector<std::string>{"options.num_ctx", "options.num_gpu"}));
  const OllamaRequest any = Chat({{"options", {{"num_predict", -1}, {"seed", -1}}}});
  EXPECT_EQ(any.chat.generate.max_tokens(), 0u);
  EXPECT_FALSE(any.chat.generate.sampling().has_seed());
}

TEST(OllamaRequest, WholeOptionsMayBeWrittenAsFloats) {
  const v1::GenerateRequest set =
      Chat({{"options", {{"num_predict", 128.0}, {"top_k", 40.0}, {"seed", 42.0}}}}).chat.generate;
  EXPECT_EQ(set.max_tokens(), 128u);
  EXPECT_EQ(set.sampling().top_k(), 40u);
  EXPECT_EQ(set.sampling().seed(), 42u);
  const v1::GenerateRequest any =
      Chat({{"options", {{"num_predict", -1.0}, {"seed", -1.0}}}}).chat.generate;
  EXPECT_EQ(any.max_tokens(), 0u);
  EXPECT_FALSE(any.sampling().has_seed());
}

// Ollama's runner counts from 1 on.
TEST(OllamaRequest, NoTokensToPredictIsNoLimit) {
  for (const json& none : {json(0), json(0.0)}) {
    EXPECT_EQ(Chat({{"options", {{"num_predict", none}}}}).chat.generate.max_tokens(), 0u);
    const OllamaRequest raw = Generate(
        {{"model", "m"}, {"prompt", "a"}, {"raw", true}, {"options", {{"num_predict", none}}}});
    EXPECT_EQ(raw.chat.generate.max_tokens(), 0u);
  }
}

TEST(OllamaRequest, ResultsTakeTheIdsOfTheirCalls) {
  const auto call = [](const char* name) {
    return json{{"function", {{"name", name}, {"arguments", {{"city", "Oslo"}}}}}};
  };
  const json turns = {{{"role", "user"}, {"content", "?"}},
                      {{"role", "assistant"},
                       {"content", ""},
                       {"thinking", "Look."},
                       {"tool_calls", {call("get"), call("now")}}},
                      {{"role", "tool"}, {"tool_name", "now"}, {"content", "noon"}},
                      {{"role", "tool"}, {"tool_name", "get"}, {"content", "7"}}};
  const OllamaRequest read = Chat({{"messages", turns}});
  const auto& messages = read.chat.generate.messages();
  EXPECT_EQ(messages[1].reasoning(), "Look.");
  EXPECT_EQ(messages[1].tool_calls(0).arguments(), R"({"city":"Oslo"})");
  EXPECT_EQ(messages[2].tool_call_id(), messages[1].tool_calls(1).id());
  EXPECT_EQ(messages[3].tool_call_id(), messages[1].tool_calls(0).id());
}

TEST(OllamaRequest, FormatAndThink) {
  EXPECT_TRUE(Chat({{"format", "json"}}).chat.generate.structure().json_object());
  EXPECT_EQ(Chat({{"format", {{"type", "object"}}}}).chat.generate.structure().json_schema(),
            R"({"type":"object"})");
  EXPECT_FALSE(Chat({{"format", ""}}).chat.generate.has_structure());
  EXPECT_TRUE(Chat({{"think", true}}).chat.generate.reasoning().enabled());
  EXPECT_FALSE(Chat({{"think", false}}).chat.generate.reasoning().enabled());
  EXPECT_NE(Chat({{"think", "high"}}).chat.generate.template_arguments_json().find("high"),
            std::string::npos);
}

TEST(OllamaRequest, APromptIsAChatUnlessItIsRaw) {
  const OllamaRequest chat =
      Generate({{"model", "tiny"}, {"system", "Brief."}, {"prompt", "Hello"}});
  EXPECT_EQ(chat.chat.generate.messages(0).role(), "system");
  EXPECT_EQ(chat.chat.generate.messages(1).content(), "Hello");
  const OllamaRequest raw = Generate({{"model", "tiny"}, {"prompt", "Hello"}, {"raw", true}});
  EXPECT_EQ(raw.chat.generate.prompt(), "Hello");
  EXPECT_TRUE(raw.chat.generate.plain_text());
  EXPECT_EQ(raw.chat.generate.messages_size(), 0);
  EXPECT_EQ(raw.chat.generate.max_tokens(), 0u);
  const OllamaRequest cut = Generate(
      {{"model", "tiny"}, {"prompt", "Hello"}, {"raw", true}, {"options", {{"num_predict", 3}}}});
  EXPECT_EQ(cut.chat.generate.max_tokens(), 3u);
}

TEST(OllamaRequest, NoPromptAsksForTheModel) {
  EXPECT_TRUE(Generate({{"model", "tiny"}}).is_load);
  EXPECT_TRUE(Chat({{"messages", json::array()}}).is_load);
  const json unload = {{"model", "tiny"}, {"keep_alive", 0}};
  EXPECT_NE(Refusal(ParseOllamaGenerate(unload.dump(), 32)).find("clusterctl model unload"),
            std::string::npos);
}

TEST(OllamaRequest, WhatCannotBeHonouredIsRefusedByName) {
  const std::pair<json, const char*> kRefused[] = {
      {{{"images", {"aGk="}}}, "images"},
      {{{"messages", {{{"role", "user"}, {"content", "x"}, {"images", {"aGk="}}}}}}, "images"},
      {{{"template", "{{ .Prompt }}"}}, "template"},
      {{{"suffix", "end"}}, "suffix"},
      {{{"context", {1, 2}}}, "context"},
      {{{"logprobs", true}}, "logprobs"},
      {{{"options", {{"mirostat", 2}}}}, "options.mirostat"},
      {{{"options", {{"repeat_penalty", 0}}}}, "repeat_penalty"},
      {{{"options", {{"num_predict", 1.5}}}}, "num_predict"},
      {{{"options", 7}}, "options"},
      {{{"format", 7}}, "format"},
      {{{"think", "much"}}, "think"},
      {{{"stream", "no"}}, "stream"},
      {{{"model", nullptr}}, "'model' is missing"}};
  for (const auto& [more, expected] : kRefused) {
    const std::string message = Refusal(ParseOllamaChat(ChatBody(more).dump(), 32));
    EXPECT_NE(message.find(expected), std::string::npos) << more << "\n" << message;
  }
}

TEST(OllamaRequest, EmbeddingsOfOneOrMany) {
  const json body = {{"model", "tiny"}, {"input", {"a", "b"}}, {"dimensions", 2}};
  auto read = ParseOllamaEmbed(body.dump(), 32);
  ASSERT_TRUE(std::holds_alternative<EmbeddingRequest>(read));
  EXPECT_EQ(std::get<EmbeddingRequest>(read).inputs.size(), 2u);
  EXPECT_EQ(std::get<EmbeddingRequest>(read).generate.embedding().dimensions(), 2u);
  const json older = {{"model", "tiny"}, {"prompt", "a"}};
  EXPECT_TRUE(std::holds_alternative<EmbeddingRequest>(ParseOllamaEmbeddings(older.dump(), 32)));
  // Open WebUI says what Ollama does anyway.
  for (const json& truncate : {json(true), json(false), json(nullptr)}) {
    const json cut = {{"model", "tiny"}, {"input", "a"}, {"truncate", truncate}};
    EXPECT_TRUE(std::holds_alternative<EmbeddingRequest>(ParseOllamaEmbed(cut.dump(), 32)))
        << truncate;
  }
}

}  // namespace
}  // namespace macrame::agentd
