#include "agentd/gateway/dialects/chat_answer.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "agentd/gateway/dialects/answer_stream.h"

namespace macrame::agentd {
namespace {

using nlohmann::json;

AnswerHead Head(bool include_usage) {
  AnswerHead head;
  head.id = "chatcmpl-1";
  head.created_unix_seconds = 1'700'000'000;
  head.model = "tiny";
  head.system_fingerprint = "macrame-1";
  head.include_usage = include_usage;
  return head;
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
  CollectedAnswer choice;
  choice.Add(Chunk("hi", v1::FINISH_REASON_LENGTH, 3, 4));
  choice.counts.cached_tokens = 2;
  const json body = json::parse(ChatCompletionBody(Head(false), {choice}));
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

v1::GenerateChunk CallChunk(uint32_t index, const std::string& id, const std::string& name,
                            const std::string& arguments) {
  v1::GenerateChunk chunk;
  v1::ToolCallDelta& call = *chunk.add_tool_calls();
  call.set_index(index);
  call.set_id(id);
  call.set_name(name);
  call.set_arguments(arguments);
  return chunk;
}

TEST(ChatAnswer, CallsAndReasoningStreamAsOpenAIDoes) {
  StreamComposer composer(Head(false));
  v1::GenerateChunk thought;
  thought.set_reasoning("hm");
  EXPECT_EQ(Payload(composer.Chunk(thought))["choices"][0]["delta"],
            (json{{"reasoning_content", "hm"}}));
  const json begin = Payload(composer.Chunk(CallChunk(0, "call_1", "f", "")));
  EXPECT_EQ(begin["choices"][0]["delta"]["tool_calls"],
            json::parse(R"([{"index": 0, "id": "call_1", "type": "function",
                             "function": {"name": "f", "arguments": ""}}])"));
  const json piece = Payload(composer.Chunk(CallChunk(0, "", "", "{\"a\"")));
  EXPECT_EQ(piece["choices"][0]["delta"]["tool_calls"],
            json::parse(R"([{"index": 0, "function": {"arguments": "{\"a\""}}])"));
  composer.Chunk(Chunk("", v1::FINISH_REASON_STOP, 1, 5));
  EXPECT_NE(composer.End(absl::OkStatus()).find(R"("finish_reason":"tool_calls")"),
            std::string::npos);
}

TEST(ChatAnswer, ACutCallEndsWithLength) {
  StreamComposer composer(Head(false));
  composer.Chunk(CallChunk(0, "call_1", "f", "{"));
  composer.Chunk(Chunk("", v1::FINISH_REASON_LENGTH, 1, 5));
  EXPECT_NE(composer.End(absl::OkStatus()).find(R"("finish_reason":"length")"), std::string::npos);
}

TEST(ChatAnswer, ABodyHoldsCallsAndReasoning) {
  CollectedAnswer answer;
  v1::GenerateChunk thought;
  thought.set_reasoning("hm");
  answer.Add(thought);
  answer.Add(CallChunk(0, "call_1", "f", "{\"a\":"));
  answer.Add(CallChunk(0, "", "", " 1}"));
  answer.Add(CallChunk(1, "call_2", "g", "{}"));
  const auto body = [&answer](const AnswerHead& head) {
    const json whole = json::parse(ChatCompletionBody(head, {answer}));
    return whole["choices"][0]["message"];
  };
  const json message = body(Head(false));
  EXPECT_TRUE(message["content"].is_null());
  EXPECT_EQ(message["reasoning_content"], "hm");
  ASSERT_EQ(message["tool_calls"].size(), 2U);
  EXPECT_EQ(message["tool_calls"][0], json::parse(R"({"id": "call_1", "type": "function",
                            "function": {"name": "f", "arguments": "{\"a\": 1}"}})"));
  EXPECT_EQ(message["tool_calls"][1]["id"], "call_2");
  AnswerHead silent = Head(false);
  silent.excludes_reasoning = true;
  EXPECT_FALSE(body(silent).contains("reasoning_content"));
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
  const std::string event = TextEvent(
      Head(false), Chunk("a\n\ndata: [DONE]\n\n\r\xFF", v1::FINISH_REASON_UNSPECIFIED, 1, 1));
  EXPECT_EQ(event.find('\n'), event.size() - 2);
}

// A token with one alternative.
void AddLogprob(v1::GenerateChunk& chunk, const std::string& text, float logprob,
                const std::string& other) {
  v1::TokenLogprob& token = *chunk.add_logprobs();
  token.set_text(text);
  token.set_logprob(logprob);
  v1::TokenLogprob& same = *token.add_top();
  same.set_text(text);
  same.set_logprob(logprob);
  v1::TokenLogprob& top = *token.add_top();
  top.set_text(other);
  top.set_logprob(-9999.0F);
}

void ExpectLogprob(const json& entry, const std::string& text, double logprob,
                   const std::vector<int>& bytes) {
  EXPECT_EQ(entry["token"], text);
  EXPECT_NEAR(entry["logprob"].get<double>(), logprob, 1e-6);
  EXPECT_EQ(entry["bytes"], bytes);
}

TEST(ChatAnswerLogprobs, AreOpenAisInABody) {
  AnswerHead head = Head(false);
  head.has_logprobs = true;
  v1::GenerateChunk first = Chunk("Hi", v1::FINISH_REASON_UNSPECIFIED, 5, 0);
  AddLogprob(first, "H", -0.25F, "\"\\\n");
  v1::GenerateChunk last = Chunk("\xC3\xA9", v1::FINISH_REASON_STOP, 0, 3);
  AddLogprob(last, "\xC3", -1.5F, " a");
  AddLogprob(last, "\xA9", -2.0F, "");
  CollectedAnswer choice;
  for (const auto& chunk : {first, last}) choice.Add(chunk);
  EXPECT_GT(BytesOf(first), first.text().size());
  const json body = json::parse(ChatCompletionBody(head, {choice}));
  const json& logprobs = body["choices"][0]["logprobs"];
  EXPECT_TRUE(logprobs["refusal"].is_null());
  const json& content = logprobs["content"];
  ASSERT_EQ(content.size(), 3u);
  ExpectLogprob(content[0], "H", -0.25, {72});
  ASSERT_EQ(content[0]["top_logprobs"].size(), 2u);
  ExpectLogprob(content[0]["top_logprobs"][0], "H", -0.25, {72});
  ExpectLogprob(content[0]["top_logprobs"][1], "\"\\\n", -9999, {34, 92, 10});
  ExpectLogprob(content[1], "\xEF\xBF\xBD", -1.5, {0xC3});
  ExpectLogprob(content[2], "\xEF\xBF\xBD", -2, {0xA9});
  ExpectLogprob(content[2]["top_logprobs"][1], "", -9999, {});
  const json empty = json::parse(ChatCompletionBody(head, {CollectedAnswer()}));
  EXPECT_EQ(empty["choices"][0]["logprobs"]["content"], json::array());
}

TEST(ChatAnswerLogprobs, ComeWithTheirTextInAStream) {
  AnswerHead head = Head(false);
  head.has_logprobs = true;
  StreamComposer composer(head);
  EXPECT_TRUE(Payload(composer.Open())["choices"][0]["logprobs"].is_null());
  v1::GenerateChunk chunk = Chunk("Hi", v1::FINISH_REASON_UNSPECIFIED, 5, 0);
  AddLogprob(chunk, "H", -0.25F, "x");
  AddLogprob(chunk, "i", -0.5F, "x");
  const json event = Payload(composer.Chunk(chunk));
  EXPECT_EQ(event["choices"][0]["delta"], (json{{"content", "Hi"}}));
  const json& content = event["choices"][0]["logprobs"]["content"];
  ASSERT_EQ(content.size(), 2u);
  ExpectLogprob(content[1], "i", -0.5, {105});
  // The last token may have no text any more.
  v1::GenerateChunk last = Chunk("", v1::FINISH_REASON_STOP, 0, 3);
  AddLogprob(last, "", -3.0F, "x");
  EXPECT_EQ(Payload(composer.Chunk(last))["choices"][0]["logprobs"]["content"].size(), 1u);
}

TEST(ChatAnswerChoices, ABodyNumbersThemAndCountsThePromptOnce) {
  AnswerHead head = Head(false);
  head.choices = head.choices_per_prompt = 2;
  std::vector<CollectedAnswer> choices(2);
  choices[0].Add(Chunk("one", v1::FINISH_REASON_STOP, 7, 2));
  choices[0].counts.cached_tokens = 1;
  choices[1].Add(Chunk("two", v1::FINISH_REASON_LENGTH, 7, 3));
  choices[1].counts.cached_tokens = 6;
  const json body = json::parse(ChatCompletionBody(head, choices));
  ASSERT_EQ(body["choices"].size(), 2u);
  EXPECT_EQ(body["choices"][1]["index"], 1);
  EXPECT_EQ(body["choices"][1]["message"]["content"], "two");
  EXPECT_EQ(body["choices"][0]["finish_reason"], "stop");
  EXPECT_EQ(body["choices"][1]["finish_reason"], "length");
  EXPECT_EQ(body["usage"]["prompt_tokens"], 7);
  EXPECT_EQ(body["usage"]["completion_tokens"], 5);
  EXPECT_EQ(body["usage"]["total_tokens"], 12);
  EXPECT_EQ(body["usage"]["prompt_tokens_details"]["cached_tokens"], 1);
}

TEST(ChatAnswerChoices, AStreamEndsWithTheLastOfThem) {
  AnswerHead head = Head(true);
  head.choices = head.choices_per_prompt = 2;
  StreamComposer composer(head);
  const std::string open = composer.Open();
  EXPECT_EQ(Payload(open.substr(open.find("data: ", 1)))["choices"][0]["index"], 1);
  EXPECT_EQ(
      Payload(composer.Chunk(Chunk("b", v1::FINISH_REASON_STOP, 5, 1), 1))["choices"][0]["index"],
      1);
  composer.Chunk(Chunk("a", v1::FINISH_REASON_LENGTH, 5, 2), 0);
  const json finish = Payload(composer.End(absl::OkStatus(), 1));
  EXPECT_EQ(finish["choices"][0]["index"], 1);
  EXPECT_EQ(finish["choices"][0]["finish_reason"], "stop");
  EXPECT_FALSE(composer.ended());
  const std::string end = composer.End(absl::OkStatus(), 0);
  EXPECT_TRUE(composer.ended());
  const size_t usage = end.find("data: ", 1), done = end.find("data: [DONE]");
  EXPECT_EQ(Payload(end.substr(0, usage))["choices"][0]["finish_reason"], "length");
  const json counts = Payload(end.substr(usage, done - usage))["usage"];
  EXPECT_EQ(counts["prompt_tokens"], 5);
  EXPECT_EQ(counts["completion_tokens"], 3);
}

}  // namespace
}  // namespace macrame::agentd
