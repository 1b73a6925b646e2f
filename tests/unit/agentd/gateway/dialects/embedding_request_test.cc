// Bodies of POST /v1/embeddings, and the answers to them.

#include "agentd/gateway/dialects/embedding_request.h"

#include <gtest/gtest.h>

#include <cstring>
#include <nlohmann/json.hpp>

#include "absl/strings/escaping.h"
#include "agentd/gateway/dialects/embedding_answer.h"

namespace macrame::agentd {
namespace {

using nlohmann::json;

std::variant<EmbeddingRequest, ApiError> Parse(json body) {
  if (!body.contains("model")) body["model"] = "m";
  return ParseEmbeddingRequest(body.dump(), 32);
}

EmbeddingRequest Good(const json& body) {
  auto parsed = Parse(body);
  if (const auto* error = std::get_if<ApiError>(&parsed)) {
    ADD_FAILURE() << error->message;
    return {};
  }
  return std::get<EmbeddingRequest>(parsed);
}

// The parameter that is refused.
std::string Refused(const json& body) {
  const auto parsed = Parse(body);
  const auto* error = std::get_if<ApiError>(&parsed);
  return error == nullptr ? "nothing" : error->param;
}

TEST(EmbeddingRequestTest, AnInputIsTextOrTokensOrAListOfThem) {
  EXPECT_EQ(Good({{"input", "Once"}}).inputs.at(0).text, "Once");
  EXPECT_EQ(Good({{"input", {5, 6}}}).inputs.at(0).token_ids, (std::vector<int32_t>{5, 6}));
  EXPECT_EQ(Good({{"input", {"a", "b"}}}).inputs.at(1).text, "b");
  EXPECT_EQ(Good({{"input", {{1, 2}, {3}}}}).inputs.at(1).token_ids, std::vector<int32_t>{3});
  EXPECT_EQ(Good({{"input", std::vector<std::string>(kInputsMax, "a")}}).inputs.size(), kInputsMax);
}

TEST(EmbeddingRequestTest, WrongInputsAreNamed) {
  EXPECT_EQ(Refused(json::object()), "input");
  EXPECT_EQ(Refused({{"input", ""}}), "input");
  EXPECT_EQ(Refused({{"input", json::array()}}), "input");
  EXPECT_EQ(Refused({{"input", {{"text", "a"}}}}), "input");
  EXPECT_EQ(Refused({{"input", {"a", ""}}}), "input[1]");
  EXPECT_EQ(Refused({{"input", {"a", 1}}}), "input[1]");
  EXPECT_EQ(Refused({{"input", {{1}, json::array()}}}), "input[1]");
  EXPECT_EQ(Refused({{"input", std::vector<std::string>(kInputsMax + 1, "a")}}), "input");
}

TEST(EmbeddingRequestTest, FormsAndDimensions) {
  EXPECT_FALSE(Good({{"input", "a"}}).as_base64);
  EXPECT_FALSE(Good({{"input", "a"}, {"encoding_format", "float"}}).as_base64);
  EXPECT_TRUE(Good({{"input", "a"}, {"encoding_format", "base64"}}).as_base64);
  EXPECT_EQ(Refused({{"input", "a"}, {"encoding_format", "int8"}}), "encoding_format");
  EXPECT_EQ(Good({{"input", "a"}}).generate.embedding().dimensions(), 0u);
  EXPECT_TRUE(Good({{"input", "a"}}).generate.has_embedding());
  EXPECT_EQ(Good({{"input", "a"}, {"dimensions", 64}}).generate.embedding().dimensions(), 64u);
  EXPECT_EQ(Refused({{"input", "a"}, {"dimensions", 0}}), "dimensions");
  EXPECT_EQ(Refused({{"input", "a"}, {"dimensions", "many"}}), "dimensions");
}

TEST(EmbeddingRequestTest, WhatWouldChangeTheNumbersIsRefusedAndTheRestNamed) {
  EXPECT_EQ(Refused({{"input", "a"}, {"normalize", false}}), "normalize");
  EXPECT_EQ(Refused({{"input", "a"}, {"truncate_prompt_tokens", 8}}), "truncate_prompt_tokens");
  EXPECT_EQ(Refused({{"input", "a"}, {"messages", {{{"role", "user"}}}}}), "messages");
  const EmbeddingRequest request =
      Good({{"input", "a"}, {"normalize", true}, {"user", "ann"}, {"input_type", "query"}});
  EXPECT_EQ(request.ignored, std::vector<std::string>{"input_type"});
  EXPECT_FALSE(request.generate.fairness_key().empty());
}

TEST(EmbeddingRequestTest, EveryInputIsARequest) {
  EmbeddingRequest request = Good({{"input", {"a", "b"}}, {"dimensions", 8}, {"cache_salt", "s"}});
  request.generate.set_request_id("id");
  const auto all = RequestsOfInputs(request);
  ASSERT_EQ(all.size(), 2u);
  EXPECT_EQ(all[0].prompt(), "a");
  EXPECT_EQ(all[1].prompt(), "b");
  EXPECT_NE(all[0].request_id(), all[1].request_id());
  EXPECT_EQ(all[1].embedding().dimensions(), 8u);
  EXPECT_EQ(all[1].deployment(), "m");
  EXPECT_FALSE(all[1].cache_salt().empty());
}

CollectedEmbedding Collected(const std::vector<float>& numbers, uint32_t prompt_tokens) {
  v1::GenerateChunk chunk;
  chunk.mutable_embedding()->Add(numbers.begin(), numbers.end());
  chunk.set_prompt_tokens(prompt_tokens);
  chunk.set_finish_reason(v1::FINISH_REASON_STOP);
  CollectedEmbedding embedding;
  embedding.Add(chunk);
  return embedding;
}

TEST(EmbeddingAnswerTest, NumbersKeepTheirBitsInBothForms) {
  const std::vector<float> numbers = {0.1F, -1.0F / 3.0F, 1e-7F, 0.0F, 3.4e-39F};
  AnswerHead head;
  head.model = "a \"model\"";
  const json list =
      json::parse(EmbeddingListBody(head, {Collected(numbers, 3), Collected({1.0F}, 4)}));
  EXPECT_EQ(list["object"], "list");
  EXPECT_EQ(list["model"], "a \"model\"");
  EXPECT_EQ(list["usage"], (json{{"prompt_tokens", 7}, {"total_tokens", 7}}));
  ASSERT_EQ(list["data"].size(), 2u);
  EXPECT_EQ(list["data"][1]["index"], 1);
  EXPECT_EQ(list["data"][0]["object"], "embedding");
  EXPECT_EQ(list["data"][0]["embedding"].get<std::vector<float>>(), numbers);

  head.as_base64 = true;
  const json packed = json::parse(EmbeddingListBody(head, {Collected(numbers, 3)}));
  std::string bytes;
  ASSERT_TRUE(absl::Base64Unescape(packed["data"][0]["embedding"].get<std::string>(), &bytes));
  ASSERT_EQ(bytes.size(), numbers.size() * 4);
  EXPECT_EQ(bytes.substr(4, 4), std::string("\xAB\xAA\xAA\xBE"));  // -1/3, lowest byte first
}

TEST(EmbeddingAnswerTest, AFailureNamesItsInput) {
  AnswerHead head;
  head.choices = 5;
  ApiError error = BadRequest("the prompt has 9 tokens", "messages", "context_length_exceeded");
  NameInput(head, 3, &error);
  EXPECT_EQ(error.param, "input");
  EXPECT_EQ(error.message, "input[3]: the prompt has 9 tokens");
  ApiError other = BadRequest("too many", "dimensions", "invalid_value");
  NameInput(head, 3, &other);
  EXPECT_EQ(other.param, "dimensions");
  ApiError full = HttpError(429, "full", "queue_full");
  NameInput(head, 3, &full);
  EXPECT_EQ(full.param, "");
}

}  // namespace
}  // namespace macrame::agentd
