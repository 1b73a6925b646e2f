#pragma once

// Answers to chat requests in OpenAI's format: one body, or a stream of server-sent events. Pure:
// ids and times are handed in.
//
// A stream is Open, then Reasoning, Text and Call as they come, Finish, Usage (when asked for),
// Done; Error takes the place of what is still missing. Each returns whole events, blank line
// included. Where several answers were asked for, each has its own Open … Finish, mixed as they
// come, with its number as `index`.

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
  uint32_t choices = 1;
  bool has_logprobs = false;
  bool excludes_reasoning = false;  // it is counted, and not sent
};

struct TokenCounts {
  uint32_t prompt_tokens = 0;
  uint32_t completion_tokens = 0;
  uint32_t cached_tokens = 0;     // of the prompt's
  uint32_t cold_tokens = 0;       // of the cached ones, read from disk
  uint32_t reasoning_tokens = 0;  // of the completion's
  v1::PrefixMiss miss{};          // why no more was cached; without a kind: nothing to say
};

// "stop", "length", or "tool_calls" for an answer that ended with calls.
absl::string_view FinishReasonName(v1::FinishReason reason, bool has_calls);

// One answer, put together from its chunks.
struct CollectedChoice {
  struct Call {
    std::string id, name, arguments;
  };
  std::string text;
  std::string reasoning;
  std::vector<Call> calls{};
  std::string logprobs;  // the entries of `logprobs.content` as JSON, with commas between
  v1::FinishReason finish = v1::FINISH_REASON_UNSPECIFIED;
  TokenCounts counts;

  void Add(const v1::GenerateChunk& chunk);
};

// What of a chunk grows with the answer, for bounds.
size_t BytesOf(const v1::GenerateChunk& chunk);

// What they cost together: the first one's prompt, since all have the same, and every answer.
TokenCounts TotalCounts(const std::vector<TokenCounts>& of_choices);

std::string ChatCompletionBody(const ChatAnswerHead& head,
                               const std::vector<CollectedChoice>& choices);

std::string OpenEvent(const ChatAnswerHead& head, uint32_t choice = 0);
// The text and the logprobs of a chunk that has either.
std::string TextEvent(const ChatAnswerHead& head, const v1::GenerateChunk& chunk,
                      uint32_t choice = 0);
std::string ReasoningEvent(const ChatAnswerHead& head, const std::string& reasoning,
                           uint32_t choice = 0);
// The beginning of a call with its id and name, then its arguments, as far as the piece has them.
std::string CallEvents(const ChatAnswerHead& head, const v1::ToolCallDelta& call,
                       uint32_t choice = 0);
std::string FinishEvent(const ChatAnswerHead& head, absl::string_view finish_reason,
                        uint32_t choice = 0);
std::string UsageEvent(const ChatAnswerHead& head, const TokenCounts& counts);
std::string ErrorEvent(const ApiError& error);
inline constexpr absl::string_view kDoneEvent = "data: [DONE]\n\n";
inline constexpr absl::string_view kKeepAliveComment = ": keep-alive\n\n";

// A stream as a whole, fed with what the backend tells. Text may be empty when there is nothing to
// send.
class StreamComposer {
 public:
  explicit StreamComposer(ChatAnswerHead head) : head_(std::move(head)), choices_(head_.choices) {}
  std::string Open() const;
  std::string Chunk(const v1::GenerateChunk& chunk, uint32_t choice = 0);
  // After a choice's last chunk: its finish, after the last one's usage and end; or the error.
  std::string End(const absl::Status& status, uint32_t choice = 0);
  std::string Fail(const ApiError& error);
  // Nothing may follow.
  bool ended() const { return ended_; }

 private:
  ChatAnswerHead head_;
  struct Progress {
    TokenCounts counts{};
    v1::FinishReason finish = v1::FINISH_REASON_UNSPECIFIED;
    bool has_calls = false;
  };
  std::vector<Progress> choices_;
  uint32_t choices_ended_ = 0;
  bool ended_ = false;
};

// Takes over the counts that a chunk carries; they only grow.
void UpdateCounts(const v1::GenerateChunk& chunk, TokenCounts* counts);

// GET /v1/models and /v1/models/{id}.
std::string ModelBody(const ServedModel& model);
std::string ModelListBody(const std::vector<ServedModel>& models);

}  // namespace macrame::agentd
