#pragma once

// A stream of events as a whole, fed with what the backend tells: what all forms have in common,
// and OpenAI's chats and text completions. Pure.
//
// Each answer opens, comes in pieces and finishes, mixed with the others; behind the last stand
// usage (when asked for) and [DONE]. An error takes the place of what is still missing.

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "agentd/gateway/dialects/answer_format.h"
#include "agentd/gateway/dialects/text_answer.h"
#include "macrame/v1/rank.pb.h"

namespace macrame::agentd {

// Text may be empty when there is nothing to send.
class AnswerStream {
 public:
  virtual ~AnswerStream() = default;
  virtual std::string Open() = 0;
  virtual std::string Chunk(const v1::GenerateChunk& chunk, uint32_t choice) = 0;
  // How far a choice's prompt is. Empty where the form has no word for it, or nobody asked.
  virtual std::string Progress(const v1::PromptProgress&, uint32_t) { return ""; }
  // After a choice's last chunk: its finish, after the last one's usage and end; or the error.
  virtual std::string End(const absl::Status& status, uint32_t choice) = 0;
  virtual std::string Fail(const ApiError& error) = 0;
  // What tells the client during silence that the connection is alive.
  virtual std::string KeepAlive() { return std::string(kKeepAliveComment); }
  virtual absl::string_view content_type() const { return "text/event-stream; charset=utf-8"; }
  // Nothing may follow.
  virtual bool ended() const = 0;
};

class StreamComposer : public AnswerStream {
 public:
  explicit StreamComposer(AnswerHead head) : head_(std::move(head)), choices_(head_.choices) {}
  std::string Open() override;
  std::string Chunk(const v1::GenerateChunk& chunk, uint32_t choice = 0) override;
  std::string Progress(const v1::PromptProgress& progress, uint32_t choice = 0) override;
  std::string End(const absl::Status& status, uint32_t choice = 0) override;
  std::string Fail(const ApiError& error) override;
  bool ended() const override { return ended_; }

 private:
  struct Choice {
    TokenCounts counts{};
    v1::FinishReason finish = v1::FINISH_REASON_UNSPECIFIED;
    bool has_calls = false;
    uint64_t characters = 0;  // of a text answer, before the next token
  };
  std::string ChatEvents(const v1::GenerateChunk& chunk, uint32_t choice);

  AnswerHead head_;
  std::vector<Choice> choices_;
  uint32_t choices_ended_ = 0;
  bool ended_ = false;
};

}  // namespace macrame::agentd
