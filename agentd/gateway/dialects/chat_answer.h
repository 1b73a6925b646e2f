#pragma once

// Answers to chat requests in OpenAI's format: one body, or the events of a stream. Pure.
//
// A stream is Open, then Reasoning, Text and Call as they come, and Finish (answer_stream.h puts it
// together); each returns whole events, blank line included. Where several answers were asked for,
// each has its own, with its number as `index`.

#include <cstdint>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"
#include "agentd/gateway/base/inference_backend.h"
#include "agentd/gateway/dialects/answer_format.h"
#include "macrame/v1/rank.pb.h"

namespace macrame::agentd {

// One answer, put together from its chunks.
struct CollectedAnswer {
  struct Call {
    std::string id, name, arguments;
  };
  std::string text;
  std::string reasoning;
  std::vector<Call> calls{};
  std::string logprobs;  // the entries of `logprobs.content` as JSON, with commas between
  v1::FinishReason finish = v1::FINISH_REASON_UNSPECIFIED;
  std::string stop_string;  // the one that ended it
  TokenCounts counts;

  void Add(const v1::GenerateChunk& chunk);
  size_t bytes() const;
};

std::string ChatCompletionBody(const AnswerHead& head, const std::vector<CollectedAnswer>& choices);

std::string OpenEvent(const AnswerHead& head, uint32_t choice = 0);
// The text and the logprobs of a chunk that has either.
std::string TextEvent(const AnswerHead& head, const v1::GenerateChunk& chunk, uint32_t choice = 0);
std::string ReasoningEvent(const AnswerHead& head, const std::string& reasoning,
                           uint32_t choice = 0);
// The beginning of a call with its id and name, then its arguments, as far as the piece has them.
std::string CallEvents(const AnswerHead& head, const v1::ToolCallDelta& call, uint32_t choice = 0);
std::string FinishEvent(const AnswerHead& head, absl::string_view finish_reason,
                        uint32_t choice = 0);

// GET /v1/models and /v1/models/{id}.
std::string ModelBody(const ServedModel& model);
std::string ModelListBody(const std::vector<ServedModel>& models);

}  // namespace macrame::agentd
