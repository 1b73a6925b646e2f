#include "runtime/kernels/matmul.h"

#include <algorithm>
#include <cstring>

// The scalar target lacks what is used below; the others add compile time and no speed here.
#define HWY_DISABLED_TARGETS (HWY_SCALAR | HWY_SSE4 | HWY_AVX3_DL)
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "runtime/kernels/matmul.cc"
#include "hwy/aligned_allocator.h"
#include "hwy/foreach_target.h"  // compiles this file once for each instruction set
#include "hwy/highway.h"

HWY_BEFORE_NAMESPACE();
namespace macrame::runtime::kernels {
namespace HWY_NAMESPACE {

namespace hn = hwy::HWY_NAMESPACE;
using F32 = hn::ScalableTag<float>;
using VF32 = hn::Vec<F32>;

// IEEE half precision: a float's bits with the exponent moved; subnormals are multiples of 2^-24.
float WidenHalf(uint16_t raw) {
  const uint32_t sign = uint32_t{raw} >> 15 << 31;
  const uint32_t exponent = raw >> 10 & 31;
  const uint32_t fraction = raw & 1023;
  if (exponent == 0) {
    const float value = static_cast<float>(fraction) * 0x1p-24F;
    return sign != 0 ? -value : value;
  }
  const uint32_t wide = sign | (exponent == 31 ? 255U : exponent + 112) << 23 | fraction << 13;
  float value;
  std::memcpy(&value, &wide, 4);
  return value;
}

float LoadScalar(const void* data, Scalar type, size_t index) {
  if (type == Scalar::kFloat32) {
    float value;
    std::memcpy(&value, static_cast<const uint8_t*>(data) + index * 4, 4);
    return value;
  }
  uint16_t raw;
  std::memcpy(&raw, static_cast<const uint8_t*>(data) + index * 2, 2);
  if (type == Scalar::kBfloat16) {
    const uint32_t wide = uint32_t{raw} << 16;
    float value;
    std::memcpy(&value, &wide, 4);
    return value;
  }
  return WidenHalf(raw);
}

// Lanes(F32()) stored scalars from element `index` on, widened.
VF32 LoadWide(const uint8_t* data, Scalar type, size_t index) {
  const F32 d;
  if (type == Scalar::kFloat32) {
    const hn::Repartition<uint8_t, F32> bytes;
    return hn::BitCast(d, hn::LoadU(bytes, data + index * 4));
  }
  const hn::Rebind<uint16_t, F32> d16;
  const auto raw = hn::LoadU(d16, reinterpret_cast<const uint16_t*>(data + index * 2));
  if (type == Scalar::kBfloat16) {
    const hn::Repartition<uint32_t, F32> d32;
    return hn::BitCast(d, hn::ShiftLeft<16>(hn::PromoteTo(d32, raw)));
  }
  return hn::PromoteTo(d, hn::BitCast(hn::Rebind<hwy::float16_t, F32>(), raw));
}

VF32 WidenBytes(const uint8_t* bytes) {
  const F32 d;
  const hn::Rebind<uint8_t, F32> d8;
  const hn::Rebind<int32_t, F32> d32;
  return hn::ConvertTo(d, hn::PromoteTo(d32, hn::LoadU(d8, bytes)));
}

// `count` numbers of a packed row from element `begin` on, one a byte. Both are multiples of 32.
void UnpackBytes(const uint8_t* row, int bits, size_t begin, size_t count, uint8_t* out) {
  if (bits == 8) {
    std::memcpy(out, row + begin, count);
    return;
  }
  if (bits == 4) {
    const hn::FixedTag<uint8_t, 16> d;
    const uint8_t* in = row + begin / 2;
    for (size_t i = 0; i < count; i += 32, in += 16) {
      const auto packed = hn::LoadU(d, in);
      const auto low = hn::And(packed, hn::Set(d, 15));
      const auto high = hn::ShiftRight<4>(packed);
      hn::StoreU(hn::InterleaveLower(d, low, high), d, out + i);
      hn::StoreU(hn::InterleaveUpper(d, low, high), d, out + i + 16);
    }
    return;
  }
  const uint8_t* in = row + begin * 6 / 8;
  for (size_t i = 0; i < count; i += 4, in += 3) {
    const uint32_t packed = uint32_t{in[0]} | uint32_t{in[1]} << 8 | uint32_t{in[2]} << 16;
    out[i] = packed & 63;
    out[i + 1] = packed >> 6 & 63;
    out[i + 2] = packed >> 12 & 63;
    out[i + 3] = packed >> 18;
  }
}

// Columns [begin, begin + count) of one row, as floats.
void UnpackRow(const MatrixView& matrix, size_t row, size_t begin, size_t count, float* out) {
  const F32 d;
  const size_t lanes = hn::Lanes(d);
  const auto* weights = static_cast<const uint8_t*>(matrix.weights) + row * WeightRowBytes(matrix);
  if (matrix.bits == 0) {
    size_t c = 0;
    for (; c + lanes <= count; c += lanes) {
      hn::StoreU(LoadWide(weights, matrix.type, begin + c), d, out + c);
    }
    for (; c < count; ++c) out[c] = LoadScalar(weights, matrix.type, begin + c);
    return;
  }
  const size_t group = static_cast<size_t>(matrix.group_size);
  const size_t groups_per_row = matrix.columns / group;
  HWY_ALIGN uint8_t numbers[128];
  for (size_t c = 0; c < count; c += group) {
    const size_t index = row * groups_per_row + (begin + c) / group;
    const auto scale = hn::Set(d, LoadScalar(matrix.scales, matrix.type, index));
    const auto bias = hn::Set(d, LoadScalar(matrix.biases, matrix.type, index));
    UnpackBytes(weights, matrix.bits, begin + c, group, numbers);
    for (size_t i = 0; i < group; i += lanes) {
      hn::StoreU(hn::MulAdd(WidenBytes(numbers + i), scale, bias), d, out + c + i);
    }
  }
}

float DotDense(const MatrixView& matrix, size_t row, const float* x) {
  const F32 d;
  const size_t lanes = hn::Lanes(d);
  const auto* weights = static_cast<const uint8_t*>(matrix.weights) + row * WeightRowBytes(matrix);
  auto sum0 = hn::Zero(d);
  auto sum1 = hn::Zero(d);
  size_t c = 0;
  for (; c + 2 * lanes <= matrix.columns; c += 2 * lanes) {
    sum0 = hn::MulAdd(LoadWide(weights, matrix.type, c), hn::LoadU(d, x + c), sum0);
    sum1 = hn::MulAdd(LoadWide(weights, matrix.type, c + lanes), hn::LoadU(d, x + c + lanes), sum1);
  }
  float total = hn::GetLane(hn::SumOfLanes(d, hn::Add(sum0, sum1)));
  for (; c < matrix.columns; ++c) total += LoadScalar(weights, matrix.type, c) * x[c];
  return total;
}

// scale * sum(q * x) + bias * sum(x), group by group; `group_sums` holds sum(x) of each group.
float DotAffine(const MatrixView& matrix, size_t row, const float* x, const float* group_sums) {
  const F32 d;
  const size_t lanes = hn::Lanes(d);
  const size_t group = static_cast<size_t>(matrix.group_size);
  const size_t groups = matrix.columns / group;
  const auto* weights = static_cast<const uint8_t*>(matrix.weights) + row * WeightRowBytes(matrix);
  HWY_ALIGN uint8_t numbers[128];
  auto sum = hn::Zero(d);
  float from_biases = 0.0F;
  for (size_t g = 0; g < groups; ++g) {
    UnpackBytes(weights, matrix.bits, g * group, group, numbers);
    const float* values = x + g * group;
    auto dot0 = hn::Zero(d);
    auto dot1 = hn::Zero(d);
    for (size_t i = 0; i < group; i += 2 * lanes) {
      dot0 = hn::MulAdd(WidenBytes(numbers + i), hn::LoadU(d, values + i), dot0);
      dot1 = hn::MulAdd(WidenBytes(numbers + i + lanes), hn::LoadU(d, values + i + lanes), dot1);
    }
    const size_t index = row * groups + g;
    sum = hn::MulAdd(hn::Add(dot0, dot1), hn::Set(d, LoadScalar(matrix.scales, matrix.type, index)),
                     sum);
    from_biases += LoadScalar(matrix.biases, matrix.type, index) * group_sums[g];
  }
  return hn::GetLane(hn::SumOfLanes(d, sum)) + from_biases;
}

void MultiplyOne(const MatrixView& matrix, const float* x, float* y, size_t begin, size_t end) {
  if (matrix.bits == 0) {
    for (size_t row = begin; row < end; ++row) y[row] = DotDense(matrix, row, x);
    return;
  }
  const size_t group = static_cast<size_t>(matrix.group_size);
  const auto sums = hwy::AllocateAligned<float>(matrix.columns / group);
  for (size_t g = 0; g < matrix.columns / group; ++g) {
    float sum = 0.0F;
    for (size_t i = 0; i < group; ++i) sum += x[g * group + i];
    sums[g] = sum;
  }
  for (size_t row = begin; row < end; ++row) y[row] = DotAffine(matrix, row, x, sums.get());
}

float Total(VF32 v) { return hn::GetLane(hn::SumOfLanes(F32(), v)); }

// sums[r][m] = the product of unpacked row r (w0, w1) and vector x[m]: the innermost block.
void MultiplyTile(const float* w0, const float* w1, const float* const* x, size_t count,
                  float (*sums)[4]) {
  const F32 d;
  const size_t lanes = hn::Lanes(d);
  auto a0 = hn::Zero(d), a1 = hn::Zero(d), a2 = hn::Zero(d), a3 = hn::Zero(d);
  auto b0 = hn::Zero(d), b1 = hn::Zero(d), b2 = hn::Zero(d), b3 = hn::Zero(d);
  size_t c = 0;
  for (; c + lanes <= count; c += lanes) {
    const auto w = hn::LoadU(d, w0 + c);
    const auto v = hn::LoadU(d, w1 + c);
    const auto x0 = hn::LoadU(d, x[0] + c);
    const auto x1 = hn::LoadU(d, x[1] + c);
    const auto x2 = hn::LoadU(d, x[2] + c);
    const auto x3 = hn::LoadU(d, x[3] + c);
    a0 = hn::MulAdd(w, x0, a0), b0 = hn::MulAdd(v, x0, b0);
    a1 = hn::MulAdd(w, x1, a1), b1 = hn::MulAdd(v, x1, b1);
    a2 = hn::MulAdd(w, x2, a2), b2 = hn::MulAdd(v, x2, b2);
    a3 = hn::MulAdd(w, x3, a3), b3 = hn::MulAdd(v, x3, b3);
  }
  sums[0][0] = Total(a0), sums[0][1] = Total(a1), sums[0][2] = Total(a2), sums[0][3] = Total(a3);
  sums[1][0] = Total(b0), sums[1][1] = Total(b1), sums[1][2] = Total(b2), sums[1][3] = Total(b3);
  for (; c < count; ++c) {
    for (size_t m = 0; m < 4; ++m) {
      sums[0][m] += w0[c] * x[m][c];
      sums[1][m] += w1[c] * x[m][c];
    }
  }
}

void MultiplyMany(const MatrixView& matrix, const float* x, size_t count, float* y, size_t begin,
                  size_t end) {
  const size_t width = std::min(matrix.columns, kUnpackedColumnsMax);
  const auto unpacked = hwy::AllocateAligned<float>(kUnpackedRows * width);
  for (size_t row = begin; row < end; row += kUnpackedRows) {
    const size_t rows = std::min(kUnpackedRows, end - row);
    for (size_t column = 0; column < matrix.columns; column += width) {
      const size_t columns = std::min(width, matrix.columns - column);
      for (size_t r = 0; r < rows; ++r) {
        UnpackRow(matrix, row + r, column, columns, unpacked.get() + r * width);
      }
      for (size_t m = 0; m < count; m += 4) {
        const float* vectors[4];
        for (size_t i = 0; i < 4; ++i) {
          vectors[i] = x + std::min(m + i, count - 1) * matrix.columns + column;
        }
        for (size_t r = 0; r < rows; r += 2) {
          const size_t second = std::min(r + 1, rows - 1);
          float sums[2][4];
          MultiplyTile(unpacked.get() + r * width, unpacked.get() + second * width, vectors,
                       columns, sums);
          for (size_t i = 0; i < std::min<size_t>(4, count - m); ++i) {
            float* out = y + (m + i) * matrix.rows + row + r;
            out[0] = (column == 0 ? 0.0F : out[0]) + sums[0][i];
            if (second != r) out[1] = (column == 0 ? 0.0F : out[1]) + sums[1][i];
          }
        }
      }
    }
  }
}

void MultiplyTransposedImpl(const MatrixView& matrix, const float* x, size_t count, float* y,
                            size_t begin, size_t end) {
  if (count == 1) {
    MultiplyOne(matrix, x, y, begin, end);
  } else if (count > 1) {
    MultiplyMany(matrix, x, count, y, begin, end);
  }
}

void GatherRowsImpl(const MatrixView& matrix, const int32_t* rows, size_t count, float* out) {
  for (size_t i = 0; i < count; ++i) {
    UnpackRow(matrix, static_cast<size_t>(rows[i]), 0, matrix.columns, out + i * matrix.columns);
  }
}

const char* InstructionSetImpl() { return hwy::TargetName(HWY_TARGET); }

}  // namespace HWY_NAMESPACE
}  // namespace macrame::runtime::kernels
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace macrame::runtime::kernels {

HWY_EXPORT(MultiplyTransposedImpl);
HWY_EXPORT(GatherRowsImpl);
HWY_EXPORT(InstructionSetImpl);

void MultiplyTransposed(const MatrixView& matrix, const float* x, size_t count, float* y,
                        size_t row_begin, size_t row_end) {
  HWY_DYNAMIC_DISPATCH(MultiplyTransposedImpl)(matrix, x, count, y, row_begin, row_end);
}

void GatherRows(const MatrixView& matrix, const int32_t* rows, size_t count, float* out) {
  HWY_DYNAMIC_DISPATCH(GatherRowsImpl)(matrix, rows, count, out);
}

const char* InstructionSet() { return HWY_DYNAMIC_DISPATCH(InstructionSetImpl)(); }

}  // namespace macrame::runtime::kernels
#endif  // HWY_ONCE
