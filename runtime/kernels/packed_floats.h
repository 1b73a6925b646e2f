#pragma once

// What the bytes of packed floats stand for (Packing::kMxfp8 and kNvfp4). Pure.

#include <array>
#include <cstdint>
#include <limits>

namespace macrame::runtime::kernels {

// 2^exponent, for any exponent whose power is a float32, subnormal ones too.
constexpr float PowerOfTwo(int exponent) {
  float power = 1.0F;
  for (; exponent > 0; --exponent) power *= 2.0F;
  for (; exponent < 0; ++exponent) power *= 0.5F;
  return power;
}

// OCP's e4m3: a sign, 4 bits of exponent, 3 of mantissa, no infinities, the largest number 448.
constexpr float FromE4m3(uint8_t byte) {
  const int exponent = byte >> 3 & 15, mantissa = byte & 7;
  float size = exponent == 0 ? static_cast<float>(mantissa) * PowerOfTwo(-9)
                             : static_cast<float>(8 + mantissa) * PowerOfTwo(exponent - 10);
  if ((byte & 0x7f) == 0x7f) size = std::numeric_limits<float>::quiet_NaN();
  return (byte & 0x80) != 0 ? -size : size;
}

// OCP's e8m0: 2^(byte - 127); 255 stands for no number.
constexpr float FromE8m0(uint8_t byte) {
  if (byte == 255) return std::numeric_limits<float>::quiet_NaN();
  return PowerOfTwo(byte - 127);
}

// Each of the 256 scales.
using ScaleTable = std::array<float, 256>;
extern const ScaleTable kE4m3Scales;
extern const ScaleTable kE8m0Scales;

}  // namespace macrame::runtime::kernels
