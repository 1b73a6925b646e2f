#pragma once

// How the token of one row of logits is chosen where the logits are: on the device. Pure values.
//
// They are the settings of SamplingTraits (serving/sampling/sampler.h) that a device can follow,
// and the token is the one that SampleToken gives. What needs more (penalties, biases, grammars,
// log probabilities, typical-p) is chosen on the host.

#include <cstdint>

namespace macrame::runtime::engine {

struct RowChoice {
  double temperature = 0.0;  // 0: greedy, the other fields don't matter
  uint32_t top_k = 0;        // 0: all
  double top_p = 1.0;        // the smallest set of likeliest tokens with at least this probability
  double min_p = 0.0;        // at least this share of the likeliest token's probability
  uint64_t seed = 0;
  uint64_t position = 0;  // index of the token within the whole sequence, prompt included
  bool operator==(const RowChoice&) const = default;
};

// The token of a row whose highest logit is not finite, or that has a NaN: SampleToken decides what
// becomes of such a row.
inline constexpr int32_t kNoToken = -1;

}  // namespace macrame::runtime::engine
