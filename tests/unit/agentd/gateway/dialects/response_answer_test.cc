#include "agentd/gateway/dialects/response_answer.h"

#include <gtest/gtest.h>

#include "absl/strings/str_split.h"

namespace macrame::agentd {
namespace {

using nlohmann::json;

class ResponseAnswerTest : public ::testing::Test {
 protected:
  ResponseAnswerTest() {
    head_.form = AnswerForm::kResponse;
    head_.id = "resp_1";
    head_.model = "tiny";
    head_.response = std::make_shared<ResponseTurn>();
    head_.response->echo = {{"store", true}, {"metadata", {{"a", "b"}}}};
    head_.response->messages = json::array({{{"role", "user"}, {"content", "Hi"}}});
    head_.response->keep = [this](std::string body, std::string messages) {
      kept_body_ = json::parse(body);
      kept_messages_ = json::parse(messages);
    };
  }
  static v1::GenerateChunk Text(const std::string& text) {
    v1::GenerateChunk chunk;
    chunk.set_text(text);
    return chunk;
  }
  static v1::GenerateChunk Reasoning(const std::string& text) {
    v1::GenerateChunk chunk;
    chunk.set_reasoning(text);
    return chunk;
  }
  static v1::GenerateChunk Call(const std::string& name, const std::string& arguments) {
    v1::GenerateChunk chunk;
    v1::ToolCallDelta& call = *chunk.add_tool_calls();
    if (!name.empty()) call.set_id("c1");
    call.set_name(name);
    call.set_arguments(arguments);
    return chunk;
  }
  static v1::GenerateChunk Last(v1::FinishReason finish) {
    v1::GenerateChunk chunk;
    chunk.set_finish_reason(finish);
    chunk.set_prompt_tokens(11);
    chunk.set_completion_tokens(6);
    return chunk;
  }
  static std::vector<json> Events(const std::string& stream) {
    std::vector<json> events;
    for (const absl::string_view event : absl::StrSplit(stream, "\n\n", absl::SkipEmpty())) {
      const std::vector<std::string> lines = absl::StrSplit(event, '\n');
      events.push_back(json::parse(lines.at(1).substr(6)));
      EXPECT_EQ("event: " + events.back()["type"].get<std::string>(), lines[0]);
      EXPECT_EQ(events.back()["sequence_number"], events.size() - 1);
    }
    return events;
  }

  AnswerHead head_;
  json kept_body_, kept_messages_;
};

TEST_F(ResponseAnswerTest, ACallOfANamespaceNamesBoth) {
  head_.response->namespaced["crm__find"] = {"crm", "find"};
  CollectedAnswer answer;
  answer.Add(Call("crm__find", "{}"));
  answer.Add(Last(v1::FINISH_REASON_STOP));
  const json body = json::parse(ResponseBody(head_, {answer}));
  EXPECT_EQ(body["output"][0]["namespace"], "crm");
  EXPECT_EQ(body["output"][0]["name"], "find");
  ResponseStream stream(head_);
  std::string text = stream.Open();
  text += stream.Chunk(Call("crm__find", "{}"), 0);
  text += stream.End(absl::OkStatus(), 0);
  const auto events = Events(text);
  ASSERT_GT(events.size(), 2u);
  EXPECT_EQ(events[2]["item"]["namespace"], "crm");
  EXPECT_EQ(events.back()["response"]["output"][0]["name"], "find");
  // The chat that is kept has the name that the model knows.
  EXPECT_EQ(kept_messages_.back()["tool_calls"][0]["function"]["name"], "crm__find");
}

TEST_F(ResponseAnswerTest, ABodyHasAnItemForEachPart) {
  CollectedAnswer answer;
  for (const auto& chunk :
       {Reasoning("Hm."), Text("I look."), Call("get", "{}"), Last(v1::FINISH_REASON_STOP)}) {
    answer.Add(chunk);
  }
  const json body = json::parse(ResponseBody(head_, {answer}));
  EXPECT_EQ(body["status"], "completed");
  EXPECT_EQ(body["metadata"], (json{{"a", "b"}}));
  EXPECT_EQ(body["output"][0]["content"][0]["text"], "Hm.");
  EXPECT_EQ(body["output"][1]["content"][0]["text"], "I look.");
  EXPECT_EQ(body["output"][2]["call_id"], "c1");
  EXPECT_EQ(body["usage"]["total_tokens"], 17);
  EXPECT_EQ(kept_body_, body);
  ASSERT_EQ(kept_messages_.size(), 2u);
  EXPECT_EQ(kept_messages_[1]["tool_calls"][0]["function"]["name"], "get");
  EXPECT_EQ(kept_messages_[1]["reasoning_content"], "Hm.");
}

TEST_F(ResponseAnswerTest, AnAnswerThatIsCutIsIncomplete) {
  CollectedAnswer answer;
  answer.Add(Text("I"));
  answer.Add(Last(v1::FINISH_REASON_LENGTH));
  head_.response->keep = nullptr;
  const json body = json::parse(ResponseBody(head_, {answer}));
  EXPECT_EQ(body["status"], "incomplete");
  EXPECT_EQ(body["incomplete_details"]["reason"], "max_output_tokens");
  EXPECT_EQ(body["output"][0]["status"], "incomplete");
}

TEST_F(ResponseAnswerTest, AStreamEndsWithWhatItTold) {
  ResponseStream stream(head_);
  std::string all = stream.Open();
  for (const auto& chunk : {Reasoning("Hm."), Text("I "), Text("look."), Call("get", "{\"a\":"),
                            Call("", "1}"), Last(v1::FINISH_REASON_STOP)}) {
    all += stream.Chunk(chunk, 0);
  }
  all += stream.End(absl::OkStatus(), 0);
  const std::vector<json> events = Events(all);
  std::vector<std::string> types;
  for (const json& event : events) types.push_back(event["type"].get<std::string>().substr(9));
  EXPECT_EQ(types, (std::vector<std::string>{"created",
                                             "in_progress",
                                             "output_item.added",
                                             "content_part.added",
                                             "reasoning_text.delta",
                                             "reasoning_text.done",
                                             "content_part.done",
                                             "output_item.done",
                                             "output_item.added",
                                             "content_part.added",
                                             "output_text.delta",
                                             "output_text.delta",
                                             "output_text.done",
                                             "content_part.done",
                                             "output_item.done",
                                             "output_item.added",
                                             "function_call_arguments.delta",
                                             "function_call_arguments.delta",
                                             "function_call_arguments.done",
                                             "output_item.done",
                                             "completed"}));
  const json& output = events.back()["response"]["output"];
  ASSERT_EQ(output.size(), 3u);
  EXPECT_EQ(output[2]["arguments"], "{\"a\":1}");
  EXPECT_EQ(events[19]["item"], output[2]);
  EXPECT_EQ(kept_body_, events.back()["response"]);
}

TEST_F(ResponseAnswerTest, AFailureIsAResponseThatFailedAndIsNotKept) {
  ResponseStream stream(head_);
  std::string all = stream.Open();
  all += stream.Chunk(Text("I"), 0);
  all += stream.Fail(HttpError(504, "silent", "timed_out"));
  const json last = Events(all).back();
  EXPECT_EQ(last["type"], "response.failed");
  EXPECT_EQ(last["response"]["status"], "failed");
  EXPECT_EQ(last["response"]["error"]["message"], "silent");
  EXPECT_TRUE(kept_body_.is_null());
}

}  // namespace
}  // namespace macrame::agentd
