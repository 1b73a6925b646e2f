#pragma once

// What block_forms.cc and lattice_blocks.cc share: reading a block's bytes, and a group of 32
// numbers before it is packed.

#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>

#include "runtime/gguf/block_forms.h"
#include "runtime/gguf/float16.h"

namespace macrame::runtime::gguf {

// GGUF's numbers of its block types.
enum : uint32_t {
  kF32 = 0,
  kF16 = 1,
  kQ4_0 = 2,
  kQ4_1 = 3,
  kQ5_0 = 6,
  kQ5_1 = 7,
  kQ8_0 = 8,
  kQ2_K = 10,
  kQ3_K = 11,
  kQ4_K = 12,
  kQ5_K = 13,
  kQ6_K = 14,
  kIq2Xxs = 16,
  kIq2Xs = 17,
  kIq3Xxs = 18,
  kIq1S = 19,
  kIq4Nl = 20,
  kIq3S = 21,
  kIq2S = 22,
  kIq4Xs = 23,
  kIq1M = 29,
  kBF16 = 30,
  kTq1_0 = 34,
  kTq2_0 = 35,
  kMxfp4 = 39,
  kNvfp4 = 40,
  kQ1_0 = 41,
  kQ2_0 = 42
};

// A group of 32 as it will be stored, before its scale and bias are rounded.
struct Group {
  std::array<uint8_t, kGroupSize> numbers;
  float scale;
  float bias;
};

inline uint8_t ByteAt(const std::byte* data, size_t index) {
  return static_cast<uint8_t>(data[index]);
}

inline uint16_t WordAt(const std::byte* data) {
  uint16_t word;
  std::memcpy(&word, data, sizeof(word));
  return word;
}

inline float HalfAt(const std::byte* data) { return FloatFromHalf(WordAt(data)); }

}  // namespace macrame::runtime::gguf
