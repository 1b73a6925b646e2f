#include "agentd/gateway/dialects/ollama_answer.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "absl/strings/str_split.h"

namespace macrame::agentd {
namespace {

using nlohmann::json;

AnswerHead Head(AnswerForm form) {
  AnswerHead head;
  head.form = form;
  head.model = "tiny";
  head.created_unix_seconds = 1'700'000'000;
  return head;
}

v1::GenerateChunk Last(v1::FinishReason finish) {
  v1::GenerateChunk chunk;
  chunk.set_finish_reason(finish);
  chunk.set_prompt_tokens(11);
  chunk.set_completion_tokens(6);
  chunk.set_prefill_ms(2);
  chunk.set_decode_ms(3);
  return chunk;
}

std::vector<json> Lines(const std::string& stream) {
  std::vector<json> lines;
  EXPECT_EQ(stream.back(), '\n');
  for (const absl::string_view line : absl::StrSplit(stream, '\n', absl::SkipEmpty())) {
    lines.push_back(json::parse(line));
  }
  return lines;
}

TEST(OllamaAnswer, ABodyOfAChatAndOfAPrompt) {
  CollectedAnswer answer;
  v1::GenerateChunk chunk;
  chunk.set_reasoning("Hm.");
  chunk.set_text("Hello");
  answer.Add(chunk);
  answer.Add(Last(v1::FINISH_REASON_LENGTH));
  const json chat = json::parse(OllamaBody(Head(AnswerForm::kOllamaChat), {answer}));
  EXPECT_EQ(chat["created_at"], "2023-11-14T22:13:20Z");
  EXPECT_EQ(chat["message"],
            (json{{"role", "assistant"}, {"content", "Hello"}, {"thinking", "Hm."}}));
  EXPECT_EQ(chat["done_reason"], "length");
  EXPECT_EQ(chat["eval_count"], 6);
  EXPECT_EQ(chat["total_duration"], 5'000'000);
  const json text = json::parse(OllamaBody(Head(AnswerForm::kOllamaText), {answer}));
  EXPECT_EQ(text["response"], "Hello");
  EXPECT_EQ(text["thinking"], "Hm.");
  EXPECT_FALSE(text.contains("message"));
}

TEST(OllamaAnswer, CallsComeWholeAndAsObjects) {
  OllamaStream stream(Head(AnswerForm::kOllamaChat));
  v1::GenerateChunk begin, rest;
  v1::ToolCallDelta& call = *begin.add_tool_calls();
  call.set_id("c1");
  call.set_name("get");
  call.set_arguments("{\"city\":");
  rest.add_tool_calls()->set_arguments("\"Oslo\"}");
  rest.mutable_tool_calls(0)->set_ended(true);
  EXPECT_EQ(stream.Chunk(begin, 0), "");
  const std::vector<json> lines = Lines(stream.Chunk(rest, 0));
  ASSERT_EQ(lines.size(), 1u);
  EXPECT_EQ(lines[0]["message"]["tool_calls"][0]["function"],
            (json{{"index", 0}, {"name", "get"}, {"arguments", {{"city", "Oslo"}}}}));
  EXPECT_EQ(lines[0]["message"]["tool_calls"][0]["index"], 0);
  EXPECT_EQ(stream.Chunk(begin, 0), "");
  const std::vector<json> more = Lines(stream.Chunk(rest, 0));
  EXPECT_EQ(more[0]["message"]["tool_calls"][0]["function"]["index"], 1);
}

TEST(OllamaAnswer, AStreamEndsWithTheCounts) {
  OllamaStream stream(Head(AnswerForm::kOllamaText));
  v1::GenerateChunk chunk;
  chunk.set_text("Hello");
  std::string all = stream.Open();
  all += stream.Chunk(chunk, 0);
  all += stream.KeepAlive();
  all += stream.Chunk(Last(v1::FINISH_REASON_STOP), 0);
  all += stream.End(absl::OkStatus(), 0);
  const std::vector<json> lines = Lines(all);
  ASSERT_EQ(lines.size(), 3u);
  EXPECT_EQ(lines[0]["response"], "Hello");
  EXPECT_EQ(lines[1]["response"], "");
  EXPECT_FALSE(lines[1]["done"]);
  EXPECT_TRUE(lines[2]["done"]);
  EXPECT_EQ(lines[2]["prompt_eval_count"], 11);
  EXPECT_TRUE(stream.ended());
}

TEST(OllamaAnswer, AnErrorIsALine) {
  OllamaStream stream(Head(AnswerForm::kOllamaChat));
  EXPECT_EQ(stream.Fail(HttpError(504, "silent", "timed_out")), "{\"error\":\"silent\"}\n");
  EXPECT_TRUE(stream.ended());
}

TEST(OllamaAnswer, ModelsAsTagsAndProcesses) {
  const std::vector<ServedModel> models = {{"tiny", 1'700'000'000, 4096}};
  const json tags = json::parse(OllamaTagsBody(models));
  // Zed's parser rejects the whole list where one of these is missing.
  EXPECT_TRUE(tags["models"][0]["size"].is_number_unsigned());
  for (const char* name : {"format", "family", "parameter_size", "quantization_level"}) {
    EXPECT_TRUE(tags["models"][0]["details"][name].is_string()) << name;
  }
  EXPECT_EQ(tags["models"][0]["name"], "tiny");
  EXPECT_EQ(tags["models"][0]["digest"].get<std::string>().size(), 32u);
  EXPECT_EQ(json::parse(OllamaProcessesBody(models))["models"][0]["context_length"], 4096);
  EXPECT_EQ(json::parse(OllamaModelBody(models[0]))["model_info"]["macrame.context_length"], 4096);
}

TEST(OllamaAnswer, AModelSaysWhatItCan) {
  const ServedModel model = {"tiny", 1'700'000'000, 4096};
  const auto of = [&model](bool takes_tools, bool thinks) {
    return json::parse(OllamaModelBody(model, {takes_tools, thinks}))["capabilities"];
  };
  EXPECT_EQ(of(false, false), json({"completion"}));
  EXPECT_EQ(of(true, true), json({"completion", "tools", "thinking"}));
}

TEST(OllamaAnswer, AModelHasEveryFieldThatStrictReadersWant) {
  const json shown = json::parse(OllamaModelBody({"tiny", 1'700'000'000, 4096}));
  for (const char* field : {"modelfile", "parameters", "template", "modified_at"}) {
    EXPECT_TRUE(shown.contains(field) && shown[field].is_string()) << field;
  }
}

}  // namespace
}  // namespace macrame::agentd
