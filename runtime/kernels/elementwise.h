#pragma once

// What lies between a layer's matrix products, row by row, in float32. Pure; any thread. The result
// for a row does not depend on what else is computed.

#include <cstddef>

namespace macrame::runtime::kernels {

// out = x / sqrt(mean(x^2) + epsilon) * weight. `out` may be `x`.
void RmsNorm(const float* x, const float* weight, float epsilon, size_t size, float* out);

// Rotary embedding in place of `heads` rows of `head_dim`: dimension i turns together with
// i + head_dim / 2 by the angle whose cosine and sine are cosines[i] and sines[i].
void Rotate(float* x, size_t heads, size_t head_dim, const float* cosines, const float* sines);

// out = gate * sigmoid(gate) * up. `out` may be `gate` or `up`.
void SiluMultiply(const float* gate, const float* up, size_t size, float* out);

// to += x.
void AddTo(const float* x, size_t size, float* to);

// out = e^x to about 1e-7 of the result: what attention and SiluMultiply use, for their tests. x
// above 88 counts as 88.
void ExpOf(const float* x, size_t size, float* out);

}  // namespace macrame::runtime::kernels
