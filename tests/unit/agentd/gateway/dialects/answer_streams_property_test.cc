// Every dialect's stream, put together again as its clients do: whatever the pieces, what comes out
// is the answer, and the same as in one body. Over many seeds.

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <nlohmann/json.hpp>
#include <random>
#include <set>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "agentd/gateway/dialects/answer_writers.h"
#include "agentd/gateway/dialects/response_answer.h"
#include "proto/reasons.h"

namespace macrame::agentd {
namespace {

using nlohmann::json;

constexpr AnswerForm kForms[] = {AnswerForm::kChat, AnswerForm::kMessage, AnswerForm::kResponse,
                                 AnswerForm::kOllamaChat};

// An answer, as a model gave it and as clients put it together.
struct Answer {
  struct Call {
    std::string id, name, arguments;
    bool operator==(const Call&) const = default;
  };
  std::string reasoning, text;
  std::vector<Call> calls;
  std::string finish;  // in the dialect's words
  bool operator==(const Answer&) const = default;
};

void PrintTo(const Answer& answer, std::ostream* out) {
  *out << "reasoning '" << answer.reasoning << "', text '" << answer.text << "', finish "
       << answer.finish;
  for (const auto& call : answer.calls) *out << ", " << call.name << call.arguments;
}

class AnswerMaker {
 public:
  explicit AnswerMaker(uint64_t seed) : random_(seed) {}

  uint64_t Below(uint64_t bound) { return random_() % bound; }

  Answer Make() {
    Answer answer;
    if (Below(2) == 0) answer.reasoning = Words();
    if (Below(4) > 0) answer.text = Words();
    for (uint64_t i = Below(3) == 0 ? 1 + Below(3) : 0; i > 0; --i) {
      const json arguments = Below(3) == 0 ? json::object() : json{{"city", Words()}, {"days", 2}};
      answer.calls.push_back({absl::StrCat("call_", random_() % 10'000, "_", i),
                              absl::StrCat("tool_", Below(3)), arguments.dump()});
    }
    return answer;
  }

  // The answer in pieces: some alone in their chunk, some together, some empty ones between.
  std::vector<v1::GenerateChunk> Cut(const Answer& answer, v1::FinishReason reason) {
    chunks_ = {v1::GenerateChunk()};
    chunks_.back().set_prompt_tokens(40);
    chunks_.back().set_cached_tokens(16);
    for (const std::string& piece : Pieces(answer.reasoning)) {
      Next()->mutable_reasoning()->append(piece);
    }
    // Within a chunk reasoning comes before text, and text before calls.
    for (const std::string& piece : Pieces(answer.text)) Next()->mutable_text()->append(piece);
    for (size_t i = 0; i < answer.calls.size(); ++i) CutCall(answer.calls[i], i);
    v1::GenerateChunk* last = Next();
    last->set_finish_reason(reason);
    last->set_prompt_tokens(40);
    last->set_completion_tokens(7);
    last->set_reasoning_tokens(answer.reasoning.empty() ? 0 : 3);
    last->set_prefill_ms(12.5);
    last->set_decode_ms(100);
    return chunks_;
  }

 private:
  std::string Words() {
    static const std::vector<std::string> kWords = {"a",          " word", "\n\n",
                                                    "\"quoted\"", "\\",    "data: x",
                                                    "é",          "日本",  "\xf0\x9f\x98\x80",
                                                    "\r",         "{",     "}",
                                                    "[DONE]",     ":",     "event: y",
                                                    "<think>",    "\t",    "\x01"};
    std::string text;
    for (uint64_t i = 1 + Below(9); i > 0; --i) text += kWords[Below(kWords.size())];
    return text;
  }
  // Between characters, as ranks cut.
  std::vector<std::string> Pieces(const std::string& text) {
    std::vector<std::string> pieces;
    for (size_t at = 0; at < text.size();) {
      size_t end = std::min<size_t>(text.size(), at + 1 + Below(9));
      while (end < text.size() && (static_cast<unsigned char>(text[end]) & 0xC0U) == 0x80U) ++end;
      pieces.push_back(text.substr(at, end - at));
      at = end;
    }
    return pieces;
  }
  v1::GenerateChunk* Next() {
    while (Below(3) > 0) chunks_.emplace_back();
    return &chunks_.back();
  }
  void CutCall(const Answer::Call& call, size_t index) {
    v1::ToolCallDelta* delta = Next()->add_tool_calls();
    delta->set_index(static_cast<uint32_t>(index));
    delta->set_id(call.id);
    delta->set_name(call.name);
    for (const std::string& piece : Pieces(call.arguments)) {
      if (Below(2) == 0) {
        delta = Next()->add_tool_calls();
        delta->set_index(static_cast<uint32_t>(index));
      }
      delta->mutable_arguments()->append(piece);
    }
    delta->set_ended(Below(2) == 0);
  }

  std::mt19937_64 random_;
  std::vector<v1::GenerateChunk> chunks_;
};

std::unique_ptr<AnswerStream> StreamOf(const AnswerHead& head) {
  return WriterOf(head.form).stream(head);
}

std::string AnswerBody(const AnswerHead& head, const std::vector<CollectedAnswer>& answers) {
  return std::get<BodyOf<CollectedAnswer>>(WriterOf(head.form).body)(head, answers);
}

AnswerHead HeadOf(AnswerForm form) {
  AnswerHead head;
  head.form = form;
  head.id = form == AnswerForm::kResponse ? "resp_1" : "id_1";
  head.created_unix_seconds = 1'700'000'000;
  head.model = "tiny";
  head.request_id = "req_1";
  head.include_usage = true;
  head.response = std::make_shared<ResponseTurn>();
  head.response->messages = json::array();
  return head;
}

// --- as clients read -----------------------------------------------------------------------------

struct SentEvent {
  std::string name;
  std::string data;
};

// Server-sent events as the standard has them: fields by line, an empty line ends an event.
std::vector<SentEvent> SentEvents(const std::string& stream) {
  std::vector<SentEvent> events;
  SentEvent next;
  EXPECT_TRUE(stream.empty() || stream.ends_with("\n\n")) << "the last event is whole";
  for (absl::string_view line : absl::StrSplit(stream, '\n')) {
    if (line.empty()) {
      if (!next.data.empty()) events.push_back(next);
      next = SentEvent();
    } else if (absl::ConsumePrefix(&line, "data: ")) {
      next.data = std::string(line);
    } else if (absl::ConsumePrefix(&line, "event: ")) {
      next.name = std::string(line);
    } else {
      EXPECT_TRUE(absl::StartsWith(line, ":")) << "no field: " << line;
    }
  }
  return events;
}

void FoldCallPiece(const json& piece, Answer* answer) {
  const size_t index = piece["index"];
  EXPECT_LE(index, answer->calls.size()) << "calls begin in their order";
  if (index >= answer->calls.size()) {
    answer->calls.emplace_back();
    EXPECT_EQ(piece["type"], "function");
  }
  Answer::Call& call = answer->calls.at(index);
  call.id += piece.value("id", "");
  call.name += piece["function"].value("name", "");
  call.arguments += piece["function"].value("arguments", "");
}

// Choices by their index.
std::map<int, Answer> FoldChat(const std::string& stream) {
  std::map<int, Answer> answers;
  bool has_usage = false;
  const std::vector<SentEvent> events = SentEvents(stream);
  EXPECT_EQ(events.back().data, "[DONE]");
  for (size_t i = 0; i + 1 < events.size(); ++i) {
    const json event = json::parse(events[i].data);
    EXPECT_EQ(event["object"], "chat.completion.chunk");
    EXPECT_FALSE(has_usage) << "nothing stands behind the usage";
    has_usage = !event["usage"].is_null();
    EXPECT_EQ(event["choices"].empty(), has_usage);
    for (const json& choice : event["choices"]) {
      Answer& answer = answers[choice["index"]];
      EXPECT_EQ(answer.finish, "") << "nothing of a choice stands behind its end";
      const json& delta = choice["delta"];
      answer.text += delta.value("content", "");
      answer.reasoning += delta.value("reasoning_content", "");
      if (delta.contains("tool_calls")) {
        for (const json& piece : delta["tool_calls"]) FoldCallPiece(piece, &answer);
      }
      if (!choice["finish_reason"].is_null()) answer.finish = choice["finish_reason"];
    }
  }
  EXPECT_TRUE(has_usage);
  return answers;
}

void FoldBlockDelta(const json& delta, const std::string& block, Answer* answer) {
  const std::string type = delta["type"];
  if (type == "text_delta") {
    EXPECT_EQ(block, "text");
    answer->text += delta["text"].get<std::string>();
  } else if (type == "thinking_delta") {
    EXPECT_EQ(block, "thinking");
    answer->reasoning += delta["thinking"].get<std::string>();
  } else if (type == "input_json_delta") {
    EXPECT_EQ(block, "tool_use");
    answer->calls.back().arguments += delta["partial_json"].get<std::string>();
  } else {
    EXPECT_EQ(type, "signature_delta");
    EXPECT_EQ(block, "thinking");
  }
}

Answer FoldMessages(const std::string& stream) {
  Answer answer;
  std::string block;  // the type of the one that is open
  int blocks = 0;
  std::vector<std::string> types;
  for (const SentEvent& sent : SentEvents(stream)) {
    const json event = json::parse(sent.data);
    const std::string type = event["type"];
    EXPECT_EQ(sent.name, type);
    if (type == "ping") continue;
    types.push_back(type);
    if (type == "content_block_start") {
      EXPECT_EQ(block, "") << "blocks don't overlap";
      EXPECT_EQ(event["index"], blocks);
      block = event["content_block"]["type"];
      if (block == "tool_use") {
        answer.calls.push_back({event["content_block"]["id"], event["content_block"]["name"], ""});
      }
    } else if (type == "content_block_delta") {
      EXPECT_EQ(event["index"], blocks);
      FoldBlockDelta(event["delta"], block, &answer);
    } else if (type == "content_block_stop") {
      EXPECT_EQ(event["index"], blocks++);
      EXPECT_NE(block, "");
      block.clear();
    } else if (type == "message_delta") {
      answer.finish = event["delta"]["stop_reason"];
      EXPECT_EQ(event["usage"]["output_tokens"], 7);
    }
  }
  EXPECT_EQ(block, "") << "every block is closed";
  EXPECT_EQ(types.front(), "message_start");
  EXPECT_EQ(std::count(types.begin(), types.end(), "message_start"), 1);
  EXPECT_EQ(types[types.size() - 2], "message_delta");
  EXPECT_EQ(types.back(), "message_stop");
  return answer;
}

// Of the items that a finished response holds.
Answer AnswerOfItems(const json& response) {
  Answer answer;
  answer.finish = response["status"];
  for (const json& item : response["output"]) {
    if (item["type"] == "function_call") {
      answer.calls.push_back({item["call_id"], item["name"], item["arguments"]});
    } else if (item["type"] == "message") {
      answer.text += item["content"][0]["text"].get<std::string>();
    } else {
      answer.reasoning += item["content"][0]["text"].get<std::string>();
    }
  }
  return answer;
}

// By its deltas; what its other events say must be the same.
Answer FoldResponse(const std::string& stream) {
  Answer answer;
  std::string item_text;
  json items = json::array();
  const std::vector<SentEvent> events = SentEvents(stream);
  for (size_t i = 0; i < events.size(); ++i) {
    const json event = json::parse(events[i].data);
    const std::string type = event["type"];
    EXPECT_EQ(events[i].name, type);
    EXPECT_EQ(event["sequence_number"], i) << "none is missing";
    if (type == "response.output_item.added") {
      EXPECT_EQ(event["output_index"], items.size());
      EXPECT_EQ(event["item"]["status"], "in_progress");
      item_text.clear();
    } else if (absl::EndsWith(type, ".delta")) {
      item_text += event["delta"].get<std::string>();
    } else if (type == "response.output_text.done" || type == "response.reasoning_text.done") {
      EXPECT_EQ(event["text"], item_text);
    } else if (type == "response.function_call_arguments.done") {
      EXPECT_EQ(event["arguments"], item_text);
    } else if (type == "response.output_item.done") {
      items.push_back(event["item"]);
    } else if (event.contains("response") && i > 1) {
      EXPECT_EQ(i + 1, events.size()) << type << " is the last";
      EXPECT_EQ(event["response"]["output"], items) << "the end tells what was told";
      answer = AnswerOfItems(event["response"]);
    }
  }
  return answer;
}

Answer FoldOllama(const std::string& stream) {
  Answer answer;
  const std::vector<std::string> lines = absl::StrSplit(stream, '\n', absl::SkipEmpty());
  for (size_t i = 0; i < lines.size(); ++i) {
    const json line = json::parse(lines[i]);
    EXPECT_EQ(line["done"], i + 1 == lines.size()) << "the last line, and no other, is the end";
    const json& message = line["message"];
    EXPECT_EQ(message["role"], "assistant");
    answer.text += message["content"].get<std::string>();
    answer.reasoning += message.value("thinking", "");
    if (message.contains("tool_calls")) {
      for (const json& call : message["tool_calls"]) {
        EXPECT_EQ(call["index"], answer.calls.size());
        answer.calls.push_back(
            {call["id"], call["function"]["name"], call["function"]["arguments"].dump()});
      }
    }
    answer.finish = line.value("done_reason", "");
  }
  return answer;
}

Answer Fold(AnswerForm form, const std::string& stream) {
  switch (form) {
    case AnswerForm::kMessage:
      return FoldMessages(stream);
    case AnswerForm::kResponse:
      return FoldResponse(stream);
    case AnswerForm::kOllamaChat:
      return FoldOllama(stream);
    default:
      return FoldChat(stream).at(0);
  }
}

Answer ReadBody(AnswerForm form, const json& body) {
  Answer answer;
  if (form == AnswerForm::kResponse) return AnswerOfItems(body);
  if (form == AnswerForm::kMessage) {
    for (const json& block : body["content"]) {
      if (block["type"] == "tool_use") {
        answer.calls.push_back({block["id"], block["name"], block["input"].dump()});
      }
      answer.text += block.value("text", "");
      answer.reasoning += block.value("thinking", "");
    }
    answer.finish = body["stop_reason"];
    return answer;
  }
  const bool is_chat = form == AnswerForm::kChat;
  const json& message = is_chat ? body["choices"][0]["message"] : body["message"];
  if (!message["content"].is_null()) answer.text = message["content"];
  answer.reasoning = message.value(is_chat ? "reasoning_content" : "thinking", "");
  for (const json& call : message.value("tool_calls", json::array())) {
    const json& arguments = call["function"]["arguments"];
    answer.calls.push_back({call["id"], call["function"]["name"],
                            is_chat ? arguments.get<std::string>() : arguments.dump()});
  }
  answer.finish = is_chat ? body["choices"][0]["finish_reason"] : body["done_reason"];
  return answer;
}

// What the dialect calls this end.
std::string FinishOf(AnswerForm form, v1::FinishReason reason, bool has_calls) {
  const bool is_cut = reason == v1::FINISH_REASON_LENGTH;
  switch (form) {
    case AnswerForm::kMessage:
      return is_cut ? "max_tokens" : has_calls ? "tool_use" : "end_turn";
    case AnswerForm::kResponse:
      return is_cut ? "incomplete" : "completed";
    case AnswerForm::kOllamaChat:
      return is_cut ? "length" : "stop";
    default:
      return is_cut ? "length" : has_calls ? "tool_calls" : "stop";
  }
}

TEST(AnswerStreams, WhateverThePiecesTheAnswerIsTheSameAsInOneBody) {
  for (uint64_t seed = 1; seed <= 250; ++seed) {
    AnswerMaker maker(seed);
    const Answer answer = maker.Make();
    const auto reason = seed % 3 == 0 ? v1::FINISH_REASON_LENGTH : v1::FINISH_REASON_STOP;
    const std::vector<v1::GenerateChunk> chunks = maker.Cut(answer, reason);
    for (const AnswerForm form : kForms) {
      SCOPED_TRACE(absl::StrCat("seed ", seed, ", form ", static_cast<int>(form)));
      Answer expected = answer;
      expected.finish = FinishOf(form, reason, !answer.calls.empty());
      const auto stream = StreamOf(HeadOf(form));
      std::string text = stream->Open();
      CollectedAnswer collected;
      for (const v1::GenerateChunk& chunk : chunks) {
        if (maker.Below(6) == 0) text += stream->KeepAlive();
        text += stream->Chunk(chunk, 0);
        collected.Add(chunk);
        EXPECT_FALSE(stream->ended());
      }
      text += stream->End(absl::OkStatus(), 0);
      EXPECT_TRUE(stream->ended());
      EXPECT_EQ(Fold(form, text), expected) << text;
      const json body = json::parse(AnswerBody(HeadOf(form), {collected}));
      EXPECT_EQ(ReadBody(form, body), expected) << body;
      if (form == AnswerForm::kResponse) {
        EXPECT_EQ(json::parse(SentEvents(text).back().data)["response"], body)
            << "one response, however it was asked for";
      }
    }
    if (HasFailure()) return;
  }
}

// Reasoning that nobody wants to see is left out of every form that can, and changes nothing else.
TEST(AnswerStreams, ExcludedReasoningIsCountedAndNotSent) {
  for (uint64_t seed = 1; seed <= 60; ++seed) {
    AnswerMaker maker(seed);
    Answer answer = maker.Make();
    answer.reasoning = "a secret thought";
    const auto chunks = maker.Cut(answer, v1::FINISH_REASON_STOP);
    for (const AnswerForm form :
         {AnswerForm::kChat, AnswerForm::kMessage, AnswerForm::kOllamaChat}) {
      AnswerHead head = HeadOf(form);
      head.excludes_reasoning = true;
      const auto stream = StreamOf(head);
      std::string text = stream->Open();
      CollectedAnswer collected;
      for (const v1::GenerateChunk& chunk : chunks) {
        text += stream->Chunk(chunk, 0);
        collected.Add(chunk);
      }
      text += stream->End(absl::OkStatus(), 0);
      const std::string body = AnswerBody(head, {collected});
      EXPECT_EQ(Fold(form, text).reasoning, "");
      EXPECT_EQ(Fold(form, text).text, answer.text);
      EXPECT_EQ(Fold(form, text).calls, answer.calls);
      for (const std::string& told : {text, body}) {
        EXPECT_EQ(told.find("secret"), std::string::npos) << told;
      }
      if (form == AnswerForm::kChat) {
        EXPECT_EQ(json::parse(body)["usage"]["completion_tokens_details"]["reasoning_tokens"], 3);
      }
    }
  }
}

// Several answers of one prompt, mixed as they come.
TEST(AnswerStreams, ChoicesThatAreMixedAreToldApart) {
  for (uint64_t seed = 1; seed <= 80; ++seed) {
    SCOPED_TRACE(absl::StrCat("seed ", seed));
    AnswerMaker maker(seed);
    const auto choices = static_cast<uint32_t>(2 + maker.Below(4));
    AnswerHead head = HeadOf(AnswerForm::kChat);
    head.choices = head.choices_per_prompt = choices;
    std::vector<Answer> answers;
    std::vector<std::vector<v1::GenerateChunk>> chunks;
    for (uint32_t i = 0; i < choices; ++i) {
      answers.push_back(maker.Make());
      answers.back().finish = answers.back().calls.empty() ? "stop" : "tool_calls";
      chunks.push_back(maker.Cut(answers.back(), v1::FINISH_REASON_STOP));
    }
    const auto stream = StreamOf(head);
    std::string text = stream->Open();
    std::vector<size_t> sent(choices, 0);
    for (uint32_t open = choices; open > 0;) {
      const auto choice = static_cast<uint32_t>(maker.Below(choices));
      if (sent[choice] > chunks[choice].size()) continue;
      if (sent[choice] == chunks[choice].size()) {
        EXPECT_FALSE(stream->ended()) << open << " are under way";
        text += stream->End(absl::OkStatus(), choice);
        --open;
      } else {
        text += stream->Chunk(chunks[choice][sent[choice]], choice);
      }
      ++sent[choice];
    }
    EXPECT_TRUE(stream->ended());
    const std::map<int, Answer> told = FoldChat(text);
    ASSERT_EQ(told.size(), choices);
    for (uint32_t i = 0; i < choices; ++i) {
      EXPECT_EQ(told.at(static_cast<int>(i)), answers[i]) << "choice " << i;
    }
    const auto events = SentEvents(text);
    const json usage = json::parse(events[events.size() - 2].data)["usage"];
    EXPECT_EQ(usage["prompt_tokens"], 40) << "the prompt is counted once";
    EXPECT_EQ(usage["completion_tokens"], 7 * choices);
  }
}

// A client must never take a part of an answer for all of it.
TEST(AnswerStreams, AFailureAnywhereIsTheLastWordAndNoEnd) {
  const absl::Status failure = ReasonStatus(absl::StatusCode::kUnavailable, reasons::kGangLostNode,
                                            "node studio-2 left while tiny answered");
  for (uint64_t seed = 1; seed <= 60; ++seed) {
    AnswerMaker maker(seed);
    const auto chunks = maker.Cut(maker.Make(), v1::FINISH_REASON_STOP);
    const size_t until = maker.Below(chunks.size());
    const bool is_cancelled = seed % 4 == 0;
    for (const AnswerForm form : kForms) {
      SCOPED_TRACE(absl::StrCat("seed ", seed, ", form ", static_cast<int>(form)));
      const auto stream = StreamOf(HeadOf(form));
      std::string text = stream->Open();
      for (size_t i = 0; i < until; ++i) text += stream->Chunk(chunks[i], 0);
      v1::GenerateChunk cancelled;
      cancelled.set_finish_reason(v1::FINISH_REASON_CANCELLED);
      if (is_cancelled) text += stream->Chunk(cancelled, 0);
      const std::string last = stream->End(is_cancelled ? absl::OkStatus() : failure, 0);
      EXPECT_TRUE(stream->ended());
      const json error =
          json::parse(form == AnswerForm::kOllamaChat ? std::string(absl::StripSuffix(last, "\n"))
                                                      : SentEvents(last).back().data);
      const char* words = is_cancelled ? "ended by the cluster" : "studio-2";
      EXPECT_NE(error.dump().find(words), std::string::npos) << last;
      EXPECT_TRUE(error.contains("error") || error["response"]["status"] == "failed") << last;
      for (const char* end : {"[DONE]\n", "message_stop", "response.completed", "\"done\":true"}) {
        EXPECT_EQ((text + last).find(absl::StrCat("data: ", end)), std::string::npos) << end;
        EXPECT_EQ(last.find(end), std::string::npos) << last;
      }
    }
  }
}

// A model may write what is no JSON where arguments should be. The body must stay JSON, and tell
// it.
TEST(AnswerStreams, ArgumentsThatAreNoObjectAreToldAsTheyAre) {
  for (const std::string& arguments :
       {std::string("{\"city\": \"Os"), std::string("[1,2]"), std::string("nonsense"),
        std::string("{\"a\":1}{\"b\":2}"), std::string(500, '['), std::string("\"text\""),
        std::string("{\"bad\": \"\xff\"}")}) {
    CollectedAnswer answer;
    v1::GenerateChunk chunk;
    v1::ToolCallDelta& call = *chunk.add_tool_calls();
    call.set_id("c1");
    call.set_name("get");
    call.set_arguments(arguments);
    answer.Add(chunk);
    const json message = json::parse(AnswerBody(HeadOf(AnswerForm::kMessage), {answer}));
    const json ollama = json::parse(AnswerBody(HeadOf(AnswerForm::kOllamaChat), {answer}));
    const json& input = message["content"][0]["input"];
    ASSERT_TRUE(input.is_object()) << arguments;
    EXPECT_TRUE(input.contains("invalid_json")) << input;
    EXPECT_EQ(input, ollama["message"]["tool_calls"][0]["function"]["arguments"]);
  }
}

}  // namespace
}  // namespace macrame::agentd
