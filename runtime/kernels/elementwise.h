#pragma once

// What lies between a layer's matrix products, row by row, in float32. Pure; any thread. The result
// for a row does not depend on what else is computed.

#include <cstddef>

namespace macrame::runtime::kernels {

// out = x / sqrt(mean(x^2) + epsilon) * weight. `out` may be `x`.
void RmsNorm(const float* x, const float* weight, float epsilon, size_t size, float* out);

// Pair i of the first `dims` dimensions turns by the angle whose cosine and sine are cosines[i] and
// sines[i] (times what all turned ones are multiplied by). A pair is dimensions i and i + dims / 2,
// or, interleaved, 2i and 2i + 1.
struct Rotation {
  size_t dims = 0;
  bool interleaved = false;
  const float* cosines = nullptr;
  const float* sines = nullptr;
};

// Rotary embedding in place of `heads` rows of `head_dim`, at least rotation.dims.
void Rotate(float* x, size_t heads, size_t head_dim, const Rotation& rotation);

// out = gate * sigmoid(gate) * up. `out` may be `gate` or `up`.
void SiluMultiply(const float* gate, const float* up, size_t size, float* out);

// out = gelu(gate) * up with GELU in its tanh form. `out` may be `gate` or `up`.
void GeluMultiply(const float* gate, const float* up, size_t size, float* out);

// out = g * sigmoid(alpha * g) * (u + 1), where g is `gate` but at most `limit`, and u `up` but
// within [-limit, limit]. `out` may be `gate` or `up`.
void ClampedSwiglu(const float* gate, const float* up, float alpha, float limit, size_t size,
                   float* out);

// Each number becomes the square of what of it is above zero.
void SquaredRelu(float* x, size_t size);

// x *= sigmoid(gate).
void SigmoidMultiply(const float* gate, size_t size, float* x);

// to += x.
void AddTo(const float* x, size_t size, float* to);

}  // namespace macrame::runtime::kernels
