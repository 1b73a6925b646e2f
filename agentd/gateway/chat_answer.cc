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
  usage["completion_tokens_details"] = {{"reasoning_tokens", 0},
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

std::string Event(const ordered_json& body) { return absl::StrCat("data: ", Dump(body), "\n\n"); }

std::string ChunkEvent(const ChatAnswerHead& head, ordered_json delta, ordered_json finish_reason) {
  ordered_json choice;
  choice["index"] = 0;
  choice["delta"] = std::move(delta);
  choice["logprobs"] = nullptr;
  choice["finish_reason"] = std::move(finish_reason);
  ordered_json body = HeadObject(head, "chat.completion.chunk");
  body["choices"] = ordered_json::array({std::move(choice)});
  if (head.include_usage) body["usage"] = nullptr;
  return Event(body);
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

absl::string_view FinishReasonName(v1::FinishReason reason) {
  return reason == v1::FINISH_REASON_LENGTH ? "length" : "stop";
}

std::string ChatCompletionBody(const ChatAnswerHead& head, const std::string& text,
                               absl::string_view finish_reason, const TokenCounts& counts) {
  ordered_json message;
  message["role"] = "assistant";
  message["content"] = text;
  message["refusal"] = nullptr;
  message["annotations"] = ordered_json::array();
  ordered_json choice;
  choice["index"] = 0;
  choice["message"] = std::move(message);
  choice["logprobs"] = nullptr;
  choice["finish_reason"] = std::string(finish_reason);
  ordered_json body = HeadObject(head, "chat.completion");
  body["choices"] = ordered_json::array({std::move(choice)});
  body["usage"] = UsageObject(counts);
  return Dump(body);
}

std::string OpenEvent(const ChatAnswerHead& head) {
  ordered_json delta;
  delta["role"] = "assistant";
  delta["content"] = "";
  delta["refusal"] = nullptr;
  return ChunkEvent(head, std::move(delta), nullptr);
}

std::string TextEvent(const ChatAnswerHead& head, const std::string& text) {
  ordered_json delta;
  delta["content"] = text;
  return ChunkEvent(head, std::move(delta), nullptr);
}

std::string FinishEvent(const ChatAnswerHead& head, absl::string_view finish_reason) {
  return ChunkEvent(head, ordered_json::object(), std::string(finish_reason));
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
  if (chunk.has_prefix_miss()) counts->miss = chunk.prefix_miss();
}

std::string StreamComposer::Chunk(const v1::GenerateChunk& chunk) {
  UpdateCounts(chunk, &counts_);
  if (chunk.finish_reason() != v1::FINISH_REASON_UNSPECIFIED) finish_ = chunk.finish_reason();
  return chunk.text().empty() ? std::string() : TextEvent(head_, chunk.text());
}

std::string StreamComposer::End(const absl::Status& status) {
  if (!status.ok()) return Fail(ApiErrorFromStatus(status));
  if (finish_ == v1::FINISH_REASON_CANCELLED) {
    return Fail(ApiErrorFromStatus(absl::CancelledError("The answer was ended by the cluster")));
  }
  ended_ = true;
  std::string events = FinishEvent(head_, FinishReasonName(finish_));
  if (head_.include_usage) events += UsageEvent(head_, counts_);
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
