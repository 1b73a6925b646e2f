#pragma once

// What a sampler asks of a row of logits, at the speed at which the row can be read. Pure; any
// thread. NaN is passed over.

#include <cstddef>
#include <cstdint>

namespace macrame::runtime::kernels {

// Logits that have their highest noted together, so that a later pass skips what can't matter.
inline constexpr size_t kLogitBlock = 256;

struct LogitScan {
  float highest = 0.0F;  // -inf when there is none
  bool has_nan = false;
};

// `of_blocks` gets the highest of each kLogitBlock logits; the last block may be shorter.
LogitScan ScanLogits(const float* logits, size_t size, float* of_blocks);

// The sum of e^((logit - highest) * scale), each term to about 1e-15 of it plus what rounding of
// its exponent does; `highest` is no lower than any logit. Terms below e^-700 may count as 0.
double SumOfExps(const float* logits, size_t size, float highest, double scale);

}  // namespace macrame::runtime::kernels
