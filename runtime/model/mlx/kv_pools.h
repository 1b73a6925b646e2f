#pragma once

// Keys and values of all sequences of a rank, in buffers that never move: one of keys and one of
// values an entry (a layer that keeps some), [1, heads, positions, width]. A block's kBlockTokens
// positions follow one another, and so do those of a sequence whose blocks do (slot_tables.h):
// attention reads them where they are.
//
// A step's writes go into the buffer itself. MLX writes into an input's memory only where nobody
// else holds it, and copies the whole pool otherwise; what a GPU has not finished yet still holds
// it. So each write begins with an array that takes the buffer over from the one before, whose
// users were all evaluated: nothing on the host reads that one again, and a stream runs what was
// evaluated in its order. What is under way reads positions that were written before it; a step
// writes others. Engine thread only.

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "mlx/mlx.h"
#include "runtime/model/step/forward_step.h"

namespace macrame::runtime::engine {

enum class KvSide : uint8_t { kKeys = 0, kValues = 1 };

// Where the rows of a step go.
struct KvRows {
  // All rows follow one another from here on; or
  std::optional<int> first{};
  // int32 [rows]: each row's position in the pool.
  std::optional<mlx::core::array> each{};
};

class KvPools {
 public:
  // Buffers are made at an entry's first use, in whole: what the plan counts for the cache.
  KvPools(int entries, int blocks_total);
  KvPools(const KvPools&) = delete;
  KvPools& operator=(const KvPools&) = delete;

  // Writes a step's rows, [1, heads, rows, width] or, with a position of each, [rows, heads, 1,
  // width]; gives the whole pool behind that. Once a step and side.
  mlx::core::array Write(int entry, KvSide side, const mlx::core::array& rows, const KvRows& where);
  // Before a step's writes, in this order.
  void Copy(std::span<const BlockCopy> copies);

  // The pools, to be evaluated together with a step's result. Nothing may hold them longer.
  void AppendPools(std::vector<mlx::core::array>& out) const;

  // A block in all entries, keys and values of one after the other. The buffers must be there.
  size_t block_bytes() const;
  void Read(int32_t block, std::span<std::byte> out) const;
  void Write(int32_t block, std::span<const std::byte> bytes);
  // Type and shape of what a block holds, in words.
  std::string layout() const;

 private:
  // Made at first use.
  mlx::core::array& PoolOf(int entry, KvSide side, const mlx::core::array& rows);
  // Of all buffers, in the order of a block's bytes.
  std::vector<const mlx::core::array*> Pools() const;

  const int blocks_total_;
  std::vector<std::optional<mlx::core::array>> pools_;  // two an entry
};

}  // namespace macrame::runtime::engine
