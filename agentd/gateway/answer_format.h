#pragma once

// What answers to chats and to text prompts have in common, in OpenAI's formats: heads, counts, and
// the events that end a stream. Pure: ids and times are handed in.

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"
#include "agentd/gateway/api_error.h"
#include "macrame/v1/rank.pb.h"

namespace macrame::agentd {

enum class AnswerForm {
  kChat,  // chat.completion
  kText,  // text_completion
  kEmbedding,
};

// What all events of one answer have in common.
struct AnswerHead {
  AnswerForm form = AnswerForm::kChat;
  std::string id;  // "chatcmpl-…", "cmpl-…"
  int64_t created_unix_seconds = 0;
  std::string model;
  std::string system_fingerprint;
  bool include_usage = false;
  uint32_t choices = 1;  // those of a prompt side by side
  uint32_t choices_per_prompt = 1;
  std::vector<std::string> echoes{};  // of kText, by choice: what its text begins with; or none
  bool has_logprobs = false;
  bool excludes_reasoning = false;  // it is counted, and not sent
  bool as_base64 = false;           // of kEmbedding: how numbers are written
};

struct TokenCounts {
  uint32_t prompt_tokens = 0;
  uint32_t completion_tokens = 0;
  uint32_t cached_tokens = 0;     // of the prompt's
  uint32_t cold_tokens = 0;       // of the cached ones, read from disk
  uint32_t reasoning_tokens = 0;  // of the completion's
  v1::PrefixMiss miss{};          // why no more was cached; without a kind: nothing to say
};

// Takes over the counts that a chunk carries; they only grow.
void UpdateCounts(const v1::GenerateChunk& chunk, TokenCounts* counts);
// What the choices cost together: every answer, and every prompt once. A prompt that is computed
// for several choices is that of the first.
TokenCounts TotalCounts(const std::vector<TokenCounts>& of_choices, uint32_t choices_per_prompt);

// What of a chunk grows with the answer, for bounds.
size_t BytesOf(const v1::GenerateChunk& chunk);

// "stop", "length", or "tool_calls" for an answer that ended with calls.
absl::string_view FinishReasonName(v1::FinishReason reason, bool has_calls);

// Whole events, blank line included.
std::string UsageEvent(const AnswerHead& head, const TokenCounts& counts);
std::string ErrorEvent(const ApiError& error);
inline constexpr absl::string_view kDoneEvent = "data: [DONE]\n\n";
inline constexpr absl::string_view kKeepAliveComment = ": keep-alive\n\n";

// JSON as text; bytes that are no UTF-8 are replaced.
std::string Dump(const nlohmann::ordered_json& value);
// `object`: "chat.completion", …. `choices`: elements of a list, as JSON. `usage` may be empty.
std::string BodyText(const AnswerHead& head, const char* object, absl::string_view choices,
                     absl::string_view usage);
std::string UsageText(const TokenCounts& counts);
// An event of a stream with one choice, given as JSON.
std::string ChoiceEvent(const AnswerHead& head, const char* object, absl::string_view choice);

}  // namespace macrame::agentd
