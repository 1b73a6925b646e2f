#pragma once

// How a call of Attend is cut into pieces of work: shared by the part that cuts and the kernels.

#include <algorithm>
#include <cstddef>
#include <span>

#include "runtime/kernels/attention.h"

namespace macrame::runtime::kernels {

// Keys between two updates of a row's maximum, and keys that are summed apart from others.
inline constexpr size_t kUnitTokens = 128;
inline constexpr size_t kRangeTokens = 512;
// Rows of queries that go over the keys together: heads of one key-value head, positions.
inline constexpr size_t kTileRows = 64;

struct AttentionWork {
  KvView view;
  AttentionShape shape;
  std::span<const AttentionSegment> segments;
  const float* queries;
  float* out;

  size_t group() const { return shape.heads / view.shape.kv_heads; }
  // A row's sums over a range: its values, then the largest score, then the sum of weights.
  size_t sums_stride() const { return ValueStride(ValueDim(view.shape)) + 16; }
  // The first position that position `p` sees.
  size_t Lowest(size_t p) const {
    return shape.window > 0 && p + 1 > shape.window ? p + 1 - shape.window : 0;
  }
};

// Rows [row_begin, row_end) of a segment and key-value head; row = position * group + head.
struct AttentionTile {
  size_t segment;
  size_t kv_head;
  size_t row_begin;
  size_t row_end;
  size_t range_begin;
  size_t range_end;
  float* sums;  // of every range and row, when several items share the tile; else null

  size_t rows() const { return row_end - row_begin; }
};

// A worker's memory, in floats.
struct AttentionMemory {
  float* queries;  // kTileRows x head_dim
  float* scores;   // kTileRows x kUnitTokens
  float* sums;     // kTileRows x sums_stride: one range
  float* total;    // kTileRows x sums_stride: ranges so far
  float* keys;     // kUnitTokens x head_dim, widened
  float* values;   // kUnitTokens x ValueStride, widened
  float* scales;   // KvGroups x kUnitTokens: of a unit's values
};

inline size_t AttentionMemoryFloats(const KvShape& shape) {
  const size_t stride = ValueStride(shape.head_dim);
  return kTileRows * (stride + kUnitTokens + 2 * (stride + 16)) + 2 * kUnitTokens * stride +
         KvGroups(shape.head_dim) * kUnitTokens;
}

inline AttentionMemory DivideAttentionMemory(const KvShape& shape, float* floats) {
  const size_t stride = ValueStride(shape.head_dim);
  AttentionMemory memory;
  memory.queries = floats;
  memory.scores = memory.queries + kTileRows * stride;
  memory.sums = memory.scores + kTileRows * kUnitTokens;
  memory.total = memory.sums + kTileRows * (stride + 16);
  memory.keys = memory.total + kTileRows * (stride + 16);
  memory.values = memory.keys + kUnitTokens * stride;
  memory.scales = memory.values + kUnitTokens * stride;
  return memory;
}

}  // namespace macrame::runtime::kernels
