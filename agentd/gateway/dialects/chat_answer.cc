#include "agentd/gateway/dialects/chat_answer.h"

#include <nlohmann/json.hpp>

#include "absl/strings/str_cat.h"

namespace macrame::agentd {
namespace {

using nlohmann::ordered_json;

// Bytes as a list of numbers.
void AppendBytes(const std::string& bytes, std::string* out) {
  out->push_back('[');
  for (size_t i = 0; i < bytes.size(); ++i) {
    absl::StrAppend(out, i == 0 ? "" : ",", static_cast<int>(static_cast<unsigned char>(bytes[i])));
  }
  out->push_back(']');
}

void AppendLogprobFields(const v1::TokenLogprob& token, std::string* out) {
  // Parts of characters are replaced in the text; the bytes are what they are.
  absl::StrAppend(out, "\"token\":", Dump(token.text()), ",\"logprob\":", Dump(token.logprob()),
                  ",\"bytes\":");
  AppendBytes(token.text(), out);
}

// As text and not as a tree of values: with twenty alternatives a token has a hundred of them.
void AppendLogprobs(const v1::GenerateChunk& chunk, std::string* out) {
  for (const v1::TokenLogprob& token : chunk.logprobs()) {
    absl::StrAppend(out, out->empty() ? "{" : ",{");
    AppendLogprobFields(token, out);
    absl::StrAppend(out, ",\"top_logprobs\":[");
    for (int i = 0; i < token.top_size(); ++i) {
      absl::StrAppend(out, i == 0 ? "{" : ",{");
      AppendLogprobFields(token.top(i), out);
      out->push_back('}');
    }
    absl::StrAppend(out, "]}");
  }
}

// `entries` as AppendLogprobs makes them.
std::string LogprobsText(const std::string& entries) {
  return absl::StrCat("{\"content\":[", entries, "],\"refusal\":null}");
}

// `what`: "message" or "delta". `logprobs` and the result are JSON.
std::string ChoiceText(uint32_t index, absl::string_view what, const ordered_json& content,
                       absl::string_view logprobs, const ordered_json& finish_reason) {
  return absl::StrCat("{\"index\":", index, ",\"", what, "\":", Dump(content),
                      ",\"logprobs\":", logprobs, ",\"finish_reason\":", Dump(finish_reason), "}");
}

std::string ChunkEvent(const AnswerHead& head, uint32_t choice, const ordered_json& delta,
                       absl::string_view logprobs, const ordered_json& finish_reason) {
  return ChoiceEvent(head, "chat.completion.chunk",
                     ChoiceText(choice, "delta", delta, logprobs, finish_reason));
}

ordered_json MessageObject(const AnswerHead& head, const CollectedAnswer& choice) {
  ordered_json message;
  message["role"] = "assistant";
  message["content"] = choice.text;
  if (choice.text.empty() && !choice.calls.empty()) message["content"] = nullptr;
  if (!choice.reasoning.empty() && !head.excludes_reasoning) {
    message["reasoning_content"] = choice.reasoning;
  }
  message["refusal"] = nullptr;
  message["annotations"] = ordered_json::array();
  for (const CollectedAnswer::Call& call : choice.calls) {
    ordered_json one;
    one["id"] = call.id;
    one["type"] = "function";
    one["function"] = {{"name", call.name}, {"arguments", call.arguments}};
    message["tool_calls"].push_back(std::move(one));
  }
  return message;
}

ordered_json ModelObject(const ServedModel& model) {
  ordered_json body;
  body["id"] = model.id;
  body["object"] = "model";
  body["created"] = model.created_unix_seconds;
  body["owned_by"] = "macrame";
  body["context_length"] = model.context_length;
  body["max_model_len"] = model.context_length;
  return body;
}

}  // namespace

void CollectedAnswer::Add(const v1::GenerateChunk& chunk) {
  reasoning += chunk.reasoning();
  text += chunk.text();
  for (const v1::ToolCallDelta& delta : chunk.tool_calls()) {
    // Calls come one behind the other, so an index is that of the last call or the next.
    if (delta.index() >= calls.size()) calls.emplace_back();
    Call& call = calls.back();
    call.id += delta.id();
    call.name += delta.name();
    call.arguments += delta.arguments();
  }
  AppendLogprobs(chunk, &logprobs);
  UpdateCounts(chunk, &counts);
  if (chunk.finish_reason() != v1::FINISH_REASON_UNSPECIFIED) finish = chunk.finish_reason();
  stop_string += chunk.stop_string();
}

size_t CollectedAnswer::bytes() const {
  size_t bytes = text.size() + reasoning.size() + logprobs.size();
  for (const Call& call : calls) {
    bytes += call.id.size() + call.name.size() + call.arguments.size();
  }
  return bytes;
}

std::string ChatCompletionBody(const AnswerHead& head,
                               const std::vector<CollectedAnswer>& choices) {
  std::string text;
  std::vector<TokenCounts> counts;
  for (const CollectedAnswer& choice : choices) {
    const auto index = static_cast<uint32_t>(counts.size());
    absl::StrAppend(
        &text, index == 0 ? "" : ",",
        ChoiceText(index, "message", MessageObject(head, choice),
                   head.has_logprobs ? LogprobsText(choice.logprobs) : "null",
                   std::string(FinishReasonName(choice.finish, !choice.calls.empty()))));
    counts.push_back(choice.counts);
  }
  return BodyText(head, "chat.completion", text,
                  UsageText(TotalCounts(counts, head.choices_per_prompt)));
}

std::string OpenEvent(const AnswerHead& head, uint32_t choice) {
  ordered_json delta;
  delta["role"] = "assistant";
  delta["content"] = "";
  delta["refusal"] = nullptr;
  return ChunkEvent(head, choice, delta, "null", nullptr);
}

std::string TextEvent(const AnswerHead& head, const v1::GenerateChunk& chunk, uint32_t choice) {
  ordered_json delta;
  delta["content"] = chunk.text();
  std::string logprobs;
  AppendLogprobs(chunk, &logprobs);
  return ChunkEvent(head, choice, delta, logprobs.empty() ? "null" : LogprobsText(logprobs),
                    nullptr);
}

std::string ReasoningEvent(const AnswerHead& head, const std::string& reasoning, uint32_t choice) {
  ordered_json delta;
  delta["reasoning_content"] = reasoning;
  return ChunkEvent(head, choice, delta, "null", nullptr);
}

std::string CallEvents(const AnswerHead& head, const v1::ToolCallDelta& call, uint32_t choice) {
  std::string events;
  const auto add = [&](ordered_json piece) {
    ordered_json delta;
    delta["tool_calls"] = ordered_json::array({std::move(piece)});
    events += ChunkEvent(head, choice, delta, "null", nullptr);
  };
  if (!call.name().empty()) {
    ordered_json begin;
    begin["index"] = call.index();
    begin["id"] = call.id();
    begin["type"] = "function";
    begin["function"] = {{"name", call.name()}, {"arguments", ""}};
    add(std::move(begin));
  }
  if (!call.arguments().empty()) {
    ordered_json piece;
    piece["index"] = call.index();
    piece["function"] = {{"arguments", call.arguments()}};
    add(std::move(piece));
  }
  return events;
}

std::string FinishEvent(const AnswerHead& head, absl::string_view finish_reason, uint32_t choice) {
  return ChunkEvent(head, choice, ordered_json::object(), "null", std::string(finish_reason));
}

std::string ModelBody(const ServedModel& model) { return Dump(ModelObject(model)); }

std::string ModelListBody(const std::vector<ServedModel>& models) {
  ordered_json body;
  body["object"] = "list";
  body["data"] = ordered_json::array();
  for (const ServedModel& model : models) body["data"].push_back(ModelObject(model));
  return Dump(body);
}

}  // namespace macrame::agentd
