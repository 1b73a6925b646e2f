#pragma once

// What layers with a state compute of a token after the other, in float32: a short convolution over
// time, and a matrix for each head that fades, learns and answers. Pure; any thread.
//
// Tokens go one after the other whatever the call, so the bits of a token depend on those before it
// alone: not on where a prompt was cut into calls, nor on how heads are shared out over threads.

#include <cstddef>

namespace macrame::runtime::kernels {

// One head of one sequence over some tokens; `x + i * stride` is token i's.
struct HeadRun {
  size_t tokens = 0;
  size_t key_dim = 0;
  size_t value_dim = 0;
  const float* queries = nullptr;  // [key_dim] each
  const float* keys = nullptr;
  size_t key_stride = 0;          // of queries and keys
  const float* values = nullptr;  // [value_dim] each
  size_t value_stride = 0;
  // By what the matrix is multiplied, and how much it learns of the token: one number each.
  const float* fades = nullptr;
  const float* shares = nullptr;
  size_t gate_stride = 0;
  float* out = nullptr;  // [value_dim] each
  size_t out_stride = 0;
  float* matrix = nullptr;  // [value_dim][key_dim], before and after
};

// The gated delta rule: M *= fade; M += share * (value - M key) key^T; out = M query.
void GatedDelta(const HeadRun& run);

// A state space: M *= fade; M += share * value key^T; out = M query.
void StateSpace(const HeadRun& run);

// out[c] = silu(sum over taps j of weights[j][c] * inputs[j][c] + bias[c]), `bias` may be null. The
// last of `inputs` is the token's own.
void ConvolveSilu(const float* const* inputs, const float* weights, const float* bias, size_t taps,
                  size_t channels, float* out);

}  // namespace macrame::runtime::kernels
