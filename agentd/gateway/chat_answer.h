#pragma once

// Answers to chat requests in OpenAI's format: one body, or a stream of server-sent events. Pure:
// ids and times are handed in.
//
// A stream is Open, Text …, Finish, Usage (when asked for), Done; Error takes the place of what is
// still missing. Each returns whole events, blank line included.

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/string_view.h"
#include "agentd/gateway/api_error.h"
#include "agentd/gateway/inference_backend.h"
#include "macrame/v1/rank.pb.h"

namespace macrame::agentd {

// What all events of one answer have in common.
struct ChatAnswerHead {
  std::string id;  // "chatcmpl-…"
  int64_t created_unix_seconds = 0;
  std::string model;
  std::string system_fingerprint;
  bool include_usage = false;
};

struct TokenCounts {
  uint32_t prompt_tokens = 0;
  uint32_t completion_tokens = 0;
  uint32_t cached_tokens = 0;  // of the prompt's
  uint32_t cold_tokens = 0;    // of the cached ones, read from disk
  v1::PrefixMiss miss{};       // why no more was cached; without a kind: nothing to say
};

// "stop" or "length".
absl::string_view FinishReasonName(v1::FinishReason reason);

std::string ChatCompletionBody(const ChatAnswerHead& head, const std::string& text,
                               absl::string_view finish_reason, const TokenCounts& counts);

std::string OpenEvent(const ChatAnswerHead& head);
std::string TextEvent(const ChatAnswerHead& head, const std::string& text);
std::string FinishEvent(const ChatAnswerHead& head, absl::string_view finish_reason);
std::string UsageEvent(const ChatAnswerHead& head, const TokenCounts& counts);
std::string ErrorEvent(const ApiError& error);
inline constexpr absl::string_view kDoneEvent = "data: [DONE]\n\n";
inline constexpr absl::string_view kKeepAliveComment = ": keep-alive\n\n";

// A stream as a whole, fed with what the backend tells. Text may be empty when there is nothing to
// send.
class StreamComposer {
 public:
  explicit StreamComposer(ChatAnswerHead head) : head_(std::move(head)) {}
  std::string Open() const { return OpenEvent(head_); }
  std::string Chunk(const v1::GenerateChunk& chunk);
  // After the last chunk: finish, usage and end, or the error.
  std::string End(const absl::Status& status);
  std::string Fail(const ApiError& error);
  // Nothing may follow.
  bool ended() const { return ended_; }

 private:
  ChatAnswerHead head_;
  TokenCounts counts_;
  v1::FinishReason finish_ = v1::FINISH_REASON_UNSPECIFIED;
  bool ended_ = false;
};

// Takes over the counts that a chunk carries; they only grow.
void UpdateCounts(const v1::GenerateChunk& chunk, TokenCounts* counts);

// GET /v1/models and /v1/models/{id}.
std::string ModelBody(const ServedModel& model);
std::string ModelListBody(const std::vector<ServedModel>& models);

}  // namespace macrame::agentd
