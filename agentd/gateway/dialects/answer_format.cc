#include "agentd/gateway/dialects/answer_format.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "absl/strings/str_cat.h"
#include "agentd/gateway/fields/bounded_json.h"

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
