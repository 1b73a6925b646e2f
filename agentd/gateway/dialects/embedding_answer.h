#pragma once

// Embeddings in OpenAI's format, or Ollama's, by the head's form. Pure.

#include <cstdint>
#include <string>
#include <vector>

#include "agentd/gateway/base/api_error.h"
#include "agentd/gateway/dialects/answer_format.h"
#include "macrame/v1/rank.pb.h"

namespace macrame::agentd {

// One input's, from its chunk.
struct CollectedEmbedding {
  std::vector<float> numbers;
  v1::FinishReason finish = v1::FINISH_REASON_UNSPECIFIED;
  TokenCounts counts;

  void Add(const v1::GenerateChunk& chunk);
  size_t bytes() const { return numbers.size() * sizeof(float); }
};

// Numbers as JSON, which read as float32 again give the same bits; or little-endian float32 as
// base64.
std::string EmbeddingListBody(const AnswerHead& head,
                              const std::vector<CollectedEmbedding>& embeddings);

// The same in pieces, each embedding by itself; what stands before the first and behind the last.
std::string EmbeddingListOpening(const AnswerHead& head);
std::string EmbeddingItem(const AnswerHead& head, size_t index, const std::vector<float>& numbers);
std::string EmbeddingListEnding(const AnswerHead& head, uint64_t prompt_tokens);

// Says which input a failure is about, where the client is at fault.
void NameInput(const AnswerHead& head, uint32_t input, ApiError* error);

}  // namespace macrame::agentd
