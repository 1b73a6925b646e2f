#pragma once

// What the tokens of a row of logits weigh in a draw, in whole numbers. Pure; any thread.
//
// Sums of whole numbers are the same in any order, on any device. So the sampler on the host and
// the graph on a GPU (model/mlx/row_chooser.h) draw the same token, bit for bit. Floats are used
// for one subtraction and one product alone, which IEEE 754 rounds alike everywhere.
//
// A token's distance is how often its probability has to be halved from the likeliest token's, in
// steps of 2^-16: (highest - logit) * scale, cut to a whole number. Its weight is
// 2^(42 - distance / 65536), cut too. So a weight is right to about a hundred-thousandth of itself,
// and what is kFarthest away (e^-29.8 times as likely as the likeliest) weighs nothing.

#include <cstddef>
#include <cstdint>

namespace macrame::runtime::kernels {

inline constexpr int kDistanceBits = 16;  // of the fraction
inline constexpr int kFullWeightBits = 42;
inline constexpr uint32_t kFarthest = uint32_t{kFullWeightBits + 1} << kDistanceBits;
// So that the weights of a row sum to 2^62 at most.
inline constexpr size_t kVocabularyMax = size_t{1} << 20;

inline constexpr uint64_t kWhole = uint64_t{1} << 32;  // what shares are parts of

// What of a request and a position a draw needs.
struct DrawNumbers {
  float scale = 0.0F;       // distance per unit of logit
  uint32_t farthest = 0;    // min-p: what is farther away is left out
  uint64_t top_p = kWhole;  // of kWhole
  uint32_t draw = 0;        // of kWhole: where in the weights that are left the token stands
};

// `temperature` of 0: the likeliest token, of several the first, is all that is left.
DrawNumbers NumbersOf(double temperature, double top_p, double min_p, uint64_t seed,
                      uint64_t position);

// A number that (seed, position) fix, evenly among all of 32 bits.
uint32_t DrawAt(uint64_t seed, uint64_t position);

// floor(total * share / kWhole). `total` up to 2^62, `share` up to kWhole.
inline uint64_t ShareOf(uint64_t total, uint64_t share) {
  constexpr uint64_t kLow = 0xffffffff;
  return (total >> 32) * share + (((total & kLow) * share) >> 32);
}

// `logit` is no number above `highest`, and not NaN.
uint32_t DistanceOf(float highest, float logit, float scale);
uint64_t WeightAt(uint32_t distance);

// Of each logit of a row.
void WeighLogits(const float* logits, size_t size, float highest, float scale, uint32_t* distances,
                 uint64_t* weights);

// The weights of those that are at most `farthest` away, added up.
uint64_t SumOfWeights(const float* logits, size_t size, float highest, float scale,
                      uint32_t farthest);

}  // namespace macrame::runtime::kernels
