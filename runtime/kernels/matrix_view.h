#pragma once

// A weight matrix as the kernels see it: memory that someone else owns, usually a mapped file.

#include <cstddef>
#include <cstdint>

namespace macrame::runtime::kernels {

enum class Scalar : uint8_t { kFloat32, kBfloat16, kFloat16 };

// How a group's numbers are meant.
enum class Packing : uint8_t { kAffine, kMxfp4, kMxfp8, kNvfp4 };

// `rows` x `columns` elements, row after row without gaps, no alignment needed. With bits == 0
// `weights` are `type` scalars. Else each row is a little-endian stream of `bits`-wide unsigned
// numbers (MLX's affine packing) and element (r, c) is
//   scales[r][c / group_size] * q + biases[r][c / group_size]
// with scales and biases of `type`. `columns` is then a multiple of group_size.
//
// kMxfp4 (OCP's microscaling format): 4 bits, groups of 32, no biases. A number's highest bit is
// its sign, the others stand for 0, 0.5, 1, 1.5, 2, 3, 4 and 6 (e2m1); a scale is a byte e that
// stands for 2^(e - 127), of `type` nothing. Scales of 255 give no numbers.
//
// kMxfp8: 8 bits, groups of 32, e4m3 numbers (packed_floats.h), scales as with kMxfp4.
// kNvfp4: 4 bits, groups of 16, numbers as with kMxfp4, and a scale is an e4m3 number.
struct MatrixView {
  size_t rows = 0;
  size_t columns = 0;
  int bits = 0;  // 0, 2, 3, 4, 5, 6 or 8
  int group_size = 0;
  Scalar type = Scalar::kFloat32;
  const void* weights = nullptr;
  const void* scales = nullptr;
  const void* biases = nullptr;
  Packing packing = Packing::kAffine;
};

// Whether products are computed over float32 numbers that are made of the stored ones on the way,
// and not over integers.
inline bool IsPackedFloats(const MatrixView& matrix) {
  return matrix.packing == Packing::kMxfp8 || matrix.packing == Packing::kNvfp4;
}

inline size_t ScalarBytes(Scalar type) { return type == Scalar::kFloat32 ? 4 : 2; }

// Bytes of one row of `weights`.
inline size_t WeightRowBytes(const MatrixView& matrix) {
  return matrix.bits == 0 ? matrix.columns * ScalarBytes(matrix.type)
                          : matrix.columns * static_cast<size_t>(matrix.bits) / 8;
}

// Bytes of one row of `scales`, and of `biases`.
inline size_t ScaleRowBytes(const MatrixView& matrix) {
  const size_t groups = matrix.columns / static_cast<size_t>(matrix.group_size);
  return groups * (matrix.packing == Packing::kAffine ? ScalarBytes(matrix.type) : 1);
}

// Twice what each number of kMxfp4 and kNvfp4 stands for: whole numbers.
inline constexpr int8_t kMxfp4Doubles[16] = {0, 1,  2,  3,  4,  6,  8,  12,
                                             0, -1, -2, -3, -4, -6, -8, -12};

}  // namespace macrame::runtime::kernels
