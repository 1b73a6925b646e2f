#pragma once

// What an answer cost, by the counts in its chunks. Pure.

#include <cstddef>
#include <cstdint>
#include <vector>

#include "macrame/v1/rank.pb.h"

namespace macrame::agentd {

struct TokenCounts {
  uint32_t prompt_tokens = 0;
  uint32_t completion_tokens = 0;
  uint32_t cached_tokens = 0;     // of the prompt's
  uint32_t cold_tokens = 0;       // of the cached ones, read from disk
  uint32_t reasoning_tokens = 0;  // of the completion's
  double prefill_ms = 0;          // as the entry rank measured it
  double decode_ms = 0;
  v1::PrefixMiss miss{};  // why no more was cached; without a kind: nothing to say
};

// Takes over the counts that a chunk carries; they only grow.
void UpdateCounts(const v1::GenerateChunk& chunk, TokenCounts* counts);
// What the choices cost together: every answer, and every prompt once. A prompt that is computed
// for several choices is that of the first.
TokenCounts TotalCounts(const std::vector<TokenCounts>& of_choices, uint32_t choices_per_prompt);

// What of a chunk grows with the answer, for bounds.
size_t BytesOf(const v1::GenerateChunk& chunk);

}  // namespace macrame::agentd
