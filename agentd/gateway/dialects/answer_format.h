#pragma once

// What answers to chats and to text prompts have in common, in OpenAI's formats: heads, and the
// events that end a stream. Pure: ids and times are handed in.

#include <cstdint>
#include <memory>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"
#include "agentd/gateway/base/api_error.h"
#include "agentd/gateway/base/token_counts.h"
#include "macrame/v1/rank.pb.h"

namespace macrame::agentd {

enum class AnswerForm {
  kChat,  // chat.completion
  kText,  // text_completion
  kEmbedding,
  kMessage,   // Anthropic's
  kResponse,  // of /v1/responses
  kOllamaChat,
  kOllamaText,       // of /api/generate
  kOllamaEmbed,      // a list of them
  kOllamaEmbedding,  // the older form, one
  kTokenCount,       // of /v1/messages/count_tokens
  kTokens,           // of /tokenize
  kTokenText,        // of /detokenize
};
constexpr bool IsEmbedding(AnswerForm form) {
  return form == AnswerForm::kEmbedding || form == AnswerForm::kOllamaEmbed ||
         form == AnswerForm::kOllamaEmbedding;
}
constexpr bool IsOfTokens(AnswerForm form) {
  return form == AnswerForm::kTokenCount || form == AnswerForm::kTokens ||
         form == AnswerForm::kTokenText;
}

struct ResponseTurn;

// What all events of one answer have in common.
struct AnswerHead {
  AnswerForm form = AnswerForm::kChat;
  std::string id;  // "chatcmpl-…", "cmpl-…"
  int64_t created_unix_seconds = 0;
  std::string model;
  std::string system_fingerprint;
  bool include_usage = false;
  bool tells_progress = false;  // of the prompt, in a stream
  uint32_t choices = 1;         // those of a prompt side by side
  uint32_t choices_per_prompt = 1;
  std::vector<std::string> echoes{};  // of kText, by choice: what its text begins with; or none
  bool has_logprobs = false;
  bool excludes_reasoning = false;           // it is counted, and not sent
  bool as_base64 = false;                    // of kEmbedding: how numbers are written
  std::string request_id{};                  // for errors that name it
  uint32_t context_length = 0;               // of kTokens: the model's
  std::shared_ptr<ResponseTurn> response{};  // of kResponse: response_answer.h
};

// "stop", "length", or "tool_calls" for an answer that ended with calls.
absl::string_view FinishReasonName(v1::FinishReason reason, bool has_calls);

// Whole events, blank line included.
std::string UsageEvent(const AnswerHead& head, const TokenCounts& counts);
// How far the prompt is, as llama.cpp's server writes it (`return_progress`), in an event without
// choices.
std::string ProgressEvent(const AnswerHead& head, const v1::PromptProgress& progress,
                          uint32_t choice);
std::string ErrorEvent(const ApiError& error);
inline constexpr absl::string_view kDoneEvent = "data: [DONE]\n\n";
inline constexpr absl::string_view kKeepAliveComment = ": keep-alive\n\n";

// An answer that was not let end.
ApiError EndedByCluster();
// A call's arguments as a client reads them where it wants an object; text that is none becomes
// {"invalid_json": "…"}.
nlohmann::ordered_json ArgumentsObject(const std::string& arguments);

// JSON as text; bytes that are no UTF-8 are replaced.
std::string Dump(const nlohmann::ordered_json& value);
// `object`: "chat.completion", …. `choices`: elements of a list, as JSON. `usage` may be empty.
std::string BodyText(const AnswerHead& head, const char* object, absl::string_view choices,
                     absl::string_view usage);
std::string UsageText(const TokenCounts& counts);
// An event of a stream with one choice, given as JSON.
std::string ChoiceEvent(const AnswerHead& head, const char* object, absl::string_view choice);

}  // namespace macrame::agentd
