#include "agentd/gateway/dialects/text_answer.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "agentd/gateway/dialects/answer_stream.h"

namespace macrame::agentd {
namespace {

using nlohmann::json;

AnswerHead Head() {
  AnswerHead head;
  head.form = AnswerForm::kText;
  head.id = "cmpl-1";
  head.model = "m";
  return head;
}

v1::GenerateChunk Chunk(const std::string& text) {
  v1::GenerateChunk chunk;
  chunk.set_text(text);
  return chunk;
}

void AddLogprob(v1::GenerateChunk& chunk, const std::string& text, float logprob) {
  v1::TokenLogprob& token = *chunk.add_logprobs();
  token.set_text(text);
  token.set_logprob(logprob);
  v1::TokenLogprob& top = *token.add_top();
  top.set_text("top");
  top.set_logprob(-0.125F);
}

v1::GenerateChunk Last(v1::FinishReason reason, uint32_t prompt, uint32_t completion) {
  v1::GenerateChunk chunk;
  chunk.set_finish_reason(reason);
  chunk.set_prompt_tokens(prompt);
  chunk.set_completion_tokens(completion);
  return chunk;
}

json Payload(const std::string& event) { return json::parse(event.substr(6)); }

TEST(TextAnswer, ABodyIsOpenAisTextCompletion) {
  AnswerHead head = Head();
  head.has_logprobs = true;
  v1::GenerateChunk chunk = Chunk("h\xC3\xA9y");
  AddLogprob(chunk, "h", -0.5F);
  AddLogprob(chunk, "\xC3\xA9", -1.0F);
  AddLogprob(chunk, "y", -2.0F);
  CollectedText answer;
  answer.Add(chunk);
  answer.Add(Last(v1::FINISH_REASON_LENGTH, 4, 3));
  const json body = json::parse(TextCompletionBody(head, {answer}));
  EXPECT_EQ(body["object"], "text_completion");
  const json& choice = body["choices"][0];
  EXPECT_EQ(choice["text"], "h\xC3\xA9y");
  EXPECT_EQ(choice["finish_reason"], "length");
  const json& logprobs = choice["logprobs"];
  EXPECT_EQ(logprobs["tokens"], (json{"h", "\xC3\xA9", "y"}));
  EXPECT_EQ(logprobs["token_logprobs"], (json{-0.5, -1.0, -2.0}));
  EXPECT_EQ(logprobs["text_offset"], (json{0, 1, 2})) << "in characters, not bytes";
  EXPECT_EQ(logprobs["top_logprobs"][2], (json{{"top", -0.125}}));
  EXPECT_EQ(body["usage"]["total_tokens"], 7);
}

TEST(TextAnswer, EveryPromptIsCountedOnce) {
  AnswerHead head = Head();
  head.choices = 4;
  head.choices_per_prompt = 2;
  std::vector<CollectedText> answers(4);
  for (uint32_t i = 0; i < 4; ++i) answers[i].Add(Last(v1::FINISH_REASON_STOP, i < 2 ? 10 : 20, 3));
  const json usage = json::parse(TextCompletionBody(head, answers))["usage"];
  EXPECT_EQ(usage["prompt_tokens"], 30);
  EXPECT_EQ(usage["completion_tokens"], 12);
}

TEST(TextAnswer, AnEchoComesFirst) {
  AnswerHead head = Head();
  head.echoes = {"Once "};
  CollectedText answer;
  answer.Add(Chunk("upon"));
  const json body = json::parse(TextCompletionBody(head, {answer}));
  EXPECT_EQ(body["choices"][0]["text"], "Once upon");
  StreamComposer composer(head);
  EXPECT_EQ(Payload(composer.Open())["choices"][0]["text"], "Once ");
  EXPECT_EQ(Payload(composer.Chunk(Chunk("upon")))["choices"][0]["text"], "upon");
}

TEST(TextAnswer, AStreamOpensWithText) {
  StreamComposer composer(Head());
  EXPECT_EQ(composer.Open(), "");
  v1::GenerateChunk first = Chunk("ab"), second = Chunk("c");
  AddLogprob(first, "ab", -0.5F);
  AddLogprob(second, "c", -0.5F);
  const json event = Payload(composer.Chunk(first));
  EXPECT_EQ(event["object"], "text_completion");
  EXPECT_TRUE(event["choices"][0]["finish_reason"].is_null());
  EXPECT_EQ(Payload(composer.Chunk(second))["choices"][0]["logprobs"]["text_offset"], (json{2}))
      << "offsets go on from event to event";
  composer.Chunk(Last(v1::FINISH_REASON_STOP, 1, 2));
  const std::string end = composer.End(absl::OkStatus());
  EXPECT_EQ(Payload(end.substr(0, end.find("data: [DONE]")))["choices"][0]["finish_reason"],
            "stop");
  EXPECT_TRUE(composer.ended());
}

}  // namespace
}  // namespace macrame::agentd
