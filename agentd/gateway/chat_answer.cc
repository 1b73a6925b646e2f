#include "agentd/gateway/chat_answer.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "absl/strings/str_cat.h"

namespace macrame::agentd {
namespace {

using nlohmann::ordered_json;

std::string Dump(const ordered_json& value) {
  return value.dump(-1, ' ', false, ordered_json::error_handler_t::replace);
}

ordered_json UsageObject(const TokenCounts& counts) {
  ordered_json usage;
  usage["prompt_tokens"] = counts.prompt_tokens;
  usage["completion_tokens"] = counts.completion_tokens;
  usage["total_tokens"] = uint64_t{counts.prompt_tokens} + counts.completion_tokens;
  usage["prompt_tokens_details"] = {{"cached_tokens", counts.cached_tokens}, {"audio_tokens", 0}};
  usage["completion_tokens_details"] = {{"reasoning_tokens", counts.reasoning_tokens},
                                        {"audio_tokens", 0},
                                        {"accepted_prediction_tokens", 0},
                                        {"rejected_prediction_tokens", 0}};
  // Ours: clients of OpenAI's take no notice of it.
  ordered_json ours;
  if (counts.cold_tokens > 0) ours["cached_tokens_from_disk"] = counts.cold_tokens;
  if (!counts.miss.kind().empty()) {
    ordered_json& miss = ours["prefix_miss"];
    miss["kind"] = counts.miss.kind();
    miss["token"] = counts.miss.position();
    if (!counts.miss.part().empty()) miss["part"] = counts.miss.part();
    if (!counts.miss.varying().empty()) miss["varying"] = counts.miss.varying();
    miss["text"] = counts.miss.text();
  }
  if (!ours.empty()) usage["macrame"] = std::move(ours);
  return usage;
}

ordered_json HeadObject(const ChatAnswerHead& head, const char* object) {
  ordered_json body;
  body["id"] = head.id;
  body["object"] = object;
  body["created"] = head.created_unix_seconds;
  body["model"] = head.model;
  body["service_tier"] = "default";
  body["system_fingerprint"] = head.system_fingerprint;
  return body;
}

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

// `head` with the choices behind its fields; `usage` may be empty.
std::string BodyText(const ordered_json& head, absl::string_view choices, absl::string_view usage) {
  std::string body = Dump(head);
  body.pop_back();
  absl::StrAppend(&body, ",\"choices\":[", choices, "]");
  if (!usage.empty()) absl::StrAppend(&body, ",\"usage\":", usage);
  body.push_back('}');
  return body;
}

std::string Event(const ordered_json& body) { return absl::StrCat("data: ", Dump(body), "\n\n"); }

std::string ChunkEvent(const ChatAnswerHead& head, uint32_t choice, const ordered_json& delta,
                       absl::string_view logprobs, const ordered_json& finish_reason) {
  return absl::StrCat("data: ",
                      BodyText(HeadObject(head, "chat.completion.chunk"),
                               ChoiceText(choice, "delta", delta, logprobs, finish_reason),
                               head.include_usage ? "null" : ""),
                      "\n\n");
}

ordered_json MessageObject(const ChatAnswerHead& head, const CollectedChoice& choice) {
  ordered_json message;
  message["role"] = "assistant";
  message["content"] = choice.text;
  if (choice.text.empty() && !choice.calls.empty()) message["content"] = nullptr;
  if (!choice.reasoning.empty() && !head.excludes_reasoning) {
    message["reasoning_content"] = choice.reasoning;
  }
  message["refusal"] = nullptr;
  message["annotations"] = ordered_json::array();
  for (const CollectedChoice::Call& call : choice.calls) {
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

absl::string_view FinishReasonName(v1::FinishReason reason, bool has_calls) {
  if (reason == v1::FINISH_REASON_LENGTH) return "length";
  return has_calls ? "tool_calls" : "stop";
}

void CollectedChoice::Add(const v1::GenerateChunk& chunk) {
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
}

size_t BytesOf(const v1::GenerateChunk& chunk) {
  size_t bytes = chunk.text().size() + chunk.reasoning().size();
  for (const v1::ToolCallDelta& call : chunk.tool_calls()) {
    bytes += call.id().size() + call.name().size() + call.arguments().size();
  }
  for (const v1::TokenLogprob& token : chunk.logprobs()) bytes += token.ByteSizeLong();
  return bytes;
}

TokenCounts TotalCounts(const std::vector<TokenCounts>& of_choices) {
  TokenCounts total = of_choices.at(0);
  for (size_t i = 1; i < of_choices.size(); ++i) {
    total.completion_tokens += of_choices[i].completion_tokens;
  }
  return total;
}

std::string ChatCompletionBody(const ChatAnswerHead& head,
                               const std::vector<CollectedChoice>& choices) {
  std::string text;
  std::vector<TokenCounts> counts;
  for (const CollectedChoice& choice : choices) {
    const auto index = static_cast<uint32_t>(counts.size());
    absl::StrAppend(
        &text, index == 0 ? "" : ",",
        ChoiceText(index, "message", MessageObject(head, choice),
                   head.has_logprobs ? LogprobsText(choice.logprobs) : "null",
                   std::string(FinishReasonName(choice.finish, !choice.calls.empty()))));
    counts.push_back(choice.counts);
  }
  return BodyText(HeadObject(head, "chat.completion"), text,
                  Dump(UsageObject(TotalCounts(counts))));
}

std::string OpenEvent(const ChatAnswerHead& head, uint32_t choice) {
  ordered_json delta;
  delta["role"] = "assistant";
  delta["content"] = "";
  delta["refusal"] = nullptr;
  return ChunkEvent(head, choice, delta, "null", nullptr);
}

std::string TextEvent(const ChatAnswerHead& head, const v1::GenerateChunk& chunk, uint32_t choice) {
  ordered_json delta;
  delta["content"] = chunk.text();
  std::string logprobs;
  AppendLogprobs(chunk, &logprobs);
  return ChunkEvent(head, choice, delta, logprobs.empty() ? "null" : LogprobsText(logprobs),
                    nullptr);
}

std::string ReasoningEvent(const ChatAnswerHead& head, const std::string& reasoning,
                           uint32_t choice) {
  ordered_json delta;
  delta["reasoning_content"] = reasoning;
  return ChunkEvent(head, choice, delta, "null", nullptr);
}

std::string CallEvents(const ChatAnswerHead& head, const v1::ToolCallDelta& call, uint32_t choice) {
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

std::string FinishEvent(const ChatAnswerHead& head, absl::string_view finish_reason,
                        uint32_t choice) {
  return ChunkEvent(head, choice, ordered_json::object(), "null", std::string(finish_reason));
}

std::string UsageEvent(const ChatAnswerHead& head, const TokenCounts& counts) {
  ordered_json body = HeadObject(head, "chat.completion.chunk");
  body["choices"] = ordered_json::array();
  body["usage"] = UsageObject(counts);
  return Event(body);
}

std::string ErrorEvent(const ApiError& error) {
  return absl::StrCat("data: ", ErrorBody(error), "\n\n");
}

void UpdateCounts(const v1::GenerateChunk& chunk, TokenCounts* counts) {
  counts->prompt_tokens = std::max(counts->prompt_tokens, chunk.prompt_tokens());
  counts->cached_tokens = std::max(counts->cached_tokens, chunk.cached_tokens());
  counts->completion_tokens = std::max(counts->completion_tokens, chunk.completion_tokens());
  counts->cold_tokens = std::max(counts->cold_tokens, chunk.cold_tokens());
  counts->reasoning_tokens = std::max(counts->reasoning_tokens, chunk.reasoning_tokens());
  if (chunk.has_prefix_miss()) counts->miss = chunk.prefix_miss();
}

std::string StreamComposer::Open() const {
  std::string events;
  for (uint32_t choice = 0; choice < head_.choices; ++choice) events += OpenEvent(head_, choice);
  return events;
}

std::string StreamComposer::Chunk(const v1::GenerateChunk& chunk, uint32_t choice) {
  Progress& progress = choices_.at(choice);
  UpdateCounts(chunk, &progress.counts);
  if (chunk.finish_reason() != v1::FINISH_REASON_UNSPECIFIED) {
    progress.finish = chunk.finish_reason();
  }
  std::string events;
  if (!chunk.reasoning().empty() && !head_.excludes_reasoning) {
    events += ReasoningEvent(head_, chunk.reasoning(), choice);
  }
  if (!chunk.text().empty() || !chunk.logprobs().empty()) {
    events += TextEvent(head_, chunk, choice);
  }
  for (const v1::ToolCallDelta& call : chunk.tool_calls()) {
    progress.has_calls = true;
    events += CallEvents(head_, call, choice);
  }
  return events;
}

std::string StreamComposer::End(const absl::Status& status, uint32_t choice) {
  if (!status.ok()) return Fail(ApiErrorFromStatus(status));
  const Progress& progress = choices_.at(choice);
  if (progress.finish == v1::FINISH_REASON_CANCELLED) {
    return Fail(ApiErrorFromStatus(absl::CancelledError("The answer was ended by the cluster")));
  }
  std::string events =
      FinishEvent(head_, FinishReasonName(progress.finish, progress.has_calls), choice);
  if (++choices_ended_ < head_.choices) return events;
  ended_ = true;
  if (head_.include_usage) {
    std::vector<TokenCounts> counts;
    for (const Progress& progress : choices_) counts.push_back(progress.counts);
    events += UsageEvent(head_, TotalCounts(counts));
  }
  return absl::StrCat(events, kDoneEvent);
}

std::string StreamComposer::Fail(const ApiError& error) {
  ended_ = true;
  return ErrorEvent(error);
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
