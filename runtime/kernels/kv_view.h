#pragma once

// Keys and values of one layer, as the kernels see them: blocks of kBlockTokens positions in memory
// that someone else owns. A sequence is a list of block numbers; position p of it lies in block
// p / kBlockTokens of the list.
//
// A block holds one piece for each key-value head, one after the other. A piece holds the keys with
// the positions side by side, [head_dim][kBlockTokens], so that 32 scores grow lane by lane; behind
// them the values row by row, [kBlockTokens][ValueStride(head_dim)], padded with zeros.
//
// A latent cache (multi-head latent attention) holds keys alone, position by position,
// [kBlockTokens][ValueStride(row_dim)]: a value is the first latent_dim numbers of its key. Behind
// the key stand index_dim numbers that attention does not read: a position's key for the indexer
// that chooses positions (model/cpu/sparse_index.h).
//
// kInt8: a number is an integer in [-127, 127] times the scale, a bfloat16, of its position and
// group of kKvGroupDims of the head's dimensions. Behind the keys stand their scales, and behind
// the values theirs: [KvGroups(head_dim)][kBlockTokens] each. A number is off by at most 1 in 253
// of the largest of its group; the product of integer and scale is exact in float32. Groups, since
// some models' keys have a few dimensions that are a hundred times larger than all others.

#include <cstddef>
#include <cstdint>

namespace macrame::runtime::kernels {

inline constexpr size_t kBlockTokens = 32;

// By root mean square, kInt8 moves logits by less than 2 % of them against kFloat16; by less than
// 10 % where each key head has a dimension some twenty times larger than the others. cpu_model_test
// holds both; seen there with scales for groups of 16, of 32, for a whole head: the bundled model
// 0.004 each, random ones (heads of 64 to 128) at most 0.014, 0.015, 0.017, with a large dimension
// 0.055, 0.079, 0.107. Groups of 16 would take 9 bits a number instead of 8.5.

// Dimensions of a head that share a scale.
inline constexpr size_t kKvGroupDims = 32;

enum class KvType : uint8_t { kFloat32, kFloat16, kBfloat16, kInt8 };

struct KvShape {
  size_t kv_heads = 0;
  size_t head_dim = 0;  // of keys; and of values, unless latent_dim is set
  KvType type = KvType::kFloat32;
  size_t latent_dim = 0;
  size_t index_dim = 0;  // of a latent cache
  size_t row_dim() const { return head_dim + index_dim; }
};

struct KvView {
  KvShape shape;
  std::byte* data = nullptr;  // of block 0; memory that was never written is zero
};

constexpr size_t KvScalarBytes(KvType type) {
  return type == KvType::kFloat32 ? 4 : type == KvType::kInt8 ? 1 : 2;
}

inline size_t KvGroups(size_t head_dim) { return (head_dim + kKvGroupDims - 1) / kKvGroupDims; }

// A value's row in elements: whole vectors of any instruction set.
inline size_t ValueStride(size_t head_dim) { return (head_dim + 15) / 16 * 16; }

inline size_t ValueDim(const KvShape& shape) {
  return shape.latent_dim > 0 ? shape.latent_dim : shape.head_dim;
}

// Of a piece's keys or values.
inline size_t ScalesBytes(const KvShape& shape) {
  return shape.type == KvType::kInt8 ? KvGroups(shape.row_dim()) * kBlockTokens * 2 : 0;
}

inline size_t KeysBytes(const KvShape& shape) {
  return shape.head_dim * kBlockTokens * KvScalarBytes(shape.type) + ScalesBytes(shape);
}

inline size_t PieceBytes(const KvShape& shape) {
  if (shape.latent_dim > 0) {
    return kBlockTokens * ValueStride(shape.row_dim()) * KvScalarBytes(shape.type) +
           ScalesBytes(shape);
  }
  return KeysBytes(shape) + ScalesBytes(shape) +
         kBlockTokens * ValueStride(shape.head_dim) * KvScalarBytes(shape.type);
}

// One block of one layer. A multiple of 64.
inline size_t BlockBytes(const KvShape& shape) { return shape.kv_heads * PieceBytes(shape); }

}  // namespace macrame::runtime::kernels
