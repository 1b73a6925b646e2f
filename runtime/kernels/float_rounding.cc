#include "runtime/kernels/float_rounding.h"

#include <algorithm>
#include <cmath>

namespace macrame::runtime::kernels {
namespace {

constexpr float kE4m3Max = 448.0F, kFp4Max = 6.0F;

// The least power of two that is not below x, which is above zero.
float PowerFrom(float x) {
  int exponent = 0;
  const float mantissa = std::frexp(x, &exponent);
  return std::ldexp(1.0F, mantissa > 0.5F ? exponent : exponent - 1);
}

float Largest(const float* x, size_t size) {
  float largest = 0.0F;
  for (size_t i = 0; i < size; ++i) largest = std::max(largest, std::fabs(x[i]));
  return largest;
}

// Of a number in [-6, 6].
float RoundToE2m1(float x) {
  const float size = std::fabs(x);
  const float rounded = size > 5.0F     ? 6.0F
                        : size >= 3.5F  ? 4.0F
                        : size > 2.5F   ? 3.0F
                        : size >= 1.75F ? 2.0F
                        : size > 1.25F  ? 1.5F
                        : size >= 0.75F ? 1.0F
                        : size > 0.25F  ? 0.5F
                                        : 0.0F;
  return x < 0.0F ? -rounded : rounded;
}

}  // namespace

float RoundToE4m3(float x) {
  const float size = std::min(std::fabs(x), kE4m3Max);
  int exponent = 0;
  std::frexp(size, &exponent);  // size in [0.5, 1) * 2^exponent
  // The last bit of the mantissa; below 2^-6 numbers are 2^-9 apart.
  const float step = std::ldexp(1.0F, std::max(exponent - 4, -9));
  const float rounded = std::nearbyint(size / step) * step;
  return x < 0.0F ? -rounded : rounded;
}

void RoundToFp8(float* x, size_t size) {
  constexpr float kLeast = 1e-4F;
  if (size % kFp8Block != 0) return;
  for (size_t begin = 0; begin < size; begin += kFp8Block) {
    float* block = x + begin;
    const float scale = PowerFrom(std::max(Largest(block, kFp8Block), kLeast) / kE4m3Max);
    for (size_t i = 0; i < kFp8Block; ++i) block[i] = RoundToE4m3(block[i] / scale) * scale;
  }
}

void RoundToFp4(float* x, size_t size, size_t block_size, Fp4Scale kind) {
  if (size % block_size != 0) return;
  const bool is_power = kind == Fp4Scale::kPowerOfTwo;
  const float least = kFp4Max * std::ldexp(1.0F, is_power ? -126 : -9);
  for (size_t begin = 0; begin < size; begin += block_size) {
    float* block = x + begin;
    const float sixth = std::max(Largest(block, block_size), least) / kFp4Max;
    const float scale = is_power ? PowerFrom(sixth) : RoundToE4m3(sixth);
    for (size_t i = 0; i < block_size; ++i) {
      block[i] = RoundToE2m1(std::clamp(block[i] / scale, -kFp4Max, kFp4Max)) * scale;
    }
  }
}

}  // namespace macrame::runtime::kernels
