#include "runtime/kernels/dense.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "runtime/kernels/highway_targets.h"
#include "runtime/kernels/matmul.h"
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "runtime/kernels/dense.cc"
#include "hwy/foreach_target.h"  // compiles this file once for each instruction set
#include "hwy/highway.h"
#include "runtime/kernels/packed_floats.inc"

HWY_BEFORE_NAMESPACE();
namespace macrame::runtime::kernels {
namespace HWY_NAMESPACE {

// Numbers [begin, begin + count) of a row.
template <class Numbers>
HWY_INLINE void WidenRow(const typename Numbers::Row& row, size_t begin, size_t count, float* out) {
  const F32 d;
  size_t c = 0;
  for (; c + kLanes <= count; c += kLanes) hn::StoreU(Numbers::Load(row, begin + c), d, out + c);
  if constexpr (Numbers::kMayEndWithin) {
    if (c < count) {
      float last[kLanes];
      hn::StoreU(Numbers::LoadLast(row, begin + c, count - c), d, last);
      std::memcpy(out + c, last, (count - c) * sizeof(float));
    }
  }
}

// Products of kRows rows with kVectors vectors, written to y[vector * y_stride + row]. Every sum
// is made alike, whatever is made beside it: one sum a lane, in the order of the columns.
template <class Numbers, size_t kRows, size_t kVectors>
HWY_INLINE void MultiplyTile(const typename Numbers::Row* rows, const float* x, size_t columns,
                             float* y, size_t y_stride) {
  using Vectors = PlainNumbers<Scalar::kFloat32>;
  const F32 d;
  VF32 sums[kRows][kVectors];
  MACRAME_UNROLL
  for (size_t r = 0; r < kRows; ++r) {
    MACRAME_UNROLL
    for (size_t m = 0; m < kVectors; ++m) sums[r][m] = hn::Zero(d);
  }
  size_t c = 0;
  for (; c + kLanes <= columns; c += kLanes) {
    VF32 weights[kRows];
    MACRAME_UNROLL
    for (size_t r = 0; r < kRows; ++r) weights[r] = Numbers::Load(rows[r], c);
    MACRAME_UNROLL
    for (size_t m = 0; m < kVectors; ++m) {
      const auto value = hn::LoadU(d, x + m * columns + c);
      MACRAME_UNROLL
      for (size_t r = 0; r < kRows; ++r) sums[r][m] = hn::MulAdd(weights[r], value, sums[r][m]);
    }
  }
  if constexpr (Numbers::kMayEndWithin) {
    if (c < columns) {
      MACRAME_UNROLL
      for (size_t m = 0; m < kVectors; ++m) {
        const Vectors::Row vector = {reinterpret_cast<const uint8_t*>(x + m * columns)};
        const auto value = Vectors::LoadLast(vector, c, columns - c);
        MACRAME_UNROLL
        for (size_t r = 0; r < kRows; ++r) {
          sums[r][m] = hn::MulAdd(Numbers::LoadLast(rows[r], c, columns - c), value, sums[r][m]);
        }
      }
    }
  }
  MACRAME_UNROLL
  for (size_t m = 0; m < kVectors; ++m) {
    MACRAME_UNROLL
    for (size_t r = 0; r < kRows; ++r) {
      y[m * y_stride + r] = hn::GetLane(hn::SumOfLanes(d, sums[r][m]));
    }
  }
}

template <class Numbers, size_t kVectors>
HWY_NOINLINE void MultiplyFew(const MatrixView& matrix, const float* x, float* y, RowRange range) {
  constexpr size_t kRows = 4;
  size_t row = range.begin;
  for (; row + kRows <= range.end; row += kRows) {
    typename Numbers::Row rows[kRows];
    for (size_t r = 0; r < kRows; ++r) rows[r] = Numbers::RowOf(matrix, row + r);
    MultiplyTile<Numbers, kRows, kVectors>(rows, x, matrix.columns, y + row, matrix.rows);
  }
  for (; row < range.end; ++row) {
    const typename Numbers::Row last = Numbers::RowOf(matrix, row);
    MultiplyTile<Numbers, 1, kVectors>(&last, x, matrix.columns, y + row, matrix.rows);
  }
}

// All vectors with the rows of `range`, a few at a time. y[0] is that of row `range.begin`.
template <class Numbers>
void MultiplyByFew(const MatrixView& matrix, const float* x, size_t count, float* y,
                   size_t y_stride, RowRange range) {
  constexpr size_t kVectors = 4;
  MatrixView strided = matrix;
  strided.rows = y_stride;
  float* from = y - range.begin;
  size_t m = 0;
  for (; m + kVectors <= count; m += kVectors) {
    MultiplyFew<Numbers, kVectors>(strided, x + m * matrix.columns, from + m * y_stride, range);
  }
  for (; m < count; ++m) {
    MultiplyFew<Numbers, 1>(strided, x + m * matrix.columns, from + m * y_stride, range);
  }
}

template <class Numbers>
HWY_NOINLINE void WidenPanel(const MatrixView& matrix, size_t row, size_t rows, float* panel) {
  for (size_t r = 0; r < rows; ++r) {
    WidenRow<Numbers>(Numbers::RowOf(matrix, row + r), 0, matrix.columns,
                      panel + r * matrix.columns);
  }
}

// Rows that are widened together. Those of packed floats take no more than kPanelBytesMax, whatever
// their length, as the panels of other packed weights do; 0: not one row fits in.
size_t PanelRows(const MatrixView& matrix) {
  constexpr size_t kRows = 8;
  if (!IsPackedFloats(matrix)) return kRows;
  return std::min(kRows, kPanelBytesMax / (std::max<size_t>(1, matrix.columns) * sizeof(float)));
}

// Rows are widened into a panel once for all vectors.
template <class Numbers>
void MultiplyDenseRows(const MatrixView& matrix, const float* x, size_t count, float* y,
                       RowRange range, AlignedBuffer& memory) {
  if (count == 1) return MultiplyFew<Numbers, 1>(matrix, x, y, range);
  const size_t at_once = PanelRows(matrix);
  if (at_once == 0) {
    return MultiplyByFew<Numbers>(matrix, x, count, y + range.begin, matrix.rows, range);
  }
  const size_t bytes = at_once * matrix.columns * sizeof(float);
  auto* panel = reinterpret_cast<float*>(memory.Reserve(bytes));
  MatrixView widened = matrix;
  widened.bits = 0;
  widened.packing = Packing::kAffine;
  widened.type = Scalar::kFloat32;
  widened.weights = panel;
  for (size_t row = range.begin; row < range.end; row += at_once) {
    const size_t rows = std::min(at_once, range.end - row);
    WidenPanel<Numbers>(matrix, row, rows, panel);
    MultiplyByFew<PlainNumbers<Scalar::kFloat32>>(widened, x, count, y + row, matrix.rows,
                                                  {0, rows});
  }
}

// Calls function(numbers), of the type that reads the matrix' rows. The matrix has no bits, or is
// one of packed floats.
template <typename Function>
void WithNumbersOf(const MatrixView& matrix, const Function& function) {
  if (matrix.packing == Packing::kMxfp8) return function(PackedNumbers<Mxfp8>());
  if (matrix.packing == Packing::kNvfp4) return function(PackedNumbers<Nvfp4>());
  switch (matrix.type) {
    case Scalar::kFloat32:
      return function(PlainNumbers<Scalar::kFloat32>());
    case Scalar::kBfloat16:
      return function(PlainNumbers<Scalar::kBfloat16>());
    case Scalar::kFloat16:
      return function(PlainNumbers<Scalar::kFloat16>());
  }
}

void MultiplyDenseImpl(const MatrixView& matrix, const float* x, size_t count, float* y,
                       RowRange range, AlignedBuffer& memory) {
  WithNumbersOf(matrix, [&](auto numbers) HWY_ATTR {
    MultiplyDenseRows<decltype(numbers)>(matrix, x, count, y, range, memory);
  });
}

// One scalar.
float Widen(const void* data, Scalar type, size_t index) {
  MatrixView scalars;
  scalars.type = type;
  float out = 0;
  WithNumbersOf(scalars, [&](auto numbers) HWY_ATTR {
    if constexpr (decltype(numbers)::kMayEndWithin) {
      WidenRow<decltype(numbers)>({static_cast<const uint8_t*>(data)}, index, 1, &out);
    }
  });
  return out;
}

const uint8_t* RowOf(const MatrixView& matrix, size_t row) {
  return static_cast<const uint8_t*>(matrix.weights) + row * WeightRowBytes(matrix);
}

// One row of a quantised matrix.
void UnpackRow(const MatrixView& matrix, size_t row, float* out) {
  const auto group = static_cast<size_t>(matrix.group_size);
  const size_t groups = matrix.columns / group;
  const uint8_t* packed = RowOf(matrix, row);
  for (size_t g = 0; g < groups; ++g) {
    const float scale = Widen(matrix.scales, matrix.type, row * groups + g);
    const float bias = Widen(matrix.biases, matrix.type, row * groups + g);
    for (size_t c = g * group; c < (g + 1) * group; ++c) {
      const size_t bit = c * static_cast<size_t>(matrix.bits);
      // A number of 3, 5 or 6 bits may lie across two bytes, never behind the row's last.
      uint32_t number = packed[bit / 8] >> bit % 8;
      if (bit % 8 + static_cast<size_t>(matrix.bits) > 8) {
        number |= uint32_t{packed[bit / 8 + 1]} << (8 - bit % 8);
      }
      number &= (1U << matrix.bits) - 1;
      out[c] = scale * static_cast<float>(number) + bias;
    }
  }
}

// One row of kMxfp4: each number exactly.
void UnpackMxfp4Row(const MatrixView& matrix, size_t row, float* out) {
  const uint8_t* packed = RowOf(matrix, row);
  const uint8_t* scales = static_cast<const uint8_t*>(matrix.scales) + row * ScaleRowBytes(matrix);
  constexpr size_t kGroup = 32;
  for (size_t g = 0; g < matrix.columns / kGroup; ++g) {
    const float scale = std::ldexp(scales[g] == 255 ? std::nanf("") : 0.5F, scales[g] - 127);
    for (size_t c = g * kGroup; c < (g + 1) * kGroup; ++c) {
      out[c] = scale * static_cast<float>(kMxfp4Doubles[packed[c / 2] >> c % 2 * 4 & 15]);
    }
  }
}

void GatherRowsImpl(const MatrixView& matrix, const int32_t* rows, size_t count, float* out) {
  for (size_t i = 0; i < count; ++i) {
    const auto row = static_cast<size_t>(rows[i]);
    if (matrix.bits == 0 || IsPackedFloats(matrix)) {
      WithNumbersOf(matrix, [&](auto numbers) HWY_ATTR {
        WidenPanel<decltype(numbers)>(matrix, row, 1, out + i * matrix.columns);
      });
    } else if (matrix.packing == Packing::kMxfp4) {
      UnpackMxfp4Row(matrix, row, out + i * matrix.columns);
    } else {
      UnpackRow(matrix, row, out + i * matrix.columns);
    }
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace macrame::runtime::kernels
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace macrame::runtime::kernels {
namespace {

HWY_EXPORT(MultiplyDenseImpl);
HWY_EXPORT(GatherRowsImpl);

}  // namespace

void MultiplyDense(ThreadPool& pool, const MatrixView& matrix, const Activations& x, float* y,
                   std::vector<AlignedBuffer>& panels) {
  pool.Run([&](int worker, int workers) {
    const RowRange range = RowsOfWorker(matrix.rows, 8, worker, workers);
    HWY_DYNAMIC_DISPATCH(MultiplyDenseImpl)
    (matrix, x.x(), x.count(), y, range, panels[static_cast<size_t>(worker)]);
  });
}

void GatherRows(const MatrixView& matrix, const int32_t* rows, size_t count, float* out) {
  HWY_DYNAMIC_DISPATCH(GatherRowsImpl)(matrix, rows, count, out);
}

}  // namespace macrame::runtime::kernels
#endif  // HWY_ONCE
