#include "agentd/gateway/dialects/text_request.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <set>

namespace macrame::agentd {
namespace {

using nlohmann::json;

std::variant<TextRequest, ApiError> Parse(json body) {
  if (!body.contains("model")) body["model"] = "m";
  return ParseTextRequest(body.dump(), 32);
}

TextRequest Good(const json& body) {
  auto parsed = Parse(body);
  if (const auto* error = std::get_if<ApiError>(&parsed)) {
    ADD_FAILURE() << error->message;
    return {};
  }
  return std::get<TextRequest>(parsed);
}

// The parameter that is refused.
std::string Refused(const json& body) {
  const auto parsed = Parse(body);
  const auto* error = std::get_if<ApiError>(&parsed);
  return error == nullptr ? "nothing" : error->param;
}

TEST(TextRequestTest, APromptIsTextOrTokensOrAListOfThem) {
  EXPECT_EQ(Good({{"prompt", "Once"}}).prompts.at(0).text, "Once");
  EXPECT_EQ(Good({{"prompt", {5, 6}}}).prompts.at(0).token_ids, (std::vector<int32_t>{5, 6}));
  EXPECT_EQ(Good({{"prompt", {5.0, 6}}}).prompts.at(0).token_ids, (std::vector<int32_t>{5, 6}));
  const TextRequest texts = Good({{"prompt", {"a", "b"}}});
  ASSERT_EQ(texts.prompts.size(), 2u);
  EXPECT_EQ(texts.prompts[1].text, "b");
  const TextRequest tokens = Good({{"prompt", {{1, 2}, {3}}}});
  ASSERT_EQ(tokens.prompts.size(), 2u);
  EXPECT_EQ(tokens.prompts[1].token_ids, std::vector<int32_t>{3});
}

TEST(TextRequestTest, WrongPromptsAreNamed) {
  EXPECT_EQ(Refused(json::object()), "prompt");
  EXPECT_EQ(Refused({{"prompt", ""}}), "prompt");
  EXPECT_EQ(Refused({{"prompt", json::array()}}), "prompt");
  EXPECT_EQ(Refused({{"prompt", {{"text", "a"}}}}), "prompt");
  EXPECT_EQ(Refused({{"prompt", {1, "a"}}}), "prompt");
  EXPECT_EQ(Refused({{"prompt", {"a", 1}}}), "prompt[1]");
  EXPECT_EQ(Refused({{"prompt", {-1}}}), "prompt");
  EXPECT_EQ(Refused({{"prompt", {1.5}}}), "prompt");
  EXPECT_EQ(Refused({{"prompt", std::vector<std::string>(kAnswersMax + 1, "a")}}), "prompt");
  EXPECT_EQ(Refused({{"prompt", std::vector<std::string>(kAnswersMax / 2, "a")}, {"n", 3}}),
            "prompt");
}

TEST(TextRequestTest, EveryChoiceOfEveryPromptIsARequest) {
  TextRequest request = Good({{"prompt", {"a", "b"}}, {"n", 2}, {"seed", 7}, {"max_tokens", 5}});
  request.generate.set_request_id("id");
  const auto requests = RequestsOfPrompts(request);
  ASSERT_EQ(requests.size(), 4u);
  EXPECT_EQ(requests[0].prompt(), "a");
  EXPECT_EQ(requests[1].prompt(), "a");
  EXPECT_EQ(requests[3].prompt(), "b");
  EXPECT_EQ(requests[0].sampling().seed(), 7u);
  EXPECT_NE(requests[1].sampling().seed(), 7u);
  EXPECT_TRUE(requests[3].plain_text());
  EXPECT_EQ(requests[3].max_tokens(), 5u);
  std::set<std::string> ids;
  for (const auto& one : requests) ids.insert(one.request_id());
  EXPECT_EQ(ids.size(), 4u);
}

TEST(TextRequestTest, LengthAndLogprobsAreOpenAis) {
  const TextRequest request = Good({{"prompt", "a"}, {"logprobs", 2}});
  EXPECT_EQ(request.generate.max_tokens(), 16u);
  EXPECT_EQ(request.generate.top_logprobs(), 2u);
  EXPECT_FALSE(Good({{"prompt", "a"}}).generate.has_top_logprobs());
}

TEST(TextRequestTest, OnlyAMissingLengthIsOpenAisDefault) {
  EXPECT_EQ(Good({{"prompt", "a"}, {"max_tokens", nullptr}}).generate.max_tokens(), 16u);
  EXPECT_EQ(Good({{"prompt", "a"}, {"max_completion_tokens", 5}}).generate.max_tokens(), 5u);
  for (const char* name : {"max_tokens", "max_completion_tokens"}) {
    EXPECT_EQ(Good({{"prompt", "a"}, {name, -1}}).generate.max_tokens(), 0u) << name;
  }
}

TEST(TextRequestTest, WhatCantBeHonouredIsRefused) {
  EXPECT_EQ(Refused({{"prompt", "a"}, {"suffix", "b"}}), "suffix");
  EXPECT_EQ(Refused({{"prompt", "a"}, {"best_of", 3}}), "best_of");
  EXPECT_EQ(Refused({{"prompt", "a"}, {"echo", true}, {"logprobs", 1}}), "echo");
  EXPECT_EQ(Refused({{"prompt", {1}}, {"echo", true}}), "echo");
  EXPECT_EQ(Refused({{"prompt", "a"}, {"messages", {{{"role", "user"}}}}}), "messages");
  EXPECT_EQ(Good({{"prompt", "a"}, {"suffix", nullptr}, {"odd", 1}}).ignored,
            std::vector<std::string>{"odd"});
}

}  // namespace
}  // namespace macrame::agentd
