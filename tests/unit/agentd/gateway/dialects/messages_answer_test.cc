#include "agentd/gateway/dialects/messages_answer.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "absl/strings/str_split.h"

namespace macrame::agentd {
namespace {

using nlohmann::json;

AnswerHead Head() {
  AnswerHead head;
  head.form = AnswerForm::kMessage;
  head.id = "msg_1";
  head.model = "tiny";
  head.request_id = "req_1";
  return head;
}

v1::GenerateChunk Text(const std::string& text) {
  v1::GenerateChunk chunk;
  chunk.set_text(text);
  return chunk;
}

v1::GenerateChunk Call(const std::string& id, const std::string& name,
                       const std::string& arguments) {
  v1::GenerateChunk chunk;
  v1::ToolCallDelta& call = *chunk.add_tool_calls();
  call.set_id(id);
  call.set_name(name);
  call.set_arguments(arguments);
  return chunk;
}

v1::GenerateChunk Last(v1::FinishReason finish) {
  v1::GenerateChunk chunk;
  chunk.set_finish_reason(finish);
  chunk.set_prompt_tokens(11);
  chunk.set_cached_tokens(4);
  chunk.set_completion_tokens(6);
  return chunk;
}

// The data of each event, whose name says the same as its type.
std::vector<json> Events(const std::string& stream) {
  std::vector<json> events;
  for (const absl::string_view event : absl::StrSplit(stream, "\n\n", absl::SkipEmpty())) {
    const std::vector<std::string> lines = absl::StrSplit(event, '\n');
    EXPECT_EQ(lines.size(), 2u) << event;
    events.push_back(json::parse(lines.at(1).substr(6)));
    EXPECT_EQ("event: " + events.back()["type"].get<std::string>(), lines[0]);
  }
  return events;
}

std::vector<std::string> Types(const std::vector<json>& events) {
  std::vector<std::string> types;
  for (const json& event : events) types.push_back(event["type"]);
  return types;
}

TEST(MessagesAnswer, ABodyHasABlockForEachPart) {
  CollectedAnswer answer;
  v1::GenerateChunk thought;
  thought.set_reasoning("Hm.");
  answer.Add(thought);
  answer.Add(Text("I look."));
  answer.Add(Call("c1", "get", "{\"city\":\"Oslo\"}"));
  answer.Add(Last(v1::FINISH_REASON_STOP));
  const json body = json::parse(MessagesBody(Head(), {answer}));
  EXPECT_EQ(body["type"], "message");
  EXPECT_EQ(body["content"][0]["thinking"], "Hm.");
  EXPECT_FALSE(body["content"][0]["signature"].get<std::string>().empty());
  EXPECT_EQ(body["content"][1], (json{{"type", "text"}, {"text", "I look."}}));
  EXPECT_EQ(body["content"][2]["input"], (json{{"city", "Oslo"}}));
  EXPECT_EQ(body["stop_reason"], "tool_use");
  EXPECT_EQ(body["usage"]["input_tokens"], 7);
  EXPECT_EQ(body["usage"]["cache_read_input_tokens"], 4);
  EXPECT_EQ(body["usage"]["output_tokens"], 6);
}

TEST(MessagesAnswer, StopReasons) {
  const auto reason = [](v1::FinishReason finish, const std::string& stop) {
    CollectedAnswer answer;
    v1::GenerateChunk last = Last(finish);
    last.set_stop_string(stop);
    answer.Add(last);
    const json body = json::parse(MessagesBody(Head(), {answer}));
    return std::pair(body["stop_reason"], body["stop_sequence"]);
  };
  EXPECT_EQ(reason(v1::FINISH_REASON_STOP, ""), std::pair(json("end_turn"), json(nullptr)));
  EXPECT_EQ(reason(v1::FINISH_REASON_LENGTH, ""), std::pair(json("max_tokens"), json(nullptr)));
  EXPECT_EQ(reason(v1::FINISH_REASON_STOP, "END"), std::pair(json("stop_sequence"), json("END")));
}

TEST(MessagesAnswer, AStreamOpensAndClosesEachBlock) {
  MessagesStream stream(Head());
  v1::GenerateChunk first;
  first.set_reasoning("Hm.");
  first.set_prompt_tokens(11);
  std::string all = stream.Open();
  all += stream.Chunk(first, 0);
  all += stream.Chunk(Text("I "), 0);
  all += stream.Chunk(Text("look."), 0);
  all += stream.Chunk(Call("c1", "get", "{\"a\":"), 0);
  all += stream.Chunk(Call("", "", "1}"), 0);
  all += stream.Chunk(Call("c2", "now", ""), 0);
  all += stream.Chunk(Last(v1::FINISH_REASON_STOP), 0);
  all += stream.End(absl::OkStatus(), 0);
  EXPECT_TRUE(stream.ended());
  const std::vector<json> events = Events(all);
  EXPECT_EQ(
      Types(events),
      (std::vector<std::string>{
          "message_start", "content_block_start", "content_block_delta", "content_block_delta",
          "content_block_stop",  // the thought and its signature
          "content_block_start", "content_block_delta", "content_block_delta", "content_block_stop",
          "content_block_start", "content_block_delta", "content_block_delta", "content_block_stop",
          "content_block_start", "content_block_stop", "message_delta", "message_stop"}));
  EXPECT_EQ(events[0]["message"]["usage"]["input_tokens"], 11);
  EXPECT_EQ(events[2]["delta"]["type"], "thinking_delta");
  EXPECT_EQ(events[3]["delta"]["type"], "signature_delta");
  EXPECT_EQ(events[9]["index"], 2);
  EXPECT_EQ(events[10]["delta"], (json{{"type", "input_json_delta"}, {"partial_json", "{\"a\":"}}));
  EXPECT_EQ(events[13]["content_block"]["name"], "now");
  EXPECT_EQ(events[15]["delta"]["stop_reason"], "tool_use");
  EXPECT_EQ(events[15]["usage"]["output_tokens"], 6);
}

TEST(MessagesAnswer, SilenceIsAPingBehindTheStart) {
  MessagesStream stream(Head());
  EXPECT_EQ(Types(Events(stream.KeepAlive())), (std::vector<std::string>{"message_start", "ping"}));
  EXPECT_EQ(Types(Events(stream.KeepAlive())), (std::vector<std::string>{"ping"}));
}

TEST(MessagesAnswer, AnErrorEndsTheStream) {
  MessagesStream stream(Head());
  const std::vector<json> events = Events(stream.Fail(HttpError(504, "silent", "timed_out")));
  EXPECT_EQ(events.at(0)["error"]["type"], "timeout_error");
  EXPECT_EQ(events.at(0)["request_id"], "req_1");
  EXPECT_TRUE(stream.ended());
}

TEST(MessagesAnswer, OmittedThinkingIsNotSent) {
  AnswerHead head = Head();
  head.excludes_reasoning = true;
  MessagesStream stream(head);
  v1::GenerateChunk thought;
  thought.set_reasoning("Hm.");
  EXPECT_EQ(Types(Events(stream.Chunk(thought, 0))), (std::vector<std::string>{"message_start"}));
}

}  // namespace
}  // namespace macrame::agentd
