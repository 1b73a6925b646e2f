#pragma once

// A weight matrix as the kernels see it: memory that someone else owns, usually a mapped file.

#include <cstddef>
#include <cstdint>

namespace macrame::runtime::kernels {

enum class Scalar : uint8_t { kFloat32, kBfloat16, kFloat16 };

// `rows` x `columns` elements, row after row without gaps, no alignment needed. With bits == 0
// `weights` are `type` scalars. Else each row is a little-endian stream of `bits`-wide unsigned
// numbers (MLX's affine packing) and element (r, c) is
//   scales[r][c / group_size] * q + biases[r][c / group_size]
// with scales and biases of `type`. `columns` is then a multiple of group_size.
struct MatrixView {
  size_t rows = 0;
  size_t columns = 0;
  int bits = 0;  // 0, 2, 3, 4, 5, 6 or 8
  int group_size = 0;
  Scalar type = Scalar::kFloat32;
  const void* weights = nullptr;
  const void* scales = nullptr;
  const void* biases = nullptr;
};

inline size_t ScalarBytes(Scalar type) { return type == Scalar::kFloat32 ? 4 : 2; }

// Bytes of one row of `weights`.
inline size_t WeightRowBytes(const MatrixView& matrix) {
  return matrix.bits == 0 ? matrix.columns * ScalarBytes(matrix.type)
                          : matrix.columns * static_cast<size_t>(matrix.bits) / 8;
}

}  // namespace macrame::runtime::kernels
