#pragma once

// One embedding in the making, on rank 0's engine thread: takes the hidden states of a prompt's
// positions as steps give them, and sends one chunk with the embedding and the counts.
//
// Positions are added up in their order, in double precision, so that the bits don't depend on how
// the prompt was cut into steps.

#include <chrono>
#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "macrame/v1/rank.pb.h"
#include "runtime/model/config/model_config.h"
#include "runtime/model/step/forward_step.h"

namespace macrame::runtime::engine {

// What a model's embeddings are.
struct EmbeddingTraits {
  Pooling pooling = Pooling::kNone;  // kNone: it makes none
  bool has_head = true;              // it makes text
  uint32_t width = 0;                // numbers of an embedding
  // Put behind a text that does not end with it: tokenizer_config.json's "add_eos_token".
  std::optional<int32_t> end_token{};
};
EmbeddingTraits EmbeddingTraitsOf(const ModelConfig& config);

// What a request makes of it.
struct EmbeddingPlan {
  Pooling pooling = Pooling::kNone;
  uint32_t dimensions = 0;  // the first so many, normalised again; 0: all
  // Which hidden states it needs: of the last position, or of all.
  LogitRows rows() const {
    return pooling == Pooling::kLast ? LogitRows::kHiddenLast : LogitRows::kHiddenAll;
  }
};

// Pure.
class PoolingSum {
 public:
  explicit PoolingSum(const EmbeddingPlan& plan) : plan_(plan) {}
  // Rows of `width` numbers, the first at position `begin`: where the rows before ended, or 0 to
  // begin anew.
  void Add(uint32_t begin, std::span<const float> rows, size_t width);
  // Of length 1. INTERNAL when the model gave what is no number.
  absl::StatusOr<std::vector<float>> Finish() const;

 private:
  const EmbeddingPlan plan_;
  std::vector<double> sum_;
  uint32_t end_ = 0;  // position behind the last row
};

class PromptEmbedding {
 public:
  using OnChunk = std::function<void(const v1::GenerateChunk&)>;

  PromptEmbedding(const EmbeddingPlan& plan, uint32_t prompt_tokens, OnChunk on_chunk,
                  std::chrono::steady_clock::time_point started)
      : sum_(plan),
        prompt_tokens_(prompt_tokens),
        on_chunk_(std::move(on_chunk)),
        started_(started) {}

  void SetCachedTokens(uint32_t tokens) { cached_tokens_ = tokens; }
  void Add(uint32_t begin, std::span<const float> rows, size_t width) {
    sum_.Add(begin, rows, width);
  }
  // All positions are there: sends the embedding.
  absl::Status Finish();
  // Ends it from outside: FINISH_REASON_CANCELLED.
  void Cancel();

 private:
  void Send(v1::GenerateChunk chunk, v1::FinishReason reason);

  PoolingSum sum_;
  const uint32_t prompt_tokens_;
  const OnChunk on_chunk_;
  const std::chrono::steady_clock::time_point started_;
  uint32_t cached_tokens_ = 0;
};

}  // namespace macrame::runtime::engine
