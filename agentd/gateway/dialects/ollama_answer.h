#pragma once

// Answers in the form of Ollama's API: one body, or a line of JSON for each piece. Pure.
//
// Durations are nanoseconds, as the entry rank measured them.

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "agentd/gateway/base/inference_backend.h"
#include "agentd/gateway/dialects/answer_stream.h"
#include "agentd/gateway/dialects/chat_answer.h"

namespace macrame::agentd {

// The version of Ollama's API that is spoken here: clients ask for one before they use the port.
inline constexpr char kOllamaApiVersion[] = "0.12.6";

// "2026-01-31T12:00:00Z".
std::string UtcTime(int64_t unix_seconds);

std::string OllamaBody(const AnswerHead& head, const std::vector<CollectedAnswer>& answers);
// To a request without a prompt.
std::string OllamaLoadBody(const AnswerHead& head);
// What requests of a model may ask for.
struct ModelAbilities {
  bool takes_tools = true;
  bool thinks = false;
};

// /api/tags, /api/ps, /api/show.
std::string OllamaTagsBody(const std::vector<ServedModel>& models);
std::string OllamaProcessesBody(const std::vector<ServedModel>& models);
std::string OllamaModelBody(const ServedModel& model, const ModelAbilities& abilities = {});

class OllamaStream : public AnswerStream {
 public:
  explicit OllamaStream(AnswerHead head) : head_(std::move(head)) {}
  std::string Open() override { return ""; }
  std::string Chunk(const v1::GenerateChunk& chunk, uint32_t choice) override;
  std::string End(const absl::Status& status, uint32_t choice) override;
  std::string Fail(const ApiError& error) override;
  // A piece without text: lines of JSON have no comments.
  std::string KeepAlive() override;
  absl::string_view content_type() const override { return "application/x-ndjson"; }
  bool ended() const override { return ended_; }

 private:
  const AnswerHead head_;
  CollectedAnswer answer_;
  CollectedAnswer::Call call_{};  // under way; it goes out whole
  bool has_call_ = false;
  size_t calls_ = 0;  // that were sent
  bool ended_ = false;
};

}  // namespace macrame::agentd
