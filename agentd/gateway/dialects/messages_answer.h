#pragma once

// Answers in the form of Anthropic's messages: one body, or the events of a stream. Pure.
//
// Content is a list of blocks: thinking, text and one tool_use for each call, in the order in which
// they came. A thinking block's signature says nothing: clients expect one and send it back, and
// it is not looked at.

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "agentd/gateway/base/inference_backend.h"
#include "agentd/gateway/dialects/answer_stream.h"
#include "agentd/gateway/dialects/chat_answer.h"

namespace macrame::agentd {

std::string MessagesBody(const AnswerHead& head, const std::vector<CollectedAnswer>& answers);

// GET /v1/models and one of them, as Anthropic's clients read it.
std::string AnthropicModelListBody(const std::vector<ServedModel>& models);
std::string AnthropicModelBody(const ServedModel& model);

class MessagesStream : public AnswerStream {
 public:
  explicit MessagesStream(AnswerHead head) : head_(std::move(head)) {}
  // Nothing yet: message_start comes with the first piece, which has the prompt's counts.
  std::string Open() override { return ""; }
  std::string Chunk(const v1::GenerateChunk& chunk, uint32_t choice) override;
  std::string End(const absl::Status& status, uint32_t choice) override;
  std::string Fail(const ApiError& error) override;
  std::string KeepAlive() override;
  bool ended() const override { return ended_; }

 private:
  enum class Block { kNone, kThinking, kText, kCall };
  std::string Start();
  // The events that end the block before and begin this one, unless it goes on.
  std::string Enter(Block block);
  std::string EndBlock();
  std::string Delta(const char* type, const char* member, const std::string& text) const;
  std::string CallEvents(const v1::ToolCallDelta& call);

  const AnswerHead head_;
  TokenCounts counts_;
  v1::FinishReason finish_ = v1::FINISH_REASON_UNSPECIFIED;
  std::string stop_string_;
  Block block_ = Block::kNone;
  int index_ = -1;  // of the block
  bool started_ = false;
  bool has_calls_ = false;
  bool ended_ = false;
};

}  // namespace macrame::agentd
