#include "agentd/gateway/chat_answer.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

namespace macrame::agentd {
namespace {

using nlohmann::json;

ChatAnswerHead Head(bool include_usage) {
  return {"chatcmpl-1", 1'700'000'000, "tiny", "macrame-1", include_usage};
}

json Payload(const std::string& event) {
  EXPECT_EQ(event.rfind("data: ", 0), 0u) << event;
  EXPECT_EQ(event.substr(event.size() - 2), "\n\n");
  return json::parse(event.substr(6));
}

v1::GenerateChunk Chunk(const std::string& text, v1::FinishReason finish, uint32_t prompt,
                        uint32_t completion) {
  v1::GenerateChunk chunk;
  chunk.set_text(text);
  chunk.set_finish_reason(finish);
  chunk.set_prompt_tokens(prompt);
  chunk.set_completion_tokens(completion);
  return chunk;
}

TEST(ChatAnswer, ABodyHasEveryField) {
  const json body = json::parse(ChatCompletionBody(Head(false), "hi", "length", {3, 4, 2}));
  EXPECT_EQ(body["object"], "chat.completion");
  EXPECT_EQ(body["id"], "chatcmpl-1");
  EXPECT_EQ(body["created"], 1'700'000'000);
  EXPECT_EQ(body["choices"].size(), 1u);
  EXPECT_EQ(body["choices"][0]["index"], 0);
  EXPECT_EQ(body["choices"][0]["message"]["role"], "assistant");
  EXPECT_EQ(body["choices"][0]["message"]["content"], "hi");
  EXPECT_TRUE(body["choices"][0]["message"]["refusal"].is_null());
  EXPECT_EQ(body["choices"][0]["finish_reason"], "length");
  EXPECT_TRUE(body["choices"][0]["logprobs"].is_null());
  EXPECT_EQ(body["usage"]["total_tokens"], 7);
  EXPECT_EQ(body["usage"]["prompt_tokens_details"]["cached_tokens"], 2);
}

TEST(ChatAnswer, AStreamOpensWithTheRoleAndFinishesWithAnEmptyDelta) {
  StreamComposer composer(Head(false));
  const json open = Payload(composer.Open());
  EXPECT_EQ(open["object"], "chat.completion.chunk");
  EXPECT_EQ(open["choices"][0]["delta"]["role"], "assistant");
  EXPECT_TRUE(open["choices"][0]["finish_reason"].is_null());
  EXPECT_FALSE(open.contains("usage"));
  const json text = Payload(composer.Chunk(Chunk("hi", v1::FINISH_REASON_UNSPECIFIED, 5, 1)));
  EXPECT_EQ(text["choices"][0]["delta"], (json{{"content", "hi"}}));
  EXPECT_EQ(composer.Chunk(Chunk("", v1::FINISH_REASON_LENGTH, 5, 2)), "");
  const std::string end = composer.End(absl::OkStatus());
  EXPECT_TRUE(composer.ended());
  const size_t done = end.find("data: [DONE]\n\n");
  ASSERT_NE(done, std::string::npos);
  const json finish = Payload(end.substr(0, done));
  EXPECT_EQ(finish["choices"][0]["delta"], json::object());
  EXPECT_EQ(finish["choices"][0]["finish_reason"], "length");
}

TEST(ChatAnswer, UsageComesLastWithNoChoicesAndIsNullBefore) {
  StreamComposer composer(Head(true));
  EXPECT_TRUE(Payload(composer.Open())["usage"].is_null());
  EXPECT_TRUE(Payload(composer.Open()).contains("usage"));
  composer.Chunk(Chunk("a", v1::FINISH_REASON_UNSPECIFIED, 5, 0));
  composer.Chunk(Chunk("b", v1::FINISH_REASON_STOP, 0, 2));
  const std::string end = composer.End(absl::OkStatus());
  const size_t second = end.find("data: ", 1);
  const size_t done = end.find("data: [DONE]");
  const json usage = Payload(end.substr(second, done - second));
  EXPECT_TRUE(usage["choices"].is_array() && usage["choices"].empty());
  EXPECT_EQ(usage["usage"]["prompt_tokens"], 5);
  EXPECT_EQ(usage["usage"]["completion_tokens"], 2);
}

TEST(ChatAnswer, AFailureEndsTheStreamWithAnErrorObjectAndNoDone) {
  StreamComposer composer(Head(true));
  const std::string end = composer.End(absl::UnavailableError("gone"));
  EXPECT_TRUE(Payload(end).contains("error"));
  EXPECT_EQ(end.find("[DONE]"), std::string::npos);
  StreamComposer cancelled(Head(false));
  cancelled.Chunk(Chunk("", v1::FINISH_REASON_CANCELLED, 1, 1));
  EXPECT_TRUE(Payload(cancelled.End(absl::OkStatus())).contains("error"));
}

TEST(ChatAnswer, TextWithLineBreaksStaysOneEvent) {
  const std::string event = TextEvent(Head(false), "a\n\ndata: [DONE]\n\n\r\xFF");
  EXPECT_EQ(event.find('\n'), event.size() - 2);
}

}  // namespace
}  // namespace macrame::agentd
