#include "agentd/gateway/dialects/token_request.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "agentd/gateway/dialects/token_answer.h"

namespace macrame::agentd {
namespace {

using nlohmann::json;
using Parsed = std::variant<ChatRequest, ApiError>;

v1::GenerateRequest Good(Parsed read) {
  if (auto* error = std::get_if<ApiError>(&read)) {
    ADD_FAILURE() << error->message;
    return {};
  }
  return std::get<ChatRequest>(read).generate;
}
v1::GenerateRequest Tokenize(const json& body) {
  return Good(ParseTokenizeRequest(body.dump(), 32));
}
std::string Refusal(const Parsed& read) {
  return std::holds_alternative<ApiError>(read) ? std::get<ApiError>(read).message : "was taken";
}

TEST(TokenRequest, TextWithAndWithoutSpecialTokens) {
  const v1::GenerateRequest text = Tokenize({{"model", "tiny"}, {"prompt", "Hello"}});
  EXPECT_EQ(text.prompt(), "Hello");
  EXPECT_EQ(text.messages_size(), 0);
  EXPECT_TRUE(text.tokenize().add_special_tokens());
  EXPECT_FALSE(Tokenize({{"model", "tiny"}, {"prompt", ""}, {"add_special_tokens", false}})
                   .tokenize()
                   .add_special_tokens());
}

TEST(TokenRequest, AChatWithItsToolsAndItsOpening) {
  const json messages = {{{"role", "user"}, {"content", "Hello"}}};
  const v1::GenerateRequest chat =
      Tokenize({{"model", "tiny"},
                {"messages", messages},
                {"tools", {{{"type", "function"}, {"function", {{"name", "get"}}}}}}});
  EXPECT_EQ(chat.messages(0).content(), "Hello");
  EXPECT_FALSE(chat.tokenize().without_opening());
  EXPECT_NE(chat.tools().tools_json().find("get"), std::string::npos);
  EXPECT_TRUE(
      Tokenize({{"model", "tiny"}, {"messages", messages}, {"add_generation_prompt", false}})
          .tokenize()
          .without_opening());
}

TEST(TokenRequest, IdsBecomeText) {
  const json body = {{"model", "tiny"}, {"tokens", {72, 105}}};
  const v1::GenerateRequest read = Good(ParseDetokenizeRequest(body.dump(), 32));
  EXPECT_TRUE(read.tokenize().detokenize());
  EXPECT_EQ(read.prompt_token_ids_size(), 2);
}

TEST(TokenRequest, IdsAreCountedBeforeTheyAreRead) {
  const auto body = [](size_t count, const char* end) {
    std::string text = R"({"model":"tiny","tokens":[7)";
    for (size_t i = 1; i < count; ++i) text += ",7";
    return text + end;
  };
  EXPECT_EQ(Good(ParseDetokenizeRequest(body(kTokensMax, "]}"), 32)).prompt_token_ids_size(),
            static_cast<int>(kTokensMax));
  // Cut off: who reads first finds malformed JSON.
  for (const char* end : {"]}", "", "],\"tokens\":[7]}"}) {
    const Parsed read = ParseDetokenizeRequest(body(kTokensMax + 1, end), 32);
    ASSERT_TRUE(std::holds_alternative<ApiError>(read)) << end;
    const ApiError& error = std::get<ApiError>(read);
    EXPECT_EQ(error.http_status, 413) << error.message;
    EXPECT_EQ(error.param, "tokens");
    EXPECT_NE(error.message.find(std::to_string(kTokensMax)), std::string::npos) << error.message;
  }
}

TEST(TokenRequest, WhatCannotBeIsRefusedByName) {
  const std::pair<json, const char*> kRefused[] = {
      {{{"model", "tiny"}}, "'prompt' or 'messages'"},
      {{{"model", "tiny"}, {"prompt", 7}}, "'prompt'"},
      {{{"prompt", "x"}}, "'model'"},
      {{{"model", "tiny"}, {"prompt", "x"}, {"return_token_strs", true}}, "return_token_strs"},
      {{{"model", "tiny"}, {"prompt", "x"}, {"chat_template", "t"}}, "chat_template"},
      {{{"model", "tiny"}, {"prompt", "x"}, {"add_special_tokens", 1}}, "add_special_tokens"}};
  for (const auto& [body, expected] : kRefused) {
    const std::string message = Refusal(ParseTokenizeRequest(body.dump(), 32));
    EXPECT_NE(message.find(expected), std::string::npos) << body << "\n" << message;
  }
  for (const json& tokens : {json("x"), json({-1}), json({1.5}), json({1ULL << 40})}) {
    const json body = {{"model", "tiny"}, {"tokens", tokens}};
    EXPECT_NE(Refusal(ParseDetokenizeRequest(body.dump(), 32)).find("tokens"), std::string::npos)
        << tokens;
  }
}

TEST(TokenAnswer, EachFormHasItsBody) {
  CollectedTokens told;
  v1::GenerateChunk chunk;
  chunk.set_prompt_tokens(2);
  chunk.add_token_ids(72);
  chunk.add_token_ids(105);
  chunk.set_text("Hi");
  told.Add(chunk);
  AnswerHead head;
  head.form = AnswerForm::kTokenCount;
  EXPECT_EQ(TokensBody(head, {told}), R"({"input_tokens":2})");
  head.form = AnswerForm::kTokenText;
  EXPECT_EQ(TokensBody(head, {told}), R"({"prompt":"Hi"})");
  head.form = AnswerForm::kTokens;
  head.context_length = 4096;
  EXPECT_EQ(TokensBody(head, {told}),
            R"({"count":2,"max_model_len":4096,"tokens":[72,105],"token_strs":null})");
  EXPECT_FALSE(told.is_answer);
  chunk.set_completion_tokens(1);
  told.Add(chunk);
  EXPECT_TRUE(told.is_answer);
}

}  // namespace
}  // namespace macrame::agentd
