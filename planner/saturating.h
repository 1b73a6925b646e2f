#pragma once

// Sums and products of byte counts that stop at the largest number instead of wrapping round: the
// figures of a model come from files that other people wrote.

#include <cstdint>
#include <limits>

namespace macrame::planner {

inline constexpr uint64_t kBytesMax = std::numeric_limits<uint64_t>::max();

constexpr uint64_t SaturatingAdd(uint64_t a, uint64_t b) {
  return a > kBytesMax - b ? kBytesMax : a + b;
}

constexpr uint64_t SaturatingMultiply(uint64_t a, uint64_t b) {
  if (a == 0 || b == 0) return 0;
  return a > kBytesMax / b ? kBytesMax : a * b;
}

// a - b, or zero when that would be negative.
constexpr uint64_t SaturatingSubtract(uint64_t a, uint64_t b) { return a > b ? a - b : 0; }

constexpr uint64_t DivideRoundingUp(uint64_t a, uint64_t b) { return a / b + (a % b != 0 ? 1 : 0); }

}  // namespace macrame::planner
