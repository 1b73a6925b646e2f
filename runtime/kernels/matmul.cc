#include "runtime/kernels/matmul.h"

#include <algorithm>
#include <cstring>

#include "runtime/kernels/amx.h"
#include "runtime/kernels/dense.h"
#include "runtime/kernels/highway_targets.h"
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "runtime/kernels/matmul.cc"
#include "hwy/foreach_target.h"  // compiles this file once for each instruction set
#include "hwy/highway.h"
#include "runtime/kernels/integer_dots.inc"

HWY_BEFORE_NAMESPACE();
namespace macrame::runtime::kernels {
namespace HWY_NAMESPACE {

// What 128 too few in each signed weight leaves out of a group's sum.
template <bool kSigned>
HWY_INLINE VI32 WithoutSign(VI32 total, const QuantizedForm& form, size_t index) {
  if constexpr (kSigned) {
    return hn::Add(total, hn::Set(I32(), 128 * form.integer_sums[index]));
  } else {
    return total;
  }
}

// Asks for the lines of a run that is read later. What lies behind the matrix is never touched.
// kNear: into the first level cache, else the second.
template <bool kNear>
HWY_INLINE void PrefetchRun(const uint8_t* const* rows, size_t offset) {
  MACRAME_UNROLL
  for (size_t i = 0; i < kLanes; ++i) {
    const auto address = reinterpret_cast<uintptr_t>(rows[i]) + offset;
    __builtin_prefetch(reinterpret_cast<const uint8_t*>(address), 0, kNear ? 3 : 2);
  }
}

// --- One vector: each weight is read once and multiplied as it comes.

#if MACRAME_HAS_WIDE_VNNI
// A run of four or eight bit weights against one vector, without turning it all the way: while
// words stay in their quarter of the row's 64 bytes, activations are turned to meet them, once for
// all rows.
template <int kBits>
struct QuarteredRun {
  static constexpr size_t kParts = kBits == 4 ? 2 : 1;  // fours of columns in a word

  // Word j of each quarter, four times: [j][part], bytes of one plane.
  HWY_INLINE static void TurnActivations(const int8_t* bytes, __m512i (*q)[kParts]) {
    __m512i parts[kParts];
    if constexpr (kBits == 4) {
      const __m512i even =
          _mm512_setr_epi32(0, 2, 4, 6, 8, 10, 12, 14, 16, 18, 20, 22, 24, 26, 28, 30);
      const __m512i first = _mm512_loadu_si512(bytes);
      const __m512i second = _mm512_loadu_si512(bytes + 64);
      const __m512i odd = _mm512_add_epi32(even, _mm512_set1_epi32(1));
      parts[0] = _mm512_permutex2var_epi32(first, even, second);
      parts[1] = _mm512_permutex2var_epi32(first, odd, second);
    } else {
      parts[0] = _mm512_loadu_si512(bytes);
    }
    MACRAME_UNROLL
    for (size_t part = 0; part < kParts; ++part) {
      q[0][part] = _mm512_shuffle_epi32(parts[part], _MM_PERM_AAAA);
      q[1][part] = _mm512_shuffle_epi32(parts[part], _MM_PERM_BBBB);
      q[2][part] = _mm512_shuffle_epi32(parts[part], _MM_PERM_CCCC);
      q[3][part] = _mm512_shuffle_epi32(parts[part], _MM_PERM_DDDD);
    }
  }

  // totals[quarter], a row in each lane.
  HWY_INLINE static void Multiply(const uint8_t* const* rows, size_t offset, const int8_t* high,
                                  const int8_t* low, VI32* HWY_RESTRICT totals) {
    __m512i q1[4][kParts], q2[4][kParts];
    TurnActivations(high, q1);
    TurnActivations(low, q2);
    // The upper four bits stay where they are: their sums are 16 times too large.
    const __m512i masks[2] = {_mm512_set1_epi8(0x0f), _mm512_set1_epi8(static_cast<char>(0xf0))};
    __m512i fours[4];  // rows 4 i to 4 i + 3 of each quarter
    MACRAME_UNROLL
    for (size_t i = 0; i < 4; ++i) {
      VI32 row[4];
      VI32 words[4];
      MACRAME_UNROLL
      for (size_t j = 0; j < 4; ++j) row[j] = VI32{_mm512_loadu_si512(rows[4 * i + j] + offset)};
      TransposeBlocks(row[0], row[1], row[2], row[3], words);
      __m512i sum1[kParts], sum2[kParts];
      MACRAME_UNROLL
      for (size_t part = 0; part < kParts; ++part) {
        sum1[part] = sum2[part] = _mm512_setzero_si512();
        MACRAME_UNROLL
        for (size_t j = 0; j < 4; ++j) {
          const __m512i weights =
              kParts == 1 ? words[j].raw : _mm512_and_si512(words[j].raw, masks[part]);
          sum1[part] = _mm512_dpbusd_epi32(sum1[part], weights, q1[j][part]);
          sum2[part] = _mm512_dpbusd_epi32(sum2[part], weights, q2[j][part]);
        }
      }
      fours[i] = Total({VI32{sum1[0]}, VI32{sum2[0]}}).raw;
      if constexpr (kParts == 2) {
        const __m512i upper = Total({VI32{sum1[1]}, VI32{sum2[1]}}).raw;
        fours[i] = _mm512_add_epi32(fours[i], _mm512_srai_epi32(upper, 4));
      }
    }
    TransposeQuarters(fours, totals);
  }

  HWY_INLINE static void TransposeQuarters(const __m512i* in, VI32* HWY_RESTRICT out) {
    const __m512i a = _mm512_shuffle_i32x4(in[0], in[1], 0x44);
    const __m512i b = _mm512_shuffle_i32x4(in[0], in[1], 0xee);
    const __m512i c = _mm512_shuffle_i32x4(in[2], in[3], 0x44);
    const __m512i d = _mm512_shuffle_i32x4(in[2], in[3], 0xee);
    out[0] = VI32{_mm512_shuffle_i32x4(a, c, 0x88)};
    out[1] = VI32{_mm512_shuffle_i32x4(a, c, 0xdd)};
    out[2] = VI32{_mm512_shuffle_i32x4(b, d, 0x88)};
    out[3] = VI32{_mm512_shuffle_i32x4(b, d, 0xdd)};
  }
};
#endif

template <int kBits, size_t kGroup>
struct OneVector {
  using Packed = Run<kBits>;
  static constexpr size_t kRunsOfGroup = std::max<size_t>(1, kGroup / Packed::kColumns);
  static constexpr size_t kGroupsOfRun = std::max<size_t>(1, Packed::kColumns / kGroup);

  // Adds a run to the sums of its groups, or of the group that it is a part of.
  HWY_INLINE static void AddRun(const uint8_t* const* rows, size_t offset, const int8_t* high,
                                const int8_t* low, VI32* HWY_RESTRICT totals) {
#if MACRAME_HAS_WIDE_VNNI
    if constexpr (kBits != 6) {
      VI32 quarters[4];
      QuarteredRun<kBits>::Multiply(rows, offset, high, low, quarters);
      MACRAME_UNROLL
      for (size_t i = 0; i < 4; ++i) {
        VI32& total = totals[i * kGroupsOfRun / 4];
        total = hn::Add(total, quarters[i]);
      }
      return;
    }
#endif
    constexpr size_t kFours = Packed::kColumns / 4;
    VI32 words[Packed::kWords];
    GroupSum sums[kGroupsOfRun];
    Packed::Load(rows, offset, words);
    MACRAME_UNROLL
    for (size_t i = 0; i < kFours; ++i) {
      AddColumns(sums[i * kGroupsOfRun / kFours], Packed::Weights(words, i), high, low, 4 * i);
    }
    MACRAME_UNROLL
    for (size_t i = 0; i < kGroupsOfRun; ++i) totals[i] = hn::Add(totals[i], Total(sums[i]));
  }

  // Groups [g, g + kGroupsOfRun); those from `groups` on don't exist. `rows` have theirs at
  // `offset`, and what is wanted next `ahead` behind that.
  HWY_INLINE static VF32 Step(const uint8_t* const* rows, size_t offset, size_t ahead,
                              const QuantizedForm& form, size_t g, size_t groups,
                              const float* scales, const float* biases, VF32 y) {
    const F32 d;
    constexpr size_t kBytesOfColumn = kByteDots ? 1 : 2;
    VI32 totals[kGroupsOfRun];
    MACRAME_UNROLL
    for (size_t i = 0; i < kGroupsOfRun; ++i) totals[i] = hn::Zero(I32());
    MACRAME_UNROLL
    for (size_t run = 0; run < kRunsOfGroup; ++run) {
      const size_t place = (g * kGroup + run * Packed::kColumns) * kBytesOfColumn;
      PrefetchRun<true>(rows, offset + run * Packed::kBytes + ahead);
      AddRun(rows, offset + run * Packed::kBytes, form.high + place, form.low + place, totals);
    }
    MACRAME_UNROLL
    for (size_t i = 0; i < kGroupsOfRun; ++i) {
      if (g + i >= groups) break;
      y = AddGroup(y, WithoutSign < kSignedWeights && kBits == 8 > (totals[i], form, g + i),
                   form.scales[g + i], form.sums[g + i], hn::LoadU(d, scales + i * kLanes),
                   hn::LoadU(d, biases + i * kLanes));
    }
    return y;
  }

  static void Multiply(const MatrixView& matrix, const QuantizedForm& form, float* y,
                       RowRange range) {
    const F32 d;
    const size_t groups = matrix.columns / kGroup;
    const size_t row_bytes = WeightRowBytes(matrix);
    constexpr size_t kStepBytes = kGroupsOfRun * kGroup * kBits / 8;
    HWY_ALIGN float scales[kScaleBlock * kLanes];
    HWY_ALIGN float biases[kScaleBlock * kLanes];
    for (size_t row = range.begin; row < range.end; row += kLanes) {
      const RowBlock block(matrix, row);
      auto sum = hn::Zero(d);
      for (size_t g = 0; g < groups; g += kGroupsOfRun) {
        const size_t at = g % kScaleBlock;
        if (at == 0) {
          LoadScales(block.scales, matrix.type, g, groups, scales);
          LoadScales(block.biases, matrix.type, g, groups, biases);
        }
        const size_t offset = g * kGroup * kBits / 8;
        if (offset + kStepBytes <= row_bytes) {
          sum = Step(block.weights, offset, kLanes * row_bytes, form, g, groups,
                     scales + at * kLanes, biases + at * kLanes, sum);
        } else {
          const StagedRows staged(block.weights, offset, row_bytes - offset);
          sum = Step(staged.rows(), 0, 0, form, g, groups, scales + at * kLanes,
                     biases + at * kLanes, sum);
        }
      }
      HWY_ALIGN float out[kLanes];
      hn::Store(sum, d, out);
      std::memcpy(y + row, out, std::min(kLanes, range.end - row) * sizeof(float));
    }
  }
};

// --- Several vectors: some rows and columns of weights are unpacked into a panel, which stays in
// the first level cache while all vectors pass.

inline constexpr size_t kPanelBlocks = 2;  // of kLanes rows
inline constexpr size_t kPanelColumns = 1024;
inline constexpr size_t kPanelGroupsMax = kPanelColumns / 32;
inline constexpr size_t kVectorsAtOnce = 4;
// So few vectors stay in the second level cache whole; then rows are read from end to end.
inline constexpr size_t kFewVectors = 32;

// For each block of rows: weights [column / 4][kLanes][4], scales and biases [group][kLanes].
struct Panel {
  uint8_t* weights[kPanelBlocks];
  float* scales[kPanelBlocks];
  float* biases[kPanelBlocks];
  size_t first_group;
  size_t groups;
};

inline constexpr size_t kPanelWeightBytes = kLanes * kPanelColumns;
inline constexpr size_t kPanelScaleFloats = kPanelGroupsMax * kLanes;
inline constexpr size_t kPanelBytes =
    kPanelBlocks * (kPanelWeightBytes + 2 * kPanelScaleFloats * sizeof(float));
static_assert(kPanelBytes <= kPanelBytesMax);

HWY_INLINE Panel PanelIn(uint8_t* memory) {
  Panel panel;
  for (size_t b = 0; b < kPanelBlocks; ++b) {
    panel.weights[b] = memory + b * kPanelWeightBytes;
    auto* floats = reinterpret_cast<float*>(memory + kPanelBlocks * kPanelWeightBytes);
    panel.scales[b] = floats + 2 * b * kPanelScaleFloats;
    panel.biases[b] = panel.scales[b] + kPanelScaleFloats;
  }
  return panel;
}

template <int kBits>
HWY_INLINE void FillRun(const uint8_t* const* rows, size_t offset, size_t columns, uint8_t* out) {
  const I32 d;
  VI32 words[Run<kBits>::kWords];
  Run<kBits>::Load(rows, offset, words);
  MACRAME_UNROLL
  for (size_t i = 0; i < Run<kBits>::kColumns / 4; ++i) {
    if (4 * i >= columns) break;
    hn::Store(Run<kBits>::Weights(words, i), d, reinterpret_cast<int32_t*>(out + i * kLanes * 4));
  }
}

// Rows from `row` on, columns [column, column + columns).
template <int kBits>
HWY_NOINLINE void FillPanel(const MatrixView& matrix, size_t row, size_t column, size_t columns,
                            Panel& panel) {
  const auto group = static_cast<size_t>(matrix.group_size);
  const size_t groups = matrix.columns / group;
  const size_t row_bytes = WeightRowBytes(matrix);
  panel.first_group = column / group;
  panel.groups = columns / group;
  for (size_t b = 0; b < kPanelBlocks; ++b) {
    const RowBlock block(matrix, row + b * kLanes);
    for (size_t g = 0; g < panel.groups; g += kScaleBlock) {
      LoadScales(block.scales, matrix.type, panel.first_group + g, groups,
                 panel.scales[b] + g * kLanes);
      LoadScales(block.biases, matrix.type, panel.first_group + g, groups,
                 panel.biases[b] + g * kLanes);
    }
    for (size_t c = 0; c < columns; c += Run<kBits>::kColumns) {
      const size_t offset = (column + c) * kBits / 8;
      const size_t left = columns - c;
      uint8_t* out = panel.weights[b] + c * kLanes;
      // The next panel's.
      PrefetchRun<false>(block.weights, offset + kPanelBlocks * kLanes * row_bytes);
      if (left >= Run<kBits>::kColumns) {
        FillRun<kBits>(block.weights, offset, left, out);
      } else {
        const StagedRows staged(block.weights, offset, left * kBits / 8);
        FillRun<kBits>(staged.rows(), 0, left, out);
      }
    }
  }
}

// Products of a panel with kCount vectors from `m` on, added to sums[vector][block][lane].
template <bool kSigned, size_t kCount>
HWY_NOINLINE void MultiplyPanel(const Panel& panel, const QuantizedForm& form, size_t m,
                                size_t all_groups, float* HWY_RESTRICT sums) {
  const F32 d;
  const I32 di;
  const size_t group = form.group_size;
  for (size_t g = 0; g < panel.groups; ++g) {
    GroupSum dots[kCount][kPanelBlocks];
    const size_t column = (panel.first_group + g) * group;
    for (size_t c = 0; c < group; c += 4) {
      VI32 weights[kPanelBlocks];
      MACRAME_UNROLL
      for (size_t b = 0; b < kPanelBlocks; ++b) {
        weights[b] = hn::Load(
            di, reinterpret_cast<const int32_t*>(panel.weights[b] + (g * group + c) * kLanes));
      }
      MACRAME_UNROLL
      for (size_t i = 0; i < kCount; ++i) {
        const int8_t* high = form.high + (m + i) * form.stride;
        const int8_t* low = form.low + (m + i) * form.stride;
        MACRAME_UNROLL
        for (size_t b = 0; b < kPanelBlocks; ++b) {
          AddColumns(dots[i][b], weights[b], high, low, column + c);
        }
      }
    }
    MACRAME_UNROLL
    for (size_t i = 0; i < kCount; ++i) {
      const size_t index = (m + i) * all_groups + panel.first_group + g;
      MACRAME_UNROLL
      for (size_t b = 0; b < kPanelBlocks; ++b) {
        float* sum = sums + (i * kPanelBlocks + b) * kLanes;
        hn::Store(AddGroup(hn::Load(d, sum), WithoutSign<kSigned>(Total(dots[i][b]), form, index),
                           form.scales[index], form.sums[index],
                           hn::Load(d, panel.scales[b] + g * kLanes),
                           hn::Load(d, panel.biases[b] + g * kLanes)),
                  d, sum);
      }
    }
  }
}

template <bool kSigned>
HWY_INLINE void MultiplyPanelByUpTo4(const Panel& panel, const QuantizedForm& form, size_t m,
                                     size_t count, size_t all_groups, float* sums) {
  switch (count) {
    case 1:
      return MultiplyPanel<kSigned, 1>(panel, form, m, all_groups, sums);
    case 2:
      return MultiplyPanel<kSigned, 2>(panel, form, m, all_groups, sums);
    case 3:
      return MultiplyPanel<kSigned, 3>(panel, form, m, all_groups, sums);
    default:
      return MultiplyPanel<kSigned, 4>(panel, form, m, all_groups, sums);
  }
}

#if MACRAME_HAS_WIDE_VNNI
// From so many vectors on, tiles are faster.
inline constexpr size_t kAmxVectorsMin = 4;

HWY_INLINE void MultiplyPanelByTiles(const Panel& panel, const QuantizedForm& form, size_t m,
                                     size_t count, size_t all_groups, float* sums) {
  static_assert(kLanes == kAmxRows && kPanelBlocks == 2);
  const AmxPanel tiles = {{panel.weights[0], panel.weights[1]},
                          {panel.scales[0], panel.scales[1]},
                          {panel.biases[0], panel.biases[1]},
                          panel.first_group,
                          panel.groups,
                          all_groups};
  MultiplyPanelAmx(tiles, form, m, count, sums);
}
#endif

// All vectors against one panel, `at_once` together.
template <bool kSigned>
HWY_NOINLINE void PassVectors(const Panel& panel, const QuantizedForm& form, size_t count,
                              size_t at_once, size_t all_groups, float* y, size_t y_stride,
                              size_t rows) {
  constexpr size_t kRows = kPanelBlocks * kLanes;
  HWY_ALIGN float sums[kAmxVectors * kRows];
  for (size_t m = 0; m < count; m += at_once) {
    const size_t vectors = std::min(at_once, count - m);
    std::memset(sums, 0, vectors * kRows * sizeof(float));
    if (panel.first_group != 0) {
      for (size_t i = 0; i < vectors; ++i) {
        std::memcpy(sums + i * kRows, y + (m + i) * y_stride, rows * sizeof(float));
      }
    }
#if MACRAME_HAS_WIDE_VNNI
    if (at_once == kAmxVectors) {
      MultiplyPanelByTiles(panel, form, m, vectors, all_groups, sums);
    } else  // NOLINT
#endif
    {
      MultiplyPanelByUpTo4<kSigned>(panel, form, m, vectors, all_groups, sums);
    }
    for (size_t i = 0; i < vectors; ++i) {
      std::memcpy(y + (m + i) * y_stride, sums + i * kRows, rows * sizeof(float));
    }
  }
}

template <int kBits>
void MultiplySeveral(const MatrixView& matrix, const QuantizedForm& form, size_t count, float* y,
                     RowRange range, uint8_t* memory) {
  constexpr size_t kRows = kPanelBlocks * kLanes;
  Panel panel = PanelIn(memory);
  const size_t all_groups = matrix.columns / form.group_size;
  size_t at_once = kVectorsAtOnce;
#if MACRAME_HAS_WIDE_VNNI
  if (count >= kAmxVectorsMin && AmxUsable()) at_once = kAmxVectors;
#endif
  const size_t outer = count <= kFewVectors ? matrix.columns : kPanelColumns;
  for (size_t begin = 0; begin < matrix.columns; begin += outer) {
    const size_t end = std::min(matrix.columns, begin + outer);
    for (size_t row = range.begin; row < range.end; row += kRows) {
      const size_t rows = std::min(kRows, range.end - row);
      for (size_t column = begin; column < end; column += kPanelColumns) {
        FillPanel<kBits>(matrix, row, column, std::min(kPanelColumns, end - column), panel);
        PassVectors<kSignedWeights && kBits == 8>(panel, form, count, at_once, all_groups, y + row,
                                                  matrix.rows, rows);
      }
    }
  }
#if MACRAME_HAS_WIDE_VNNI
  if (at_once == kAmxVectors) ReleaseAmx();
#endif
}

template <int kBits>
HWY_INLINE void MultiplyBits(const MatrixView& matrix, const QuantizedForm& form, size_t count,
                             float* y, RowRange range, uint8_t* memory) {
  if (count > 1) return MultiplySeveral<kBits>(matrix, form, count, y, range, memory);
  switch (matrix.group_size) {
    case 32:
      return OneVector<kBits, 32>::Multiply(matrix, form, y, range);
    case 64:
      return OneVector<kBits, 64>::Multiply(matrix, form, y, range);
    default:
      return OneVector<kBits, 128>::Multiply(matrix, form, y, range);
  }
}

void MultiplyImpl(const MatrixView& matrix, const QuantizedForm& form, size_t count, float* y,
                  RowRange range, uint8_t* memory) {
  switch (matrix.bits) {
    case 4:
      return MultiplyBits<4>(matrix, form, count, y, range, memory);
    case 6:
      return MultiplyBits<6>(matrix, form, count, y, range, memory);
    default:
      return MultiplyBits<8>(matrix, form, count, y, range, memory);
  }
}

const char* InstructionSetImpl() { return hwy::TargetName(HWY_TARGET); }

}  // namespace HWY_NAMESPACE
}  // namespace macrame::runtime::kernels
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace macrame::runtime::kernels {
namespace {

HWY_EXPORT(MultiplyImpl);
HWY_EXPORT(InstructionSetImpl);

constexpr size_t kRowUnit = 32;  // rows are cut into parts at multiples of it

}  // namespace

void MultiplyTransposed(ThreadPool& pool, const MatrixView& matrix, Activations& x, float* y,
                        Scratch& scratch) {
  if (x.count() == 0 || matrix.rows == 0) return;
  scratch.panels.resize(std::max(scratch.panels.size(), static_cast<size_t>(pool.threads())));
  if (matrix.bits == 0) return MultiplyDense(pool, matrix, x, y, scratch.panels);
  const QuantizedForm& form = x.FormFor(pool, matrix);
  pool.Run([&](int worker, int workers) {
    const RowRange range = RowsOfWorker(matrix.rows, kRowUnit, worker, workers);
    if (range.begin == range.end) return;
    uint8_t* memory = x.count() == 1
                          ? nullptr
                          : scratch.panels[static_cast<size_t>(worker)].Reserve(kPanelBytesMax);
    HWY_DYNAMIC_DISPATCH(MultiplyImpl)(matrix, form, x.count(), y, range, memory);
  });
}

const char* InstructionSet() { return HWY_DYNAMIC_DISPATCH(InstructionSetImpl)(); }

}  // namespace macrame::runtime::kernels
#endif  // HWY_ONCE
