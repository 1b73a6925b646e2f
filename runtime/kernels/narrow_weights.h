#pragma once

// Weights of 2, 3 and 5 bits, for which there are no loops of their own: rows of them become rows
// of 4 or 8 bits, a few at a time, with the same numbers. Pure.

#include <cstddef>
#include <cstdint>

#include "runtime/kernels/matrix_view.h"

namespace macrame::runtime::kernels {

// The bits that a matrix' weights are multiplied at: its own, or the next for which there are
// loops.
constexpr int LoopBits(int bits) {
  if (bits == 2 || bits == 3) return 4;
  return bits == 5 ? 8 : bits;
}

// Rows [begin, end) of the weights at LoopBits, without gaps: (end - begin) * columns * LoopBits /
// 8 bytes. The matrix has 2, 3 or 5 bits.
void WidenWeights(const MatrixView& matrix, size_t begin, size_t end, uint8_t* out);

}  // namespace macrame::runtime::kernels
