#pragma once

// From logits to the next token. Pure: chance comes from (seed, position) alone, so a sequence can
// be taken up again anywhere, on another machine, and goes on as it would have.
//
// Order: temperature, then top-k, then top-p, then min-p, then typical-p, each on what the one
// before left, then a draw among the rest in proportion, in the order of their ids. Probabilities
// are whole numbers (kernels/token_weights.h), so that a GPU's graph chooses the same tokens
// (model/mlx/row_chooser.h). Logits that give the same number are equal, and equal ones are ordered
// by token id. What is done to the logits before (penalties, biases): logits_processor.h.

#include <cstdint>
#include <span>

#include "absl/status/statusor.h"

namespace macrame::runtime::engine {

struct SamplingTraits {
  double temperature = 0.0;  // 0: greedy, the other fields don't matter
  uint32_t top_k = 0;        // 0: all
  double top_p = 1.0;        // the smallest set of likeliest tokens with at least this probability
  double min_p = 0.0;        // at least this share of the likeliest token's probability
  // Locally typical sampling (Meister et al. 2022): the smallest set of at least this probability
  // of the tokens whose surprise is nearest to the expected one.
  double typical_p = 1.0;
  uint64_t seed = 0;
};

// temperature in [0, 100], top_p and typical_p in (0, 1], min_p in [0, 1]; BAD_REQUEST otherwise.
absl::Status CheckSampling(const SamplingTraits& traits);

// `position`: index of the token within the whole sequence, prompt included. Logits that are NaN
// are never chosen; INTERNAL when none is finite.
absl::StatusOr<int32_t> SampleToken(std::span<const float> logits, const SamplingTraits& traits,
                                    uint64_t position);

}  // namespace macrame::runtime::engine
