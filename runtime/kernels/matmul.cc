#include "runtime/kernels/matmul.h"

#include <algorithm>
#include <cstring>

#include "runtime/kernels/amx.h"
#include "runtime/kernels/dense.h"
#include "runtime/kernels/highway_targets.h"
#include "runtime/kernels/narrow_weights.h"
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "runtime/kernels/matmul.cc"
#include "hwy/foreach_target.h"  // compiles this file once for each instruction set
#include "hwy/highway.h"
#include "runtime/kernels/integer_dots.inc"

HWY_BEFORE_NAMESPACE();
namespace macrame::runtime::kernels {
namespace HWY_NAMESPACE {

// A group's sum as if its bytes of weights were not kOffset larger than the weights.
template <int kOffset>
HWY_INLINE VI32 WithoutOffset(VI32 total, const QuantizedForm& form, size_t index) {
  if constexpr (kOffset != 0) {
    return hn::Sub(total, hn::Set(I32(), kOffset * form.integer_sums[index]));
  } else {
    return total;
  }
}

// Asks for `bytes` from `address` on, into the second level cache: lines of the first wait for few
// misses at a time, too few for a memory that is far away. Memory behind a matrix is never touched.
HWY_INLINE void PrefetchLines(uintptr_t address, size_t bytes) {
  constexpr size_t kLine = 64;
  MACRAME_UNROLL
  for (size_t i = 0; i < bytes; i += kLine) {
    __builtin_prefetch(reinterpret_cast<const uint8_t*>(address + i), 0, 2);
  }
}

// kLanes rows, and where the rows behind them begin. While a part of a row is computed, as much of
// each of those is asked for, line after line, as if they were one.
struct Rows {
  HWY_INLINE Rows(const uint8_t* const* rows, size_t row_bytes)
      : begin(rows),
        bytes(row_bytes),
        next(reinterpret_cast<uintptr_t>(rows[0]) + kLanes * row_bytes) {}
  HWY_INLINE void PrefetchNext(size_t offset, size_t size) const {
    PrefetchLines(next + kLanes * offset, kLanes * size);
  }
  const uint8_t* const* begin;
  size_t bytes;
  uintptr_t next;
};

// --- One vector: each weight is read once and multiplied as it comes.

#if MACRAME_HAS_WIDE_VNNI
// A run of four or eight bit weights against one vector, row by row: columns stay where they are in
// a row's 64 bytes, and sums are turned so that each row has its lane.
template <int kBits, Packing kPacking>
struct RowWiseRun {
  // One plane of a run's activations: with 4 bits the even columns and the odd ones.
  struct Plane {
    HWY_INLINE explicit Plane(const int8_t* bytes) {
      const __m512i first = _mm512_loadu_si512(bytes);
      if constexpr (kBits == 8) {
        even = odd = first;
        return;
      }
      const __m512i second = _mm512_loadu_si512(bytes + 64);
      const __m512i order =
          _mm512_setr_epi32(0, 2, 4, 6, 8, 10, 12, 14, 16, 18, 20, 22, 24, 26, 28, 30);
      even = _mm512_permutex2var_epi32(first, order, second);
      odd = _mm512_permutex2var_epi32(first, _mm512_add_epi32(order, _mm512_set1_epi32(1)), second);
    }
    __m512i even;
    __m512i odd;
  };

  // A row's products, added up in each lane.
  HWY_INLINE static __m512i RowSums(const uint8_t* weights, const Plane& high, const Plane& low) {
    const __m512i packed = _mm512_loadu_si512(weights);
    const __m512i zero = _mm512_setzero_si512();
    if constexpr (kBits == 8) {
      const __m512i sum = _mm512_slli_epi32(_mm512_dpbusd_epi32(zero, packed, high.even), 8);
      return _mm512_dpbusd_epi32(sum, packed, low.even);
    }
    const __m512i mask = _mm512_set1_epi8(0x0f);
    const __m512i even = Numbers(_mm512_and_si512(packed, mask));
    const __m512i odd = Numbers(_mm512_and_si512(_mm512_srli_epi16(packed, 4), mask));
    __m512i sum = _mm512_dpbusd_epi32(zero, even, high.even);
    sum = _mm512_slli_epi32(_mm512_dpbusd_epi32(sum, odd, high.odd), 8);
    sum = _mm512_dpbusd_epi32(sum, even, low.even);
    return _mm512_dpbusd_epi32(sum, odd, low.odd);
  }

  HWY_INLINE static __m512i Numbers(__m512i bytes) {
    if constexpr (kPacking == Packing::kMxfp4) return DoublesOfMxfp4(VI32{bytes}).raw;
    return bytes;
  }

  // In each 16 bytes: [a, b] of the two halves that these hold, added.
  HWY_INLINE static __m512i AddWords(__m512i a, __m512i b) {
    return _mm512_add_epi32(_mm512_unpacklo_epi32(a, b), _mm512_unpackhi_epi32(a, b));
  }
  HWY_INLINE static __m512i AddPairs(__m512i a, __m512i b) {
    return _mm512_add_epi32(_mm512_unpacklo_epi64(a, b), _mm512_unpackhi_epi64(a, b));
  }
  HWY_INLINE static __m512i AddQuarters(__m512i a, __m512i b) {
    return _mm512_add_epi32(_mm512_shuffle_i32x4(a, b, 0x88), _mm512_shuffle_i32x4(a, b, 0xdd));
  }

  // Of four rows: their sums over each quarter of a run.
  HWY_INLINE static __m512i SumsOfFour(const uint8_t* const* rows, size_t offset, const Plane& high,
                                       const Plane& low) {
    __m512i sums[4];
    MACRAME_UNROLL
    for (size_t i = 0; i < 4; ++i) sums[i] = RowSums(rows[i] + offset, high, low);
    return AddPairs(AddWords(sums[0], sums[1]), AddWords(sums[2], sums[3]));
  }

  // totals[i] += the run's i-th part of kParts, a row in each lane. `fours`: the sums of rows 4 i
  // to 4 i + 3.
  template <size_t kParts>
  HWY_INLINE static void AddTo(const __m512i* fours, VI32* HWY_RESTRICT totals) {
    if constexpr (kParts == 4) {
      __m512i quarters[4];
      TransposeQuarters(fours, quarters);
      MACRAME_UNROLL
      for (size_t i = 0; i < 4; ++i) totals[i] = hn::Add(totals[i], VI32{quarters[i]});
    } else {
      const __m512i a = AddQuarters(fours[0], fours[1]);  // halves of rows 0 to 7
      const __m512i b = AddQuarters(fours[2], fours[3]);
      if constexpr (kParts == 2) {
        totals[0] = hn::Add(totals[0], VI32{_mm512_shuffle_i32x4(a, b, 0x88)});
        totals[1] = hn::Add(totals[1], VI32{_mm512_shuffle_i32x4(a, b, 0xdd)});
      } else {
        totals[0] = hn::Add(totals[0], VI32{AddQuarters(a, b)});
      }
    }
  }

  HWY_INLINE static void TransposeQuarters(const __m512i* in, __m512i* HWY_RESTRICT out) {
    const __m512i a = _mm512_shuffle_i32x4(in[0], in[1], 0x44);
    const __m512i b = _mm512_shuffle_i32x4(in[0], in[1], 0xee);
    const __m512i c = _mm512_shuffle_i32x4(in[2], in[3], 0x44);
    const __m512i d = _mm512_shuffle_i32x4(in[2], in[3], 0xee);
    out[0] = _mm512_shuffle_i32x4(a, c, 0x88);
    out[1] = _mm512_shuffle_i32x4(a, c, 0xdd);
    out[2] = _mm512_shuffle_i32x4(b, d, 0x88);
    out[3] = _mm512_shuffle_i32x4(b, d, 0xdd);
  }
};
#endif

template <class Packed, size_t kGroup>
struct OneVector {
  static constexpr int kBits = Packed::kBits;
  static constexpr size_t kRunsOfGroup = std::max<size_t>(1, kGroup / Packed::kColumns);
  static constexpr size_t kGroupsOfRun = std::max<size_t>(1, Packed::kColumns / kGroup);

  // Adds a run to the sums of its groups, or of the group that it is a part of.
  HWY_INLINE static void AddRun(const uint8_t* const* rows, size_t offset, const int8_t* high,
                                const int8_t* low, VI32* HWY_RESTRICT totals) {
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
  // `offset`.
  HWY_INLINE static VF32 Step(const uint8_t* const* rows, size_t offset, const QuantizedForm& form,
                              size_t g, size_t groups, const float* scales, const float* biases,
                              VF32 y) {
    constexpr size_t kBytesOfColumn = kByteDots ? 1 : 2;
    VI32 totals[kGroupsOfRun];
    MACRAME_UNROLL
    for (size_t i = 0; i < kGroupsOfRun; ++i) totals[i] = hn::Zero(I32());
    MACRAME_UNROLL
    for (size_t run = 0; run < kRunsOfGroup; ++run) {
      const size_t place = (g * kGroup + run * Packed::kColumns) * kBytesOfColumn;
      AddRun(rows, offset + run * Packed::kBytes, form.high + place, form.low + place, totals);
    }
    return AddGroups(totals, form, g, groups, scales, biases, y);
  }

  HWY_INLINE static VF32 AddGroups(const VI32* totals, const QuantizedForm& form, size_t g,
                                   size_t groups, const float* scales, const float* biases,
                                   VF32 y) {
    const F32 d;
    MACRAME_UNROLL
    for (size_t i = 0; i < kGroupsOfRun; ++i) {
      if (g + i >= groups) break;
      y = AddGroup(y, WithoutOffset<Packed::kOffset>(totals[i], form, g + i), form.scales[g + i],
                   form.sums[g + i], hn::LoadU(d, scales + i * kLanes),
                   hn::LoadU(d, biases + i * kLanes));
    }
    return y;
  }

  // Groups [g, g + kScaleBlock), whose scales and biases are given.
  HWY_INLINE static VF32 AddScaleBlock(const Rows& rows, const QuantizedForm& form, size_t g,
                                       size_t groups, const float* scales, const float* biases,
                                       VF32 sum) {
    constexpr size_t kStepBytes = kGroupsOfRun * kGroup * kBits / 8;
    const size_t begin = g * kGroup * kBits / 8;
#if MACRAME_HAS_WIDE_VNNI
    if constexpr (kBits != 6) {
      if (begin + kScaleBlock * kGroup * kBits / 8 <= rows.bytes) {
        return AddRowWise(rows, begin, form, g, groups, scales, biases, sum);
      }
    }
#endif
    for (size_t i = 0; i < kScaleBlock && g + i < groups; i += kGroupsOfRun) {
      const size_t offset = begin + i * kGroup * kBits / 8;
      const float* s = scales + i * kLanes;
      const float* b = biases + i * kLanes;
      rows.PrefetchNext(offset, kStepBytes);
      if (offset + kStepBytes <= rows.bytes) {
        sum = Step(rows.begin, offset, form, g + i, groups, s, b, sum);
      } else {
        const StagedRows staged(rows.begin, offset, rows.bytes - offset);
        sum = Step(staged.rows(), 0, form, g + i, groups, s, b, sum);
      }
    }
    return sum;
  }

#if MACRAME_HAS_WIDE_VNNI
  // Four rows after another through all runs of a scale block: rows that stand a multiple of 4096
  // bytes apart share the places of a cache that few of them fit into.
  HWY_INLINE static VF32 AddRowWise(const Rows& rows, size_t begin, const QuantizedForm& form,
                                    size_t g, size_t groups, const float* scales,
                                    const float* biases, VF32 sum) {
    using Wise = RowWiseRun<kBits, Packed::kPacking>;
    constexpr size_t kRuns = kScaleBlock * kGroup / Packed::kColumns;
    __m512i fours[kRuns][4];
    for (size_t i = 0; i < 4; ++i) {
      for (size_t run = 0; run < kRuns; ++run) {
        const size_t place = g * kGroup + run * Packed::kColumns;
        const typename Wise::Plane high(form.high + place);
        const typename Wise::Plane low(form.low + place);
        const size_t done = (i * kRuns + run) * 4 * Packed::kBytes;
        PrefetchLines(rows.next + kLanes * begin + done, 4 * Packed::kBytes);
        fours[run][i] =
            Wise::SumsOfFour(rows.begin + 4 * i, begin + run * Packed::kBytes, high, low);
      }
    }
    MACRAME_UNROLL
    for (size_t step = 0; step < kRuns / kRunsOfGroup; ++step) {
      VI32 totals[kGroupsOfRun];
      MACRAME_UNROLL
      for (size_t i = 0; i < kGroupsOfRun; ++i) totals[i] = hn::Zero(I32());
      MACRAME_UNROLL
      for (size_t run = 0; run < kRunsOfGroup; ++run) {
        Wise::template AddTo<kGroupsOfRun>(fours[step * kRunsOfGroup + run], totals);
      }
      const size_t first = step * kGroupsOfRun;
      sum = AddGroups(totals, form, g + first, groups, scales + first * kLanes,
                      biases + first * kLanes, sum);
    }
    return sum;
  }
#endif

  static void Multiply(const MatrixView& matrix, const QuantizedForm& form, float* y,
                       RowRange range) {
    const F32 d;
    const size_t groups = matrix.columns / kGroup;
    const size_t row_bytes = WeightRowBytes(matrix);
    const size_t scale_bytes = ScaleRowBytes(matrix);
    HWY_ALIGN float scales[kScaleBlock * kLanes];
    HWY_ALIGN float biases[kScaleBlock * kLanes];
    for (size_t row = range.begin; row < range.end; row += kLanes) {
      const RowBlock block(matrix, row);
      const Rows weights(block.weights, row_bytes);
      const Rows row_scales(block.scales, scale_bytes);
      const Rows row_biases(block.biases, scale_bytes);
      auto sum = hn::Zero(d);
      for (size_t g = 0; g < groups; g += kScaleBlock) {
        LoadScalesAndBiases<Packed::kPacking>(block, matrix.type, g, groups, scales, biases);
        if constexpr (Packed::kPacking == Packing::kMxfp4) {
          row_scales.PrefetchNext(g, kScaleBlock);
        } else {
          const size_t offset = g * ScalarBytes(matrix.type);
          row_scales.PrefetchNext(offset, kScaleBlock * 2);
          row_biases.PrefetchNext(offset, kScaleBlock * 2);
        }
        sum = AddScaleBlock(weights, form, g, groups, scales, biases, sum);
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
  // The same columns of as many rows behind these.
  uintptr_t next;
  size_t row_bytes;
  size_t group_bytes;
};

// A group's part of the rows behind a panel, asked for while the group is multiplied: asked for at
// once, so many lines would wait for each other.
HWY_INLINE void PrefetchGroupBehind(const Panel& panel, size_t g) {
  constexpr size_t kRows = kPanelBlocks * kLanes;
  constexpr size_t kLine = 64;
  // A group may begin or end within a line: each line is asked for with the group it begins in.
  const size_t begin = (g * panel.group_bytes + kLine - 1) / kLine * kLine;
  for (size_t offset = begin; offset < (g + 1) * panel.group_bytes; offset += kLine) {
    for (size_t row = 0; row < kRows; ++row) {
      PrefetchLines(panel.next + row * panel.row_bytes + offset, 1);
    }
  }
}

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

template <class Packed>
HWY_INLINE void FillRun(const uint8_t* const* rows, size_t offset, size_t columns, uint8_t* out) {
  const I32 d;
  VI32 words[Packed::kWords];
  Packed::Load(rows, offset, words);
  MACRAME_UNROLL
  for (size_t i = 0; i < Packed::kColumns / 4; ++i) {
    if (4 * i >= columns) break;
    hn::Store(Packed::Weights(words, i), d, reinterpret_cast<int32_t*>(out + i * kLanes * 4));
  }
}

// Rows from `row` on, columns [column, column + columns).
template <class Packed>
HWY_NOINLINE void FillPanel(const MatrixView& matrix, size_t row, size_t column, size_t columns,
                            Panel& panel) {
  constexpr int kBits = Packed::kBits;
  const auto group = static_cast<size_t>(matrix.group_size);
  const size_t groups = matrix.columns / group;
  const size_t row_bytes = WeightRowBytes(matrix);
  panel.first_group = column / group;
  panel.groups = columns / group;
  panel.row_bytes = row_bytes;
  panel.group_bytes = group * kBits / 8;
  panel.next = reinterpret_cast<uintptr_t>(matrix.weights) +
               (row + kPanelBlocks * kLanes) * row_bytes + column * kBits / 8;
  for (size_t b = 0; b < kPanelBlocks; ++b) {
    const RowBlock block(matrix, row + b * kLanes);
    for (size_t g = 0; g < panel.groups; g += kScaleBlock) {
      LoadScalesAndBiases<Packed::kPacking>(block, matrix.type, panel.first_group + g, groups,
                                            panel.scales[b] + g * kLanes,
                                            panel.biases[b] + g * kLanes);
    }
    for (size_t c = 0; c < columns; c += Packed::kColumns) {
      const size_t offset = (column + c) * kBits / 8;
      const size_t left = columns - c;
      uint8_t* out = panel.weights[b] + c * kLanes;
      if (left >= Packed::kColumns) {
        FillRun<Packed>(block.weights, offset, left, out);
      } else {
        const StagedRows staged(block.weights, offset, left * kBits / 8);
        FillRun<Packed>(staged.rows(), 0, left, out);
      }
    }
  }
}

// Products of a panel with kCount vectors from `m` on, added to sums[vector][block][lane].
template <int kOffset, size_t kCount>
HWY_NOINLINE void MultiplyPanel(const Panel& panel, const QuantizedForm& form, size_t m,
                                size_t all_groups, float* HWY_RESTRICT sums) {
  const F32 d;
  const I32 di;
  const size_t group = form.group_size;
  for (size_t g = 0; g < panel.groups; ++g) {
    GroupSum dots[kCount][kPanelBlocks];
    if (m == 0) PrefetchGroupBehind(panel, g);
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
        hn::Store(AddGroup(hn::Load(d, sum), WithoutOffset<kOffset>(Total(dots[i][b]), form, index),
                           form.scales[index], form.sums[index],
                           hn::Load(d, panel.scales[b] + g * kLanes),
                           hn::Load(d, panel.biases[b] + g * kLanes)),
                  d, sum);
      }
    }
  }
}

template <int kOffset>
HWY_INLINE void MultiplyPanelByUpTo4(const Panel& panel, const QuantizedForm& form, size_t m,
                                     size_t count, size_t all_groups, float* sums) {
  switch (count) {
    case 1:
      return MultiplyPanel<kOffset, 1>(panel, form, m, all_groups, sums);
    case 2:
      return MultiplyPanel<kOffset, 2>(panel, form, m, all_groups, sums);
    case 3:
      return MultiplyPanel<kOffset, 3>(panel, form, m, all_groups, sums);
    default:
      return MultiplyPanel<kOffset, 4>(panel, form, m, all_groups, sums);
  }
}

#if MACRAME_HAS_WIDE_VNNI
// From so many vectors on, tiles are faster.
inline constexpr size_t kAmxVectorsMin = 4;

template <int kOffset>
HWY_INLINE void MultiplyPanelByTiles(const Panel& panel, const QuantizedForm& form, size_t m,
                                     size_t count, size_t all_groups, float* sums) {
  static_assert(kLanes == kAmxRows && kPanelBlocks == 2);
  const AmxPanel tiles = {{panel.weights[0], panel.weights[1]},
                          {panel.scales[0], panel.scales[1]},
                          {panel.biases[0], panel.biases[1]},
                          panel.first_group,
                          panel.groups,
                          all_groups,
                          kOffset};
  for (size_t g = 0; m == 0 && g < panel.groups; ++g) PrefetchGroupBehind(panel, g);
  MultiplyPanelAmx(tiles, form, m, count, sums);
}
#endif

// All vectors against one panel, `at_once` together.
template <int kOffset>
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
      MultiplyPanelByTiles<kOffset>(panel, form, m, vectors, all_groups, sums);
    } else  // NOLINT
#endif
    {
      MultiplyPanelByUpTo4<kOffset>(panel, form, m, vectors, all_groups, sums);
    }
    for (size_t i = 0; i < vectors; ++i) {
      std::memcpy(y + (m + i) * y_stride, sums + i * kRows, rows * sizeof(float));
    }
  }
}

template <class Packed>
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
        FillPanel<Packed>(matrix, row, column, std::min(kPanelColumns, end - column), panel);
        PassVectors<Packed::kOffset>(panel, form, count, at_once, all_groups, y + row, matrix.rows,
                                     rows);
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
  using Packed = Run<kBits>;
  if (count > 1) return MultiplySeveral<Packed>(matrix, form, count, y, range, memory);
  switch (matrix.group_size) {
    case 32:
      return OneVector<Packed, 32>::Multiply(matrix, form, y, range);
    case 64:
      return OneVector<Packed, 64>::Multiply(matrix, form, y, range);
    default:
      return OneVector<Packed, 128>::Multiply(matrix, form, y, range);
  }
}

void MultiplyMxfp4(const MatrixView& matrix, const QuantizedForm& form, size_t count, float* y,
                   RowRange range, uint8_t* memory) {
  using Packed = Run<4, Packing::kMxfp4>;
  if (count > 1) return MultiplySeveral<Packed>(matrix, form, count, y, range, memory);
  OneVector<Packed, 32>::Multiply(matrix, form, y, range);
}

void MultiplyImpl(const MatrixView& matrix, const QuantizedForm& form, size_t count, float* y,
                  RowRange range, uint8_t* memory) {
  if (matrix.packing == Packing::kMxfp4) {
    return MultiplyMxfp4(matrix, form, count, y, range, memory);
  }
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

// A worker's rows of a matrix of 2, 3 or 5 bits, kRowUnit at a time.
void MultiplyNarrow(const MatrixView& matrix, const QuantizedForm& form, size_t count, float* y,
                    RowRange range, size_t worker, Scratch& scratch) {
  const size_t groups = matrix.columns / static_cast<size_t>(matrix.group_size);
  const auto part_of = [&](const void* numbers, size_t row) {
    return static_cast<const std::byte*>(numbers) + row * groups * ScalarBytes(matrix.type);
  };
  MatrixView some = matrix;
  some.bits = LoopBits(matrix.bits);
  uint8_t* widened = scratch.widened[worker].Reserve(kRowUnit * WeightRowBytes(some));
  auto* given =
      reinterpret_cast<float*>(scratch.given[worker].Reserve(kRowUnit * count * sizeof(float)));
  uint8_t* memory = count == 1 ? nullptr : scratch.panels[worker].Reserve(kPanelBytesMax);
  some.weights = widened;
  for (size_t row = range.begin; row < range.end; row += some.rows) {
    some.rows = std::min(kRowUnit, range.end - row);
    WidenWeights(matrix, row, row + some.rows, widened);
    some.scales = part_of(matrix.scales, row);
    some.biases = part_of(matrix.biases, row);
    HWY_DYNAMIC_DISPATCH(MultiplyImpl)(some, form, count, given, {0, some.rows}, memory);
    for (size_t i = 0; i < count; ++i) {
      std::copy_n(given + i * some.rows, some.rows, y + i * matrix.rows + row);
    }
  }
}

}  // namespace

void MultiplyTransposed(ThreadPool& pool, const MatrixView& matrix, Activations& x, float* y,
                        Scratch& scratch) {
  if (x.count() == 0 || matrix.rows == 0) return;
  scratch.panels.resize(std::max(scratch.panels.size(), static_cast<size_t>(pool.threads())));
  if (matrix.bits == 0 || IsPackedFloats(matrix)) {
    return MultiplyDense(pool, matrix, x, y, scratch.panels);
  }
  const QuantizedForm& form = x.FormFor(pool, matrix);
  const bool narrow = LoopBits(matrix.bits) != matrix.bits;
  if (narrow) {
    scratch.widened.resize(scratch.panels.size());
    scratch.given.resize(scratch.panels.size());
  }
  pool.Run([&](int worker, int workers) {
    const RowRange range = RowsOfWorker(matrix.rows, kRowUnit, worker, workers);
    if (range.begin == range.end) return;
    if (narrow) {
      return MultiplyNarrow(matrix, form, x.count(), y, range, static_cast<size_t>(worker),
                            scratch);
    }
    uint8_t* memory = x.count() == 1
                          ? nullptr
                          : scratch.panels[static_cast<size_t>(worker)].Reserve(kPanelBytesMax);
    HWY_DYNAMIC_DISPATCH(MultiplyImpl)(matrix, form, x.count(), y, range, memory);
  });
}

const char* InstructionSet() { return HWY_DYNAMIC_DISPATCH(InstructionSetImpl)(); }

}  // namespace macrame::runtime::kernels
#endif  // HWY_ONCE
