#include "runtime/kernels/attention.h"

#include <atomic>
#include <cmath>
#include <cstring>
#include <limits>
#include <memory>
#include <new>
#include <vector>

#include "runtime/kernels/attention_work.h"
#include "runtime/kernels/highway_float_targets.h"
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "runtime/kernels/attention.cc"
#include "hwy/cache_control.h"
#include "hwy/foreach_target.h"  // compiles this file once for each instruction set
#include "hwy/highway.h"

HWY_BEFORE_NAMESPACE();
namespace macrame::runtime::kernels {
namespace HWY_NAMESPACE {
namespace {

namespace hn = hwy::HWY_NAMESPACE;
using F32 = hn::CappedTag<float, 16>;
using VF32 = hn::Vec<F32>;
constexpr size_t kLanes = hn::MaxLanes(F32());
constexpr float kLowest = -std::numeric_limits<float>::infinity();

// Sums that fit the registers: rows of scores x vectors of keys, rows of values x vectors of them.
constexpr bool kManyRegisters = kLanes == 16 || HWY_ARCH_ARM_A64;
constexpr size_t kScoreRows = kLanes == 16 ? 8 : kManyRegisters || kLanes == 8 ? 4 : 2;
constexpr size_t kKeyVectors = kManyRegisters && kLanes == 4 ? 4 : 2;
constexpr size_t kValueRows = kManyRegisters || kLanes == 8 ? 4 : 2;
constexpr size_t kValueVectors = kManyRegisters ? 4 : 2;
// For more rows than this, keys and values of 16 bits are widened once for all of them. Those of 8
// bits never are: it would be slower up to 32 rows and 6 to 10 % faster for a tile of 64 (seen on a
// Zen 4, AVX-512 and AVX2).
constexpr size_t kRowsInPlace = 8;

#include "runtime/kernels/vector_exp.inc"

#include "runtime/kernels/kv_numbers.inc"

// One tile's work, as its kernels need it.
struct Job {
  const AttentionWork& work;
  const AttentionTile& tile;
  const AttentionMemory& memory;

  const AttentionSegment& segment() const { return work.segments[tile.segment]; }
  size_t head_dim() const { return work.view.shape.head_dim; }
  size_t value_stride() const { return ValueStride(ValueDim(work.view.shape)); }
  size_t PositionOf(size_t row) const {
    return segment().position + (tile.row_begin + row) / work.group();
  }
};

// The keys and values of a unit, block by block.
struct Unit {
  size_t begin;        // position of its first key
  size_t first_block;  // blocks before it are seen by no row
  size_t keys_end;     // keys that the last row sees, at most kUnitTokens
  // One more than there are blocks: what comes after the unit, fetched ahead.
  const std::byte* keys[kUnitTokens / kBlockTokens + 1];
  const std::byte* values[kUnitTokens / kBlockTokens + 1];
  const float* scales;  // of kInt8 values, [group][key of the unit]

  size_t blocks_end() const { return (keys_end + kBlockTokens - 1) / kBlockTokens; }
};

// Asks for what a loop will need a block later: memory is too far for a processor to see that a
// block's keys are followed by those of the next one.
template <KvType kType>
HWY_INLINE void FetchAhead(const std::byte* data, size_t index, size_t count) {
  constexpr size_t kLineBytes = 64;
  const size_t size = KvScalarBytes(kType);
  for (size_t i = 0; i < count * size; i += kLineBytes) hwy::Prefetch(data + index * size + i);
}

// scores[r][k] = queries[r] · key k of a block, for kRows rows.
template <KvType kType, size_t kRows>
HWY_INLINE void ScoreRows(const float* queries, const std::byte* keys, const std::byte* next_keys,
                          size_t head_dim, float* scores) {
  constexpr bool kScaled = kType == KvType::kInt8;
  const size_t group = kScaled ? kKvGroupDims : head_dim;
  const F32 d;
  for (size_t key = 0; key < kBlockTokens; key += kKeyVectors * kLanes) {
    VF32 sums[kRows][kKeyVectors];
    for (size_t r = 0; r < kRows; ++r) {
      for (size_t v = 0; v < kKeyVectors; ++v) sums[r][v] = hn::Zero(d);
    }
    for (size_t begin = 0; begin < head_dim; begin += group) {
      VF32 scales[kKeyVectors];
      if constexpr (kScaled) {
        for (size_t v = 0; v < kKeyVectors; ++v) {
          scales[v] = LoadScales(keys, head_dim, begin / group, key + v * kLanes);
        }
      }
      for (size_t i = begin; i < std::min(begin + group, head_dim); ++i) {
        FetchAhead<kType>(next_keys, i * kBlockTokens + key, kKeyVectors * kLanes);
        VF32 column[kKeyVectors];
        for (size_t v = 0; v < kKeyVectors; ++v) {
          column[v] = LoadWide<kType>(keys, i * kBlockTokens + key + v * kLanes);
          if constexpr (kScaled) column[v] = hn::Mul(column[v], scales[v]);
        }
        for (size_t r = 0; r < kRows; ++r) {
          const auto query = hn::Set(d, queries[r * head_dim + i]);
          for (size_t v = 0; v < kKeyVectors; ++v) {
            sums[r][v] = hn::MulAdd(query, column[v], sums[r][v]);
          }
        }
      }
    }
    for (size_t r = 0; r < kRows; ++r) {
      for (size_t v = 0; v < kKeyVectors; ++v) {
        hn::StoreU(sums[r][v], d, scores + r * kUnitTokens + key + v * kLanes);
      }
    }
  }
}

template <KvType kType>
void Score(const Job& job, const Unit& unit) {
  const size_t rows = job.tile.rows();
  const size_t head_dim = job.head_dim();
  for (size_t b = unit.first_block; b < unit.blocks_end(); ++b) {
    const float* queries = job.memory.queries;
    const std::byte* keys = unit.keys[b];
    const std::byte* next = unit.keys[b + 1];
    float* scores = job.memory.scores + b * kBlockTokens;
    size_t row = 0;
    const auto step = [&](size_t count) {
      row += count, queries += count * head_dim, scores += count * kUnitTokens;
    };
    while (row + kScoreRows <= rows) {
      ScoreRows<kType, kScoreRows>(queries, keys, next, head_dim, scores);
      step(kScoreRows);
    }
    if constexpr (kScoreRows > 4) {
      while (row + 4 <= rows) {
        ScoreRows<kType, 4>(queries, keys, next, head_dim, scores);
        step(4);
      }
    }
    if constexpr (kScoreRows > 2) {
      while (row + 2 <= rows) {
        ScoreRows<kType, 2>(queries, keys, next, head_dim, scores);
        step(2);
      }
    }
    while (row < rows) {
      ScoreRows<kType, 1>(queries, keys, next, head_dim, scores);
      step(1);
    }
  }
}

// One row's scores of a unit become weights against the largest score so far; `sums` are brought to
// it. A row that sees no key of the unit keeps its sums and gives no weight.
void Weigh(const Job& job, const Unit& unit, size_t row, float* scores, float* sums) {
  const F32 d;
  const size_t stride = job.value_stride();
  const size_t begin = unit.first_block * kBlockTokens;
  const size_t end = unit.blocks_end() * kBlockTokens;
  const size_t position = job.PositionOf(row);
  const size_t lowest = job.work.Lowest(position);
  const size_t seen_begin = lowest > unit.begin ? lowest - unit.begin : 0;
  const size_t seen_end = position < unit.begin ? 0 : position + 1 - unit.begin;
  if (seen_begin >= seen_end || seen_begin >= kUnitTokens) {
    std::fill(scores + begin, scores + end, 0.0F);
    return;
  }
  if (seen_begin > begin) std::fill(scores + begin, scores + seen_begin, kLowest);
  if (seen_end < end) std::fill(scores + seen_end, scores + end, kLowest);
  auto largest = hn::Set(d, sums[stride]);
  for (size_t k = begin; k < end; k += kLanes) {
    largest = hn::Max(largest, hn::LoadU(d, scores + k));
  }
  largest = hn::MaxOfLanes(d, largest);
  auto even = hn::Zero(d), odd = hn::Zero(d);
  for (size_t k = begin; k < end; k += 2 * kLanes) {
    const auto first = Exp(hn::Sub(hn::LoadU(d, scores + k), largest));
    const auto second = Exp(hn::Sub(hn::LoadU(d, scores + k + kLanes), largest));
    even = hn::Add(even, first), odd = hn::Add(odd, second);
    hn::StoreU(first, d, scores + k);
    hn::StoreU(second, d, scores + k + kLanes);
  }
  const float weights = hn::GetLane(hn::SumOfLanes(d, hn::Add(even, odd)));
  const float now = hn::GetLane(largest);
  if (now != sums[stride]) {
    const auto change = Exp(hn::Sub(hn::Set(d, sums[stride]), largest));
    for (size_t i = 0; i < stride; i += kLanes) {
      hn::StoreU(hn::Mul(hn::LoadU(d, sums + i), change), d, sums + i);
    }
    sums[stride] = now;
    sums[stride + 1] *= hn::GetLane(change);
  }
  sums[stride + 1] += weights;
}

// sums[r] += weights[r] · values of a unit, for kRows rows and kVectors vectors from `column` on.
template <KvType kType, size_t kRows, size_t kVectors>
HWY_INLINE void MixRows(const Unit& unit, const float* weights, size_t stride, size_t column,
                        float* sums) {
  const F32 d;
  const size_t sums_stride = stride + 16;
  VF32 totals[kRows][kVectors];
  for (size_t r = 0; r < kRows; ++r) {
    for (size_t v = 0; v < kVectors; ++v) {
      totals[r][v] = hn::LoadU(d, sums + r * sums_stride + column + v * kLanes);
    }
  }
  for (size_t b = unit.first_block; b < unit.blocks_end(); ++b) {
    const size_t keys = std::min(kBlockTokens, unit.keys_end - b * kBlockTokens);
    const float* block_weights = weights + b * kBlockTokens;
    for (size_t k = 0; k < keys; ++k) {
      FetchAhead<kType>(unit.values[b + 1], k * stride + column, kVectors * kLanes);
      VF32 value[kVectors];
      for (size_t v = 0; v < kVectors; ++v) {
        value[v] = LoadWide<kType>(unit.values[b], k * stride + column + v * kLanes);
        if constexpr (kType == KvType::kInt8) {
          // `column` is a multiple of all these vectors' lanes.
          const size_t group = column / kKvGroupDims + v * kLanes / kKvGroupDims;
          const float* scales = unit.scales + group * kUnitTokens;
          value[v] = hn::Mul(value[v], hn::Set(d, scales[b * kBlockTokens + k]));
        }
      }
      for (size_t r = 0; r < kRows; ++r) {
        const auto weight = hn::Set(d, block_weights[r * kUnitTokens + k]);
        for (size_t v = 0; v < kVectors; ++v) {
          totals[r][v] = hn::MulAdd(weight, value[v], totals[r][v]);
        }
      }
    }
  }
  for (size_t r = 0; r < kRows; ++r) {
    for (size_t v = 0; v < kVectors; ++v) {
      hn::StoreU(totals[r][v], d, sums + r * sums_stride + column + v * kLanes);
    }
  }
}

template <KvType kType, size_t kVectors>
HWY_INLINE void MixColumns(const Unit& unit, const float* weights, size_t rows, size_t stride,
                           size_t column, float* sums) {
  size_t row = 0;
  const auto step = [&](size_t count) {
    row += count, weights += count * kUnitTokens, sums += count * (stride + 16);
  };
  while (row + kValueRows <= rows) {
    MixRows<kType, kValueRows, kVectors>(unit, weights, stride, column, sums);
    step(kValueRows);
  }
  if constexpr (kValueRows > 2) {
    while (row + 2 <= rows) {
      MixRows<kType, 2, kVectors>(unit, weights, stride, column, sums);
      step(2);
    }
  }
  while (row < rows) {
    MixRows<kType, 1, kVectors>(unit, weights, stride, column, sums);
    step(1);
  }
}

// The scales of a unit's values.
void WidenScales(const Job& job, const Unit& unit) {
  const F32 d;
  const size_t stride = job.value_stride();
  for (size_t group = 0; group < KvGroups(job.head_dim()); ++group) {
    for (size_t b = unit.first_block; b < unit.blocks_end(); ++b) {
      float* out = job.memory.scales + group * kUnitTokens + b * kBlockTokens;
      for (size_t i = 0; i < kBlockTokens; i += kLanes) {
        hn::StoreU(LoadScales(unit.values[b], stride, group, i), d, out + i);
      }
    }
  }
}

template <KvType kType>
void RunUnit(const Job& job, const Unit& unit, float* sums) {
  const size_t rows = job.tile.rows();
  const size_t stride = job.value_stride();
  Score<kType>(job, unit);
  for (size_t row = 0; row < rows; ++row) {
    Weigh(job, unit, row, job.memory.scores + row * kUnitTokens, sums + row * (stride + 16));
  }
  if constexpr (kType == KvType::kInt8) WidenScales(job, unit);
  size_t column = 0;
  for (; column + kValueVectors * kLanes <= stride; column += kValueVectors * kLanes) {
    MixColumns<kType, kValueVectors>(unit, job.memory.scores, rows, stride, column, sums);
  }
  for (; column < stride; column += kLanes) {
    MixColumns<kType, 1>(unit, job.memory.scores, rows, stride, column, sums);
  }
}

// The same unit in float32.
template <KvType kType>
Unit Widen(const Job& job, Unit unit) {
  const F32 d;
  const size_t key_count = job.head_dim() * kBlockTokens;
  const size_t value_count = job.value_stride() * kBlockTokens;
  for (size_t b = unit.first_block; b < unit.blocks_end(); ++b) {
    float* keys = job.memory.keys + b * key_count;
    float* values = job.memory.values + b * value_count;
    for (size_t i = 0; i < key_count; i += kLanes) {
      hn::StoreU(LoadWide<kType>(unit.keys[b], i), d, keys + i);
    }
    for (size_t i = 0; i < value_count; i += kLanes) {
      hn::StoreU(LoadWide<kType>(unit.values[b], i), d, values + i);
    }
    unit.keys[b] = reinterpret_cast<const std::byte*>(keys);
    unit.values[b] = reinterpret_cast<const std::byte*>(values);
  }
  unit.keys[unit.blocks_end()] = unit.keys[unit.first_block];
  unit.values[unit.blocks_end()] = unit.values[unit.first_block];
  return unit;
}

// A latent cache's unit in float32, as keys and values of its own.
template <KvType kType>
Unit WidenLatent(const Job& job, Unit unit) {
  const F32 d;
  const size_t head_dim = job.head_dim(), stride = ValueStride(job.work.view.shape.row_dim());
  const size_t value_stride = job.value_stride();
  HWY_ALIGN float lanes[kLanes];
  for (size_t b = unit.first_block; b < unit.blocks_end(); ++b) {
    float* keys = job.memory.keys + b * head_dim * kBlockTokens;
    float* values = job.memory.values + b * value_stride * kBlockTokens;
    const std::byte* stored = unit.keys[b];
    for (size_t i = 0; i < ValueStride(head_dim); i += kLanes) {
      for (size_t k = 0; k < kBlockTokens; ++k) {
        auto wide = LoadWide<kType>(stored, k * stride + i);
        if constexpr (kType == KvType::kInt8) {
          wide = hn::Mul(wide, hn::Set(d, LoadScale(stored, stride, i / kKvGroupDims, k)));
        }
        if (i < value_stride) hn::StoreU(wide, d, values + k * value_stride + i);
        hn::Store(wide, d, lanes);
        const size_t dims = std::min(kLanes, head_dim - std::min(i, head_dim));
        for (size_t j = 0; j < dims; ++j) keys[(i + j) * kBlockTokens + k] = lanes[j];
      }
    }
    unit.keys[b] = reinterpret_cast<const std::byte*>(keys);
    unit.values[b] = reinterpret_cast<const std::byte*>(values);
  }
  unit.keys[unit.blocks_end()] = unit.keys[unit.first_block];
  unit.values[unit.blocks_end()] = unit.values[unit.first_block];
  return unit;
}

template <KvType kType>
void RunUnitAs(const Job& job, const Unit& unit, float* sums) {
  if (job.work.view.shape.latent_dim > 0) {
    return RunUnit<KvType::kFloat32>(job, WidenLatent<kType>(job, unit), sums);
  }
  constexpr bool kWidens = kType == KvType::kFloat16 || kType == KvType::kBfloat16;
  if constexpr (kWidens) {
    if (job.tile.rows() > kRowsInPlace) {
      return RunUnit<KvType::kFloat32>(job, Widen<kType>(job, unit), sums);
    }
  }
  RunUnit<kType>(job, unit, sums);
}

// sums = the rows' sums over one range of keys.
void RunRange(const Job& job, size_t range, float* sums) {
  const KvView& view = job.work.view;
  const size_t rows = job.tile.rows();
  const size_t stride = job.value_stride();
  std::fill_n(sums, rows * (stride + 16), 0.0F);
  for (size_t row = 0; row < rows; ++row) sums[row * (stride + 16) + stride] = kLowest;
  const size_t lowest = job.work.Lowest(job.PositionOf(0));
  const size_t end = job.PositionOf(rows - 1) + 1;
  for (size_t begin = range * kRangeTokens; begin < (range + 1) * kRangeTokens && begin < end;
       begin += kUnitTokens) {
    if (begin + kUnitTokens <= lowest) continue;
    Unit unit;
    unit.begin = begin;
    unit.scales = job.memory.scales;
    unit.first_block = lowest > begin ? (lowest - begin) / kBlockTokens : 0;
    unit.keys_end = std::min(kUnitTokens, end - begin);
    const size_t last = (end - 1) / kBlockTokens;
    for (size_t b = unit.first_block; b <= unit.blocks_end(); ++b) {
      const size_t index = std::min(begin / kBlockTokens + b, last);
      const auto id = static_cast<size_t>(job.segment().blocks[index]);
      unit.keys[b] =
          view.data + id * BlockBytes(view.shape) + job.tile.kv_head * PieceBytes(view.shape);
      unit.values[b] = unit.keys[b] + (view.shape.latent_dim > 0 ? 0 : KeysBytes(view.shape));
    }
    if (view.shape.type == KvType::kFloat32) {
      RunUnitAs<KvType::kFloat32>(job, unit, sums);
    } else if (view.shape.type == KvType::kFloat16) {
      RunUnitAs<KvType::kFloat16>(job, unit, sums);
    } else if (view.shape.type == KvType::kInt8) {
      RunUnitAs<KvType::kInt8>(job, unit, sums);
    } else {
      RunUnitAs<KvType::kBfloat16>(job, unit, sums);
    }
  }
}

// total = total and sums together. A row that saw no key in a range leaves the total as it is.
void Join(size_t rows, size_t stride, const float* sums, float* total) {
  const F32 d;
  for (size_t row = 0; row < rows; ++row, sums += stride + 16, total += stride + 16) {
    if (sums[stride] == kLowest) continue;
    const float largest = std::max(sums[stride], total[stride]);
    const auto ours = Exp(hn::Set(d, total[stride] - largest));
    const auto theirs = Exp(hn::Set(d, sums[stride] - largest));
    for (size_t i = 0; i < stride; i += kLanes) {
      const auto kept = hn::Mul(hn::LoadU(d, total + i), ours);
      hn::StoreU(hn::MulAdd(hn::LoadU(d, sums + i), theirs, kept), d, total + i);
    }
    total[stride] = largest;
    const float kept = total[stride + 1] * hn::GetLane(ours);
    const float added = sums[stride + 1] * hn::GetLane(theirs);
    total[stride + 1] = kept + added;
  }
}

// What a row's values are divided by, and first multiplied by, when its head has a sink.
struct SinkShare {
  SinkShare(float largest, float weights, float sink) {
    const F32 d;
    const float most = std::max(largest, sink);
    kept = hn::GetLane(Exp(hn::Set(d, largest - most)));
    divisor = weights * kept + hn::GetLane(Exp(hn::Set(d, sink - most)));
  }
  float kept;
  float divisor;
};

void WriteOut(const Job& job, const float* total) {
  const size_t value_dim = ValueDim(job.work.view.shape);
  const size_t stride = ValueStride(value_dim);
  const size_t group = job.work.group();
  for (size_t row = 0; row < job.tile.rows(); ++row, total += stride + 16) {
    const size_t index = job.tile.row_begin + row;
    const size_t head = job.tile.kv_head * group + index % group;
    const size_t position = job.segment().row + index / group;
    float* out = job.work.out + (position * job.work.shape.heads + head) * value_dim;
    if (const float* sinks = job.work.shape.sinks; sinks != nullptr) {
      const SinkShare share(total[stride], total[stride + 1], sinks[head]);
      for (size_t i = 0; i < value_dim; ++i) out[i] = total[i] * share.kept / share.divisor;
      continue;
    }
    for (size_t i = 0; i < value_dim; ++i) out[i] = total[i] / total[stride + 1];
  }
}

void ReadQueries(const Job& job) {
  const size_t head_dim = job.head_dim();
  const size_t group = job.work.group();
  const float set = job.work.shape.scale;
  const float scale = set > 0 ? set : 1.0F / std::sqrt(static_cast<float>(head_dim));
  for (size_t row = 0; row < job.tile.rows(); ++row) {
    const size_t index = job.tile.row_begin + row;
    const size_t head = job.tile.kv_head * group + index % group;
    const size_t position = job.segment().row + index / group;
    const float* from = job.work.queries + (position * job.work.shape.heads + head) * head_dim;
    float* to = job.memory.queries + row * head_dim;
    for (size_t i = 0; i < head_dim; ++i) to[i] = from[i] * scale;
  }
}

// Ranges [begin, end) of a tile: to its sums when it has any, else to the result.
void RunTileImpl(const AttentionWork& work, const AttentionTile& tile,
                 const AttentionMemory& memory, size_t begin, size_t end) {
  const Job job{work, tile, memory};
  const size_t range_floats = tile.rows() * work.sums_stride();
  ReadQueries(job);
  if (tile.sums != nullptr) {
    for (size_t range = begin; range < end; ++range) {
      RunRange(job, range, tile.sums + (range - tile.range_begin) * range_floats);
    }
    return;
  }
  RunRange(job, begin, memory.total);
  for (size_t range = begin + 1; range < end; ++range) {
    RunRange(job, range, memory.sums);
    Join(tile.rows(), job.value_stride(), memory.sums, memory.total);
  }
  WriteOut(job, memory.total);
}

// The result from a tile's sums, when all of them are there.
void JoinTileImpl(const AttentionWork& work, const AttentionTile& tile,
                  const AttentionMemory& memory) {
  const Job job{work, tile, memory};
  const size_t range_floats = tile.rows() * work.sums_stride();
  for (size_t range = tile.range_begin + 1; range < tile.range_end; ++range) {
    Join(tile.rows(), job.value_stride(), tile.sums + (range - tile.range_begin) * range_floats,
         tile.sums);
  }
  WriteOut(job, tile.sums);
}

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace macrame::runtime::kernels
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace macrame::runtime::kernels {

HWY_EXPORT(StoreKvImpl);
HWY_EXPORT(ReadIndexImpl);
HWY_EXPORT(RunTileImpl);
HWY_EXPORT(JoinTileImpl);

struct AttentionItem {
  size_t tile;
  size_t range_begin;
  size_t range_end;
};

// A buffer that only ever grows.
class GrowingFloats {
 public:
  float* Get(size_t count) {
    if (count > count_) {
      floats_.reset(static_cast<float*>(::operator new[](count * sizeof(float), kAlignment)));
      count_ = count;
    }
    return floats_.get();
  }
  size_t bytes() const { return count_ * sizeof(float); }

 private:
  static constexpr std::align_val_t kAlignment{128};
  struct Free {
    void operator()(float* memory) const { ::operator delete[](memory, kAlignment); }
  };
  std::unique_ptr<float[], Free> floats_;
  size_t count_ = 0;
};

struct AttentionScratch::Memory {
  std::vector<AttentionTile> tiles;
  std::vector<AttentionItem> items;
  std::unique_ptr<std::atomic<size_t>[]> items_left;  // by tile
  size_t items_left_count = 0;
  GrowingFloats workers;
  GrowingFloats sums;
};

AttentionScratch::AttentionScratch() : memory_(std::make_unique<Memory>()) {}
AttentionScratch::~AttentionScratch() = default;

size_t AttentionScratch::memory_bytes() const {
  return memory_->workers.bytes() + memory_->sums.bytes();
}

class AttentionCall {
 public:
  AttentionCall(const AttentionWork& work, AttentionScratch& scratch)
      : work_(work), memory_(*scratch.memory_) {}
  void Run(ThreadPool& pool);

 private:
  void CutTiles();
  // Floats of all tiles' sums.
  size_t SumsOfAll() const;
  void CutItems(size_t workers);
  void RunItem(const AttentionItem& item, const AttentionMemory& memory);

  const AttentionWork& work_;
  AttentionScratch::Memory& memory_;
};

void AttentionCall::CutTiles() {
  memory_.tiles.clear();
  const size_t group = work_.group();
  for (size_t s = 0; s < work_.segments.size(); ++s) {
    const AttentionSegment& segment = work_.segments[s];
    const size_t rows = segment.count * group;
    for (size_t begin = 0; begin < rows; begin += kTileRows) {
      const size_t end = std::min(rows, begin + kTileRows);
      const size_t lowest = work_.Lowest(segment.position + begin / group);
      const size_t last = segment.position + (end - 1) / group;
      for (size_t head = 0; head < work_.view.shape.kv_heads; ++head) {
        memory_.tiles.push_back(
            {s, head, begin, end, lowest / kRangeTokens, last / kRangeTokens + 1, nullptr});
      }
    }
  }
}

size_t AttentionCall::SumsOfAll() const {
  size_t floats = 0;
  for (const AttentionTile& tile : memory_.tiles) {
    floats += (tile.range_end - tile.range_begin) * tile.rows() * work_.sums_stride();
  }
  return floats;
}

// A tile is one item, unless there are too few tiles to keep all workers busy.
void AttentionCall::CutItems(size_t workers) {
  constexpr size_t kItemsPerWorker = 4;
  const size_t tiles = memory_.tiles.size();
  size_t wanted = workers == 1 ? 1 : (kItemsPerWorker * workers + tiles - 1) / tiles;
  if (wanted > 1 && SumsOfAll() * sizeof(float) > kAttentionSumsBytesMax) wanted = 1;
  if (memory_.items_left_count < tiles) {
    memory_.items_left = std::make_unique<std::atomic<size_t>[]>(tiles);
    memory_.items_left_count = tiles;
  }
  memory_.items.clear();
  size_t floats = 0;
  for (size_t t = 0; t < tiles; ++t) {
    const AttentionTile& tile = memory_.tiles[t];
    const size_t ranges = tile.range_end - tile.range_begin;
    const size_t parts = std::min(wanted, ranges);
    for (size_t p = 0; p < parts; ++p) {
      memory_.items.push_back(
          {t, tile.range_begin + ranges * p / parts, tile.range_begin + ranges * (p + 1) / parts});
    }
    memory_.items_left[t].store(parts, std::memory_order_relaxed);
    if (parts > 1) floats += ranges * tile.rows() * work_.sums_stride();
  }
  float* next = memory_.sums.Get(floats);
  for (AttentionTile& tile : memory_.tiles) {
    const size_t ranges = tile.range_end - tile.range_begin;
    if (std::min(wanted, ranges) == 1) continue;
    tile.sums = next;
    next += ranges * tile.rows() * work_.sums_stride();
  }
}

void AttentionCall::RunItem(const AttentionItem& item, const AttentionMemory& memory) {
  const AttentionTile& tile = memory_.tiles[item.tile];
  HWY_DYNAMIC_DISPATCH(RunTileImpl)(work_, tile, memory, item.range_begin, item.range_end);
  if (tile.sums == nullptr) return;
  if (memory_.items_left[item.tile].fetch_sub(1, std::memory_order_acq_rel) == 1) {
    HWY_DYNAMIC_DISPATCH(JoinTileImpl)(work_, tile, memory);
  }
}

void AttentionCall::Run(ThreadPool& pool) {
  const auto workers = static_cast<size_t>(pool.threads());
  CutTiles();
  CutItems(workers);
  const size_t floats = AttentionMemoryFloats(work_.view.shape);
  float* memory = memory_.workers.Get(workers * floats);
  std::atomic<size_t> next = 0;
  pool.Run([&](int worker, int) {
    const AttentionMemory own =
        DivideAttentionMemory(work_.view.shape, memory + static_cast<size_t>(worker) * floats);
    const size_t items = memory_.items.size();
    for (size_t i = next.fetch_add(1, std::memory_order_relaxed); i < items;
         i = next.fetch_add(1, std::memory_order_relaxed)) {
      RunItem(memory_.items[items - 1 - i], own);  // the last positions see most keys
    }
  });
}

void StoreKv(const KvView& view, const int32_t* blocks, size_t position, const float* keys,
             const float* values) {
  const auto id = static_cast<size_t>(blocks[position / kBlockTokens]);
  HWY_DYNAMIC_DISPATCH(StoreKvImpl)
  (view, view.data + id * BlockBytes(view.shape), position % kBlockTokens, keys, values);
}

void ReadIndex(const KvView& view, const int32_t* blocks, size_t begin, size_t count, float* out) {
  HWY_DYNAMIC_DISPATCH(ReadIndexImpl)(view, blocks, begin, count, out);
}

void CopyLatent(const KvView& from, const int32_t* blocks, size_t position, const KvView& to,
                size_t at) {
  const KvShape &source = from.shape, &target = to.shape;
  const size_t size = KvScalarBytes(source.type);
  const auto block = [](const KvView& view, size_t id) {
    return view.data + id * BlockBytes(view.shape);
  };
  const std::byte* read = block(from, static_cast<size_t>(blocks[position / kBlockTokens]));
  std::byte* write = block(to, at / kBlockTokens);
  const size_t read_at = position % kBlockTokens, write_at = at % kBlockTokens;
  const size_t read_stride = ValueStride(source.row_dim()) * size;
  const size_t write_stride = ValueStride(target.row_dim()) * size;
  std::memcpy(write + write_at * write_stride, read + read_at * read_stride,
              target.head_dim * size);
  if (source.type != KvType::kInt8) return;
  for (size_t group = 0; group < KvGroups(target.head_dim); ++group) {
    const auto scale = [&](size_t stride, size_t offset) {
      return stride * kBlockTokens + (group * kBlockTokens + offset) * 2;
    };
    std::memcpy(write + scale(write_stride, write_at), read + scale(read_stride, read_at), 2);
  }
}

void Attend(ThreadPool& pool, const KvView& view, const AttentionShape& shape,
            std::span<const AttentionSegment> segments, const float* queries, float* out,
            AttentionScratch& scratch) {
  if (segments.empty()) return;
  AttentionCall({view, shape, segments, queries, out}, scratch).Run(pool);
}

}  // namespace macrame::runtime::kernels
#endif  // HWY_ONCE
