#pragma once

// Keys and values of one layer, as the kernels see them: blocks of kBlockTokens positions in memory
// that someone else owns. A sequence is a list of block numbers; position p of it lies in block
// p / kBlockTokens of the list.
//
// A block holds one piece for each key-value head, one after the other. A piece holds the keys with
// the positions side by side, [head_dim][kBlockTokens], so that 32 scores grow lane by lane; behind
// them the values row by row, [kBlockTokens][ValueStride(head_dim)], padded with zeros.

#include <cstddef>
#include <cstdint>

namespace macrame::runtime::kernels {

inline constexpr size_t kBlockTokens = 32;

enum class KvType : uint8_t { kFloat32, kFloat16, kBfloat16 };

struct KvShape {
  size_t kv_heads = 0;
  size_t head_dim = 0;
  KvType type = KvType::kFloat32;
};

struct KvView {
  KvShape shape;
  std::byte* data = nullptr;  // of block 0; memory that was never written is zero
};

inline size_t KvScalarBytes(KvType type) { return type == KvType::kFloat32 ? 4 : 2; }

// A value's row in elements: whole vectors of any instruction set.
inline size_t ValueStride(size_t head_dim) { return (head_dim + 15) / 16 * 16; }

inline size_t KeysBytes(const KvShape& shape) {
  return shape.head_dim * kBlockTokens * KvScalarBytes(shape.type);
}

inline size_t PieceBytes(const KvShape& shape) {
  return KeysBytes(shape) + kBlockTokens * ValueStride(shape.head_dim) * KvScalarBytes(shape.type);
}

// One block of one layer. A multiple of 64.
inline size_t BlockBytes(const KvShape& shape) { return shape.kv_heads * PieceBytes(shape); }

}  // namespace macrame::runtime::kernels
