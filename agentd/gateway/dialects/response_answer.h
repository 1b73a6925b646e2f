#pragma once

// Answers in the form of OpenAI's responses: one body, or the events of a stream. Pure.
//
// `output` holds a reasoning item, a message and one function_call for each call. An answer that is
// complete is handed to the head's ResponseTurn, which keeps it.

#include <cstdint>
#include <functional>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>
#include <vector>

#include "agentd/gateway/dialects/answer_stream.h"
#include "agentd/gateway/dialects/chat_answer.h"
#include "agentd/gateway/dialects/response_request.h"

namespace macrame::agentd {

struct ResponseTurn {
  nlohmann::ordered_json echo;      // of ResponseRequest
  nlohmann::ordered_json messages;  // the chat before the answer
  NamespacedTools namespaced{};     // of ResponseRequest
  // Called once with the answer's body and the chat with the answer; null: nobody keeps it.
  std::function<void(std::string body, std::string messages)> keep{};
};

std::string ResponseBody(const AnswerHead& head, const std::vector<CollectedAnswer>& answers);

class ResponseStream : public AnswerStream {
 public:
  explicit ResponseStream(AnswerHead head) : head_(std::move(head)) {}
  std::string Open() override;
  std::string Chunk(const v1::GenerateChunk& chunk, uint32_t choice) override;
  std::string End(const absl::Status& status, uint32_t choice) override;
  // response.failed, with the error within the response.
  std::string Fail(const ApiError& error) override;
  bool ended() const override { return ended_; }

 private:
  enum class Item { kNone, kReasoning, kMessage, kCall };
  std::string Event(const char* type, nlohmann::ordered_json fields);
  std::string Enter(Item item, const v1::ToolCallDelta* call);
  std::string EndItem(bool is_cut);
  std::string Delta(const char* type, const std::string& text);
  // With the place of the item, and that of its only part.
  nlohmann::ordered_json Place(bool has_part) const;

  const AnswerHead head_;
  CollectedAnswer answer_;
  nlohmann::ordered_json output_ = nlohmann::ordered_json::array();  // items that have ended
  Item item_ = Item::kNone;
  nlohmann::ordered_json current_;  // the item as it stands
  std::string text_;                // of the item so far
  uint64_t sequence_ = 0;
  bool ended_ = false;
};

}  // namespace macrame::agentd
