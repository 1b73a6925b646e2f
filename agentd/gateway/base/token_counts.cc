#include "agentd/gateway/base/token_counts.h"

#include <algorithm>

namespace macrame::agentd {

void UpdateCounts(const v1::GenerateChunk& chunk, TokenCounts* counts) {
  counts->prompt_tokens = std::max(counts->prompt_tokens, chunk.prompt_tokens());
  counts->cached_tokens = std::max(counts->cached_tokens, chunk.cached_tokens());
  counts->completion_tokens = std::max(counts->completion_tokens, chunk.completion_tokens());
  counts->cold_tokens = std::max(counts->cold_tokens, chunk.cold_tokens());
  counts->reasoning_tokens = std::max(counts->reasoning_tokens, chunk.reasoning_tokens());
  counts->prefill_ms = std::max(counts->prefill_ms, chunk.prefill_ms());
  counts->decode_ms = std::max(counts->decode_ms, chunk.decode_ms());
  if (chunk.has_prefix_miss()) counts->miss = chunk.prefix_miss();
}

TokenCounts TotalCounts(const std::vector<TokenCounts>& of_choices, uint32_t choices_per_prompt) {
  TokenCounts total = of_choices.at(0);
  for (size_t i = 1; i < of_choices.size(); ++i) {
    const TokenCounts& counts = of_choices[i];
    total.completion_tokens += counts.completion_tokens;
    total.reasoning_tokens += counts.reasoning_tokens;
    if (i % choices_per_prompt != 0) continue;
    total.prompt_tokens += counts.prompt_tokens;
    total.cached_tokens += counts.cached_tokens;
    total.cold_tokens += counts.cold_tokens;
  }
  return total;
}

size_t BytesOf(const v1::GenerateChunk& chunk) {
  size_t bytes = chunk.text().size() + chunk.reasoning().size() +
                 static_cast<size_t>(chunk.embedding_size()) * sizeof(float);
  for (const v1::ToolCallDelta& call : chunk.tool_calls()) {
    bytes += call.id().size() + call.name().size() + call.arguments().size();
  }
  for (const v1::TokenLogprob& token : chunk.logprobs()) bytes += token.ByteSizeLong();
  return bytes;
}

}  // namespace macrame::agentd
