// Per target: integer dot products, and packed weights turned so that each 32 bit lane holds four
// numbers of one row. Included once for each instruction set, like Highway's own -inl.h files.

#if defined(MACRAME_INTEGER_DOTS_INL) == defined(HWY_TARGET_TOGGLE)
#ifdef MACRAME_INTEGER_DOTS_INL
#undef MACRAME_INTEGER_DOTS_INL
#else
#define MACRAME_INTEGER_DOTS_INL
#endif

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>

#include "hwy/highway.h"
#include "runtime/kernels/activations.h"

HWY_BEFORE_NAMESPACE();
#if HWY_TARGET == HWY_AVX3_DL
// Highway's target names VNNI's short vectors only.
#ifdef __clang__
#pragma clang attribute push(__attribute__((target("avx512vnni"))), apply_to = function)
#else
#pragma GCC push_options
#pragma GCC target("avx512vnni")
#endif
#endif
namespace macrame::runtime::kernels {
namespace HWY_NAMESPACE {

namespace hn = hwy::HWY_NAMESPACE;
using F32 = hn::ScalableTag<float>;
using I32 = hn::ScalableTag<int32_t>;
using I64 = hn::ScalableTag<int64_t>;
using VF32 = hn::Vec<F32>;
using VI32 = hn::Vec<I32>;

// Rows that are multiplied together, one in each lane.
inline constexpr size_t kLanes = HWY_LANES(int32_t);

// Whether activations are two planes of bytes or one of 16 bit integers, and whether bytes of
// weights are signed to the machine (then 128 is taken from those of 8 bits).
#if HWY_TARGET == HWY_AVX3_DL
inline constexpr bool kByteDots = true;
inline constexpr bool kSignedWeights = false;
#elif HWY_TARGET == HWY_NEON && defined(__ARM_FEATURE_DOTPROD)
inline constexpr bool kByteDots = true;
inline constexpr bool kSignedWeights = true;
#else
inline constexpr bool kByteDots = false;
inline constexpr bool kSignedWeights = false;
#endif

// Each lane: sum + the product of its bytes (four) or 16 bit integers (two).
HWY_INLINE VI32 AddDot(VI32 sum, VI32 weights, VI32 q) {
#if HWY_TARGET == HWY_AVX3_DL
  return VI32{_mm512_dpbusd_epi32(sum.raw, weights.raw, q.raw)};
#elif HWY_TARGET == HWY_AVX3
  return hn::Add(sum, VI32{_mm512_madd_epi16(weights.raw, q.raw)});
#elif HWY_TARGET == HWY_AVX2
  return hn::Add(sum, VI32{_mm256_madd_epi16(weights.raw, q.raw)});
#elif HWY_TARGET == HWY_SSSE3
  return hn::Add(sum, VI32{_mm_madd_epi16(weights.raw, q.raw)});
#elif HWY_TARGET == HWY_NEON && defined(__ARM_FEATURE_DOTPROD)
  return VI32(
      vdotq_s32(sum.raw, vreinterpretq_s8_s32(weights.raw), vreinterpretq_s8_s32(q.raw)));
#elif HWY_TARGET == HWY_NEON
  const int16x8_t w = vreinterpretq_s16_s32(weights.raw);
  const int16x8_t v = vreinterpretq_s16_s32(q.raw);
  return VI32(vaddq_s32(sum.raw, vpaddq_s32(vmull_s16(vget_low_s16(w), vget_low_s16(v)),
                                            vmull_s16(vget_high_s16(w), vget_high_s16(v)))));
#else
#error "no integer dot product for this target"
#endif
}

HWY_INLINE VI32 BroadcastDword(const int8_t* bytes) {
  int32_t value;
  std::memcpy(&value, bytes, 4);
  return hn::Set(I32(), value);
}

// The sum over a group's columns so far, in two parts.
struct GroupSum {
  // Written out: a generated one would not be compiled for this target.
  HWY_INLINE GroupSum() : first(hn::Zero(I32())), second(hn::Zero(I32())) {}
  VI32 first;
  VI32 second;
};

// Adds four columns: weights as bytes, and the activations of column `column` on.
HWY_INLINE void AddColumns(GroupSum& sum, VI32 weights, const int8_t* high, const int8_t* low,
                           size_t column) {
  if constexpr (kByteDots) {
    sum.first = AddDot(sum.first, weights, BroadcastDword(high + column));
    sum.second = AddDot(sum.second, weights, BroadcastDword(low + column));
  } else {
    const hn::Repartition<uint16_t, I32> d16;
    const auto even = hn::And(weights, hn::Set(I32(), 0x00ff00ff));
    const auto odd = hn::BitCast(I32(), hn::ShiftRight<8>(hn::BitCast(d16, weights)));
    sum.first = AddDot(sum.first, even, BroadcastDword(low + 2 * column));
    sum.second = AddDot(sum.second, odd, BroadcastDword(low + 2 * column + 4));
  }
}

HWY_INLINE VI32 Total(const GroupSum& sum) {
  return kByteDots ? hn::Add(hn::ShiftLeft<8>(sum.first), sum.second)
                   : hn::Add(sum.first, sum.second);
}

// One group's part of a product, for kLanes rows: the one place where integers become floats.
HWY_INLINE VF32 AddGroup(VF32 y, VI32 total, float x_scale, float x_sum, VF32 scale, VF32 bias) {
  const F32 d;
  const auto product = hn::Mul(hn::ConvertTo(d, total), hn::Set(d, x_scale));
  return hn::MulAdd(bias, hn::Set(d, x_sum), hn::MulAdd(product, scale, y));
}

// Row 4 b + row of the kLanes rows in the b-th 16 bytes.
HWY_INLINE VI32 LoadEveryFourth(const uint8_t* const* rows, size_t row, size_t offset) {
  const hn::FixedTag<uint8_t, 16> d;
  const auto part = [&](size_t b) HWY_ATTR { return hn::LoadU(d, rows[4 * b + row] + offset); };
#if HWY_MAX_BYTES == 64
  const hn::FixedTag<uint8_t, 32> d2;
  const hn::FixedTag<uint8_t, 64> d4;
  return hn::BitCast(I32(), hn::Combine(d4, hn::Combine(d2, part(3), part(2)),
                                        hn::Combine(d2, part(1), part(0))));
#elif HWY_MAX_BYTES == 32
  const hn::FixedTag<uint8_t, 32> d2;
  return hn::BitCast(I32(), hn::Combine(d2, part(1), part(0)));
#else
  return hn::BitCast(I32(), part(0));
#endif
}

// In each 16 bytes: rows of four words become columns.
HWY_INLINE void TransposeBlocks(VI32 a, VI32 b, VI32 c, VI32 d, VI32* HWY_RESTRICT out) {
  const I32 d32;
  const I64 d64;
  const auto low0 = hn::BitCast(d64, hn::InterleaveLower(d32, a, b));
  const auto low1 = hn::BitCast(d64, hn::InterleaveLower(d32, c, d));
  const auto high0 = hn::BitCast(d64, hn::InterleaveUpper(d32, a, b));
  const auto high1 = hn::BitCast(d64, hn::InterleaveUpper(d32, c, d));
  out[0] = hn::BitCast(d32, hn::InterleaveLower(d64, low0, low1));
  out[1] = hn::BitCast(d32, hn::InterleaveUpper(d64, low0, low1));
  out[2] = hn::BitCast(d32, hn::InterleaveLower(d64, high0, high1));
  out[3] = hn::BitCast(d32, hn::InterleaveUpper(d64, high0, high1));
}

// out[i] = word i of the 16 bytes at `offset` of each row.
HWY_INLINE void LoadWords4(const uint8_t* const* rows, size_t offset, VI32* HWY_RESTRICT out) {
  TransposeBlocks(LoadEveryFourth(rows, 0, offset), LoadEveryFourth(rows, 1, offset),
                  LoadEveryFourth(rows, 2, offset), LoadEveryFourth(rows, 3, offset), out);
}

// out[i] = word i of the 64 bytes at `offset` of each row.
HWY_INLINE void LoadWords16(const uint8_t* const* rows, size_t offset, VI32* HWY_RESTRICT out) {
#if HWY_MAX_BYTES == 64
  VI32 turned[4][4];
  MACRAME_UNROLL
  for (size_t i = 0; i < 4; ++i) {
    VI32 row[4];
    MACRAME_UNROLL
    for (size_t j = 0; j < 4; ++j) row[j] = VI32{_mm512_loadu_si512(rows[4 * i + j] + offset)};
    TransposeBlocks(row[0], row[1], row[2], row[3], turned[i]);
  }
  MACRAME_UNROLL
  for (size_t j = 0; j < 4; ++j) {
    const __m512i a = _mm512_shuffle_i32x4(turned[0][j].raw, turned[1][j].raw, 0x44);
    const __m512i b = _mm512_shuffle_i32x4(turned[0][j].raw, turned[1][j].raw, 0xee);
    const __m512i c = _mm512_shuffle_i32x4(turned[2][j].raw, turned[3][j].raw, 0x44);
    const __m512i d = _mm512_shuffle_i32x4(turned[2][j].raw, turned[3][j].raw, 0xee);
    out[j] = VI32{_mm512_shuffle_i32x4(a, c, 0x88)};
    out[4 + j] = VI32{_mm512_shuffle_i32x4(a, c, 0xdd)};
    out[8 + j] = VI32{_mm512_shuffle_i32x4(b, d, 0x88)};
    out[12 + j] = VI32{_mm512_shuffle_i32x4(b, d, 0xdd)};
  }
#else
  MACRAME_UNROLL
  for (size_t i = 0; i < 4; ++i) LoadWords4(rows, offset + 16 * i, out + 4 * i);
#endif
}

// Packed weights are read in runs: so many columns at a time, in so many words.
template <int kBits>
struct Run {
  static constexpr size_t kColumns = kBits == 4 ? 128 : 64;
  static constexpr size_t kBytes = kColumns * kBits / 8;
  static constexpr size_t kWords = kBytes / 4;

  HWY_INLINE static void Load(const uint8_t* const* rows, size_t offset, VI32* HWY_RESTRICT out) {
    if constexpr (kWords == 16) {
      LoadWords16(rows, offset, out);
    } else {
      LoadWords4(rows, offset, out);
      LoadWords4(rows, offset + 16, out + 4);
      LoadWords4(rows, offset + 32, out + 8);
    }
  }

  // Four numbers as bytes: the i-th four in the order of columns that activations have too. With 4
  // bits that is the even columns of eight before the odd ones.
  HWY_INLINE static VI32 Weights(const VI32* HWY_RESTRICT words, size_t i) {
    const I32 d;
    if constexpr (kBits == 8) {
      return kSignedWeights ? hn::Xor(words[i], hn::Set(d, static_cast<int32_t>(0x80808080U)))
                            : words[i];
    } else if constexpr (kBits == 4) {
      const auto mask = hn::Set(d, 0x0f0f0f0f);
      return hn::And(i % 2 == 0 ? words[i / 2] : hn::ShiftRight<4>(words[i / 2]), mask);
    } else {
      const hn::Repartition<uint32_t, I32> du;
      const auto a = hn::BitCast(du, words[i / 4 * 3]);
      const auto b = hn::BitCast(du, words[i / 4 * 3 + 1]);
      const auto c = hn::BitCast(du, words[i / 4 * 3 + 2]);
      const auto packed = i % 4 == 0   ? a
                          : i % 4 == 1 ? hn::Or(hn::ShiftRight<24>(a), hn::ShiftLeft<8>(b))
                          : i % 4 == 2 ? hn::Or(hn::ShiftRight<16>(b), hn::ShiftLeft<16>(c))
                                       : hn::ShiftRight<8>(c);
      return SpreadSixBits(hn::BitCast(d, packed));
    }
  }

  // The low 24 bits of a lane as four bytes.
  HWY_INLINE static VI32 SpreadSixBits(VI32 packed) {
    const I32 d;
#if HWY_TARGET == HWY_AVX3_DL
    const __m512i shifts = _mm512_set1_epi64(0x322c2620120c0600);
    return hn::And(VI32{_mm512_multishift_epi64_epi8(shifts, packed.raw)},
                   hn::Set(d, 0x3f3f3f3f));
#else
    const auto first = hn::And(packed, hn::Set(d, 0x3f));
    const auto second = hn::And(hn::ShiftLeft<2>(packed), hn::Set(d, 0x3f00));
    const auto third = hn::And(hn::ShiftLeft<4>(packed), hn::Set(d, 0x3f0000));
    const auto fourth = hn::And(hn::ShiftLeft<6>(packed), hn::Set(d, 0x3f000000));
    return hn::Or(hn::Or(first, second), hn::Or(third, fourth));
#endif
  }
};

// Copies of the last bytes of each row, zeros behind them, so that whole runs can be read.
class StagedRows {
 public:
  HWY_INLINE StagedRows(const uint8_t* const* rows, size_t offset, size_t bytes) {
    std::memset(bytes_, 0, sizeof(bytes_));
    for (size_t i = 0; i < kLanes; ++i) {
      std::memcpy(bytes_[i], rows[i] + offset, bytes);
      rows_[i] = bytes_[i];
    }
  }
  const uint8_t* const* rows() const { return rows_; }

 private:
  uint8_t bytes_[kLanes][64];
  const uint8_t* rows_[kLanes];
};

inline constexpr size_t kScaleBlock = 8;  // scales are turned so many groups at a time

// The low 16 bits of each lane as IEEE half precision. Infinities and NaNs come out as numbers:
// no scale is one.
HWY_INLINE VF32 FromHalfBits(VI32 raw) {
  const F32 d;
  const I32 di;
  const auto sign = hn::ShiftLeft<16>(hn::And(raw, hn::Set(di, 0x8000)));
  const auto size = hn::BitCast(d, hn::ShiftLeft<13>(hn::And(raw, hn::Set(di, 0x7fff))));
  return hn::Or(hn::Mul(size, hn::Set(d, 0x1p112F)), hn::BitCast(d, sign));
}

// out[g][lane] = scale `begin` + g of each row, g below kScaleBlock; those from `groups` on are 0.
HWY_INLINE void LoadScales(const uint8_t* const* rows, Scalar type, size_t begin, size_t groups,
                           float* HWY_RESTRICT out) {
  const F32 d;
  const I32 di;
  const size_t left = groups - begin;
  if (left < kScaleBlock) {
    const StagedRows staged(rows, begin * ScalarBytes(type), left * ScalarBytes(type));
    LoadScales(staged.rows(), type, 0, kScaleBlock, out);
    return;
  }
  VI32 words[8];
  const size_t offset = begin * ScalarBytes(type);
  LoadWords4(rows, offset, words);
  if (type == Scalar::kFloat32) {
    LoadWords4(rows, offset + 16, words + 4);
    for (size_t i = 0; i < 8; ++i) hn::StoreU(hn::BitCast(d, words[i]), d, out + i * kLanes);
    return;
  }
  for (size_t i = 0; i < 4; ++i) {
    VF32 even, odd;
    if (type == Scalar::kBfloat16) {
      even = hn::BitCast(d, hn::ShiftLeft<16>(words[i]));
      odd = hn::BitCast(d, hn::And(words[i], hn::Set(di, static_cast<int32_t>(0xffff0000U))));
    } else {
      even = FromHalfBits(words[i]);
      odd = FromHalfBits(hn::ShiftRight<16>(words[i]));
    }
    hn::StoreU(even, d, out + 2 * i * kLanes);
    hn::StoreU(odd, d, out + (2 * i + 1) * kLanes);
  }
}

// kLanes rows of a matrix; behind its last row that one again.
struct RowBlock {
  HWY_INLINE RowBlock(const MatrixView& matrix, size_t begin) {
    const size_t groups = matrix.columns / static_cast<size_t>(matrix.group_size);
    const size_t scale_bytes = groups * ScalarBytes(matrix.type);
    for (size_t i = 0; i < kLanes; ++i) {
      const size_t row = std::min(begin + i, matrix.rows - 1);
      weights[i] = static_cast<const uint8_t*>(matrix.weights) + row * WeightRowBytes(matrix);
      scales[i] = static_cast<const uint8_t*>(matrix.scales) + row * scale_bytes;
      biases[i] = static_cast<const uint8_t*>(matrix.biases) + row * scale_bytes;
    }
  }
  const uint8_t* weights[kLanes];
  const uint8_t* scales[kLanes];
  const uint8_t* biases[kLanes];
};

}  // namespace HWY_NAMESPACE
}  // namespace macrame::runtime::kernels
#if HWY_TARGET == HWY_AVX3_DL
#ifdef __clang__
#pragma clang attribute pop
#else
#pragma GCC pop_options
#endif
#endif
HWY_AFTER_NAMESPACE();

#endif  // MACRAME_INTEGER_DOTS_INL
