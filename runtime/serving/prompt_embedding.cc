#include "runtime/serving/prompt_embedding.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "proto/check.h"

namespace macrame::runtime::engine {

EmbeddingTraits EmbeddingTraitsOf(const ModelConfig& config) {
  return {config.pooling, config.has_head, static_cast<uint32_t>(config.hidden_size), std::nullopt};
}

void PoolingSum::Add(uint32_t begin, std::span<const float> rows, size_t width) {
  MACRAME_CHECK(width > 0 && rows.size() % width == 0) << rows.size() << " numbers in rows";
  const size_t count = rows.size() / width;
  if (plan_.pooling == Pooling::kLast) {
    const auto last = rows.last(width);
    sum_.assign(last.begin(), last.end());
    return;
  }
  // A prompt that was preempted comes again from its beginning.
  if (begin == 0) {
    sum_.assign(width, 0.0);
    end_ = 0;
  }
  MACRAME_CHECK(begin == end_) << "rows from position " << begin << ", " << end_ << " are there";
  const size_t taken = plan_.pooling == Pooling::kFirst ? (begin == 0 ? 1 : 0) : count;
  for (size_t row = 0; row < taken; ++row) {
    for (size_t i = 0; i < width; ++i) sum_[i] += double{rows[row * width + i]};
  }
  end_ += static_cast<uint32_t>(count);
}

// A mean points where its sum does.
absl::StatusOr<std::vector<float>> PoolingSum::Finish() const {
  const size_t asked = plan_.dimensions == 0 ? sum_.size() : plan_.dimensions;
  const size_t size = std::min(asked, sum_.size());
  double squares = 0.0;
  for (size_t i = 0; i < size; ++i) squares += sum_[i] * sum_[i];
  if (!std::isfinite(squares) || squares == 0.0) {
    return absl::InternalError("the model gave hidden states that have no direction");
  }
  const double length = std::sqrt(squares);
  std::vector<float> embedding(size);
  for (size_t i = 0; i < size; ++i) embedding[i] = static_cast<float>(sum_[i] / length);
  return embedding;
}

void PromptEmbedding::Send(v1::GenerateChunk chunk, v1::FinishReason reason) {
  chunk.set_prompt_tokens(prompt_tokens_);
  chunk.set_cached_tokens(cached_tokens_);
  chunk.set_finish_reason(reason);
  const auto took = std::chrono::steady_clock::now() - started_;
  chunk.set_prefill_ms(std::chrono::duration<double, std::milli>(took).count());
  on_chunk_(chunk);
}

absl::Status PromptEmbedding::Finish() {
  const auto embedding = sum_.Finish();
  if (!embedding.ok()) return embedding.status();
  v1::GenerateChunk chunk;
  chunk.mutable_embedding()->Add(embedding->begin(), embedding->end());
  Send(std::move(chunk), v1::FINISH_REASON_STOP);
  return absl::OkStatus();
}

void PromptEmbedding::Cancel() { Send({}, v1::FINISH_REASON_CANCELLED); }

}  // namespace macrame::runtime::engine
