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

HWY_BEFORE_NAMESPACE();
namespace macrame::runtime::kernels {
namespace HWY_NAMESPACE {

namespace hn = hwy::HWY_NAMESPACE;
using F32 = hn::ScalableTag<float>;
using VF32 = hn::Vec<F32>;
inline constexpr size_t kLanes = HWY_LANES(float);

// kLanes stored scalars from element `index` on, widened.
template <Scalar kType>
HWY_INLINE VF32 LoadWide(const uint8_t* data, size_t index) {
  const F32 d;
  if constexpr (kType == Scalar::kFloat32) {
    const hn::Repartition<uint8_t, F32> bytes;
    return hn::BitCast(d, hn::LoadU(bytes, data + index * 4));
  } else {
    const hn::Rebind<uint16_t, F32> d16;
    const hn::Repartition<uint8_t, decltype(d16)> bytes;
    const auto raw = hn::BitCast(d16, hn::LoadU(bytes, data + index * 2));
    if constexpr (kType == Scalar::kBfloat16) {
      const hn::Repartition<uint32_t, F32> d32;
      return hn::BitCast(d, hn::ShiftLeft<16>(hn::PromoteTo(d32, raw)));
    } else {
      return hn::PromoteTo(d, hn::BitCast(hn::Rebind<hwy::float16_t, F32>(), raw));
    }
  }
}

// The last `count` scalars of a row, zeros behind them.
template <Scalar kType>
HWY_INLINE VF32 LoadLast(const uint8_t* data, size_t index, size_t count) {
  uint8_t bytes[kLanes * 4] = {};
  std::memcpy(bytes, data + index * ScalarBytes(kType), count * ScalarBytes(kType));
  return LoadWide<kType>(bytes, 0);
}

template <Scalar kType>
HWY_INLINE void WidenRow(const uint8_t* data, size_t begin, size_t count, float* out) {
  const F32 d;
  size_t c = 0;
  for (; c + kLanes <= count; c += kLanes) hn::StoreU(LoadWide<kType>(data, begin + c), d, out + c);
  if (c < count) {
    float last[kLanes];
    hn::StoreU(LoadLast<kType>(data, begin + c, count - c), d, last);
    std::memcpy(out + c, last, (count - c) * sizeof(float));
  }
}

// Products of kRows rows with kVectors vectors, written to y[vector * y_stride + row]. Every sum
// is made alike, whatever is made beside it: one sum a lane, in the order of the columns.
template <Scalar kType, size_t kRows, size_t kVectors>
HWY_INLINE void MultiplyTile(const uint8_t* const* rows, const float* x, size_t columns, float* y,
                             size_t y_stride) {
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
    for (size_t r = 0; r < kRows; ++r) weights[r] = LoadWide<kType>(rows[r], c);
    MACRAME_UNROLL
    for (size_t m = 0; m < kVectors; ++m) {
      const auto value = hn::LoadU(d, x + m * columns + c);
      MACRAME_UNROLL
      for (size_t r = 0; r < kRows; ++r) sums[r][m] = hn::MulAdd(weights[r], value, sums[r][m]);
    }
  }
  if (c < columns) {
    MACRAME_UNROLL
    for (size_t m = 0; m < kVectors; ++m) {
      const auto value = LoadLast<Scalar::kFloat32>(
          reinterpret_cast<const uint8_t*>(x + m * columns), c, columns - c);
      MACRAME_UNROLL
      for (size_t r = 0; r < kRows; ++r) {
        sums[r][m] = hn::MulAdd(LoadLast<kType>(rows[r], c, columns - c), value, sums[r][m]);
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

const uint8_t* RowOf(const MatrixView& matrix, size_t row) {
  return static_cast<const uint8_t*>(matrix.weights) + row * WeightRowBytes(matrix);
}

template <Scalar kType, size_t kVectors>
HWY_NOINLINE void MultiplyFew(const MatrixView& matrix, const float* x, float* y, RowRange range) {
  constexpr size_t kRows = 4;
  size_t row = range.begin;
  for (; row + kRows <= range.end; row += kRows) {
    const uint8_t* rows[kRows];
    for (size_t r = 0; r < kRows; ++r) rows[r] = RowOf(matrix, row + r);
    MultiplyTile<kType, kRows, kVectors>(rows, x, matrix.columns, y + row, matrix.rows);
  }
  for (; row < range.end; ++row) {
    const uint8_t* last = RowOf(matrix, row);
    MultiplyTile<kType, 1, kVectors>(&last, x, matrix.columns, y + row, matrix.rows);
  }
}

template <Scalar kType>
HWY_NOINLINE void WidenPanel(const MatrixView& matrix, size_t row, size_t rows, float* panel) {
  for (size_t r = 0; r < rows; ++r) {
    WidenRow<kType>(RowOf(matrix, row + r), 0, matrix.columns, panel + r * matrix.columns);
  }
}

// Rows are widened into `panel` once for all vectors.
template <Scalar kType>
void MultiplyDenseRows(const MatrixView& matrix, const float* x, size_t count, float* y,
                       RowRange range, AlignedBuffer& memory) {
  constexpr size_t kVectors = 4;
  if (count == 1) return MultiplyFew<kType, 1>(matrix, x, y, range);
  constexpr size_t kRows = 8;
  auto* panel = reinterpret_cast<float*>(memory.Reserve(kRows * matrix.columns * sizeof(float)));
  for (size_t row = range.begin; row < range.end; row += kRows) {
    const size_t rows = std::min(kRows, range.end - row);
    WidenPanel<kType>(matrix, row, rows, panel);
    MatrixView widened = matrix;
    widened.type = Scalar::kFloat32;
    widened.weights = panel;
    size_t m = 0;
    for (; m + kVectors <= count; m += kVectors) {
      MultiplyFew<Scalar::kFloat32, kVectors>(widened, x + m * matrix.columns,
                                              y + m * matrix.rows + row, {0, rows});
    }
    for (; m < count; ++m) {
      MultiplyFew<Scalar::kFloat32, 1>(widened, x + m * matrix.columns, y + m * matrix.rows + row,
                                       {0, rows});
    }
  }
}

void MultiplyDenseImpl(const MatrixView& matrix, const float* x, size_t count, float* y,
                       RowRange range, AlignedBuffer& memory) {
  switch (matrix.type) {
    case Scalar::kFloat32:
      return MultiplyDenseRows<Scalar::kFloat32>(matrix, x, count, y, range, memory);
    case Scalar::kBfloat16:
      return MultiplyDenseRows<Scalar::kBfloat16>(matrix, x, count, y, range, memory);
    case Scalar::kFloat16:
      return MultiplyDenseRows<Scalar::kFloat16>(matrix, x, count, y, range, memory);
  }
}

void Widen(const uint8_t* data, Scalar type, size_t begin, size_t count, float* out) {
  switch (type) {
    case Scalar::kFloat32:
      return WidenRow<Scalar::kFloat32>(data, begin, count, out);
    case Scalar::kBfloat16:
      return WidenRow<Scalar::kBfloat16>(data, begin, count, out);
    case Scalar::kFloat16:
      return WidenRow<Scalar::kFloat16>(data, begin, count, out);
  }
}

// One row of a quantised matrix.
void UnpackRow(const MatrixView& matrix, size_t row, float* out) {
  const auto group = static_cast<size_t>(matrix.group_size);
  const size_t groups = matrix.columns / group;
  const uint8_t* packed = RowOf(matrix, row);
  for (size_t g = 0; g < groups; ++g) {
    float scale, bias;
    Widen(static_cast<const uint8_t*>(matrix.scales), matrix.type, row * groups + g, 1, &scale);
    Widen(static_cast<const uint8_t*>(matrix.biases), matrix.type, row * groups + g, 1, &bias);
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
    if (matrix.bits == 0) {
      Widen(RowOf(matrix, row), matrix.type, 0, matrix.columns, out + i * matrix.columns);
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
