#include "agentd/gateway/answer_format.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "absl/strings/str_cat.h"
#include "agentd/gateway/bounded_json.h"

namespace macrame::agentd {

using nlohmann::ordered_json;

namespace {

// Of a call's arguments: a model that goes on opening brackets is no reason to run out of stack.
constexpr size_t kArgumentsDepthMax = 128;

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

// An event's, of a stream.
const char* StreamObject(const AnswerHead& head) {
  return head.form == AnswerForm::kChat ? "chat.completion.chunk" : "text_completion";
}

ordered_json HeadObject(const AnswerHead& head, const char* object) {
  ordered_json body;
  body["id"] = head.id;
  body["object"] = object;
  body["created"] = head.created_unix_seconds;
  body["model"] = head.model;
  if (head.form == AnswerForm::kChat) body["service_tier"] = "default";
  body["system_fingerprint"] = head.system_fingerprint;
  return body;
}

}  // namespace

std::string Dump(const ordered_json& value) {
  return value.dump(-1, ' ', false, ordered_json::error_handler_t::replace);
}

std::string BodyText(const AnswerHead& head, const char* object, absl::string_view choices,
                     absl::string_view usage) {
  std::string body = Dump(HeadObject(head, object));
  body.pop_back();
  absl::StrAppend(&body, ",\"choices\":[", choices, "]");
  if (!usage.empty()) absl::StrAppend(&body, ",\"usage\":", usage);
  body.push_back('}');
  return body;
}

std::string UsageText(const TokenCounts& counts) { return Dump(UsageObject(counts)); }

std::string ChoiceEvent(const AnswerHead& head, const char* object, absl::string_view choice) {
  return absl::StrCat("data: ", BodyText(head, object, choice, head.include_usage ? "null" : ""),
                      "\n\n");
}

void UpdateCounts(const v1::GenerateChunk& chunk, TokenCounts* counts) {
  counts->prompt_tokens = std::max(counts->prompt_tokens, chunk.prompt_tokens());
  counts->cached_tokens = std::max(counts->cached_tokens, chunk.cached_tokens());
  counts->completion_tokens = std::max(counts->completion_tokens, chunk.completion_tokens());
  counts->cold_tokens = std::max(counts->cold_tokens, chunk.cold_tokens());
  counts->reasoning_tokens = std::max(counts->reasoning_tokens, chunk.reasoning_tokens());
  counts->prefill_ms = std::max(counts->prefill_ms, chunk.prefill_ms());
  counts->decode_ms = std::max(counts->decode_ms, chunk.decode_ms());
  if (chunk.has_prefix_miss()) counts->miss = chunk.prefix_miss();
}

TokenCounts TotalCounts(const std::vector<TokenCounts>& of_choices, uint32_t choices_per_prompt) {
  TokenCounts total = of_choices.at(0);
  for (size_t i = 1; i < of_choices.size(); ++i) {
    const TokenCounts& counts = of_choices[i];
    total.completion_tokens += counts.completion_tokens;
    total.reasoning_tokens += counts.reasoning_tokens;
    if (i % choices_per_prompt != 0) continue;
    total.prompt_tokens += counts.prompt_tokens;
    total.cached_tokens += counts.cached_tokens;
    total.cold_tokens += counts.cold_tokens;
  }
  return total;
}

size_t BytesOf(const v1::GenerateChunk& chunk) {
  size_t bytes = chunk.text().size() + chunk.reasoning().size() +
                 static_cast<size_t>(chunk.embedding_size()) * sizeof(float);
  for (const v1::ToolCallDelta& call : chunk.tool_calls()) {
    bytes += call.id().size() + call.name().size() + call.arguments().size();
  }
  for (const v1::TokenLogprob& token : chunk.logprobs()) bytes += token.ByteSizeLong();
  return bytes;
}

absl::string_view FinishReasonName(v1::FinishReason reason, bool has_calls) {
  if (reason == v1::FINISH_REASON_LENGTH) return "length";
  return has_calls ? "tool_calls" : "stop";
}

std::string UsageEvent(const AnswerHead& head, const TokenCounts& counts) {
  return absl::StrCat("data: ", BodyText(head, StreamObject(head), "", UsageText(counts)), "\n\n");
}

std::string ProgressEvent(const AnswerHead& head, const v1::PromptProgress& progress,
                          uint32_t choice) {
  ordered_json body = HeadObject(head, StreamObject(head));
  body["choices"] = ordered_json::array();
  ordered_json& fields = body["prompt_progress"];
  fields["total"] = progress.prompt_tokens();
  fields["cache"] = progress.cached_tokens();
  fields["processed"] = progress.computed_tokens();
  fields["time_ms"] = static_cast<int64_t>(progress.elapsed_ms());
  fields["queued"] = progress.is_queued();
  if (head.choices > 1) fields["index"] = choice;
  return absl::StrCat("data: ", Dump(body), "\n\n");
}

ApiError EndedByCluster() {
  return ApiErrorFromStatus(absl::CancelledError("The answer was ended by the cluster"));
}

ordered_json ArgumentsObject(const std::string& arguments) {
  if (arguments.empty()) return ordered_json::object();
  const ordered_json raw = {{"invalid_json", arguments}};
  if (ShapeOfJson(arguments, kArgumentsDepthMax) != JsonShape::kFine) return raw;
  ordered_json read = ordered_json::parse(arguments, nullptr, /*allow_exceptions=*/false);
  if (read.is_object()) return read;
  return raw;
}

std::string ErrorEvent(const ApiError& error) {
  return absl::StrCat("data: ", ErrorBody(error), "\n\n");
}

}  // namespace macrame::agentd
