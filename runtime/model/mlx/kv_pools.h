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
//
// With fewer bits than the rows have (narrow), a number is an integer times a scale, and a bias, of
// its position, head and group of dimensions, as mx::quantize makes them: with 8 bits and groups of
// 64 it takes 8.5 bits. A head whose width no group divides is kept as it is.

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

// Rows of keys or of values: of all positions, or of those that a sequence sees.
struct KvRowsKept {
  mlx::core::array numbers;  // [1, heads, positions, width], or packed
  // Of narrow ones, [1, heads, positions, width / group].
  std::optional<mlx::core::array> scales{}, biases{};
  int group = 0;
  int bits = 0;  // 0: as the rows came
  // What `part` makes of the numbers and, of narrow ones, of scales and biases.
  template <typename Part>
  KvRowsKept Each(const Part& part) const {
    if (bits == 0) return {part(numbers)};
    return {part(numbers), part(*scales), part(*biases), group, bits};
  }
  // As they came, [1, heads, positions, width]: a copy of narrow ones.
  mlx::core::array Whole() const;
  // The same, of which narrow ones are not unpacked before `x` is there: else MLX would unpack what
  // all sequences see at once.
  KvRowsKept Behind(const mlx::core::array& x) const;
};

// The largest group of dimensions that share a scale; 0: such a head is kept as it is.
int KvGroupOf(int width);

class KvPools {
 public:
  // Buffers are made at an entry's first use, in whole: what the plan counts for the cache. `bits`:
  // of a number; 0: as the rows come.
  KvPools(int entries, int blocks_total, int bits = 0);
  KvPools(const KvPools&) = delete;
  KvPools& operator=(const KvPools&) = delete;

  // Writes a step's rows, [1, heads, rows, width] or, with a position of each, [rows, heads, 1,
  // width]; gives the whole pool behind that. Once a step and side.
  KvRowsKept Write(int entry, KvSide side, const mlx::core::array& rows, const KvRows& where);
  // The whole pool of an entry to which a step writes no rows, of `heads` and `width`.
  KvRowsKept Unwritten(int entry, KvSide side, int heads, int width, mlx::core::Dtype type);
  // Before a step's writes, in this order.
  void Copy(std::span<const BlockCopy> copies);

  // The pools, to be evaluated together with a step's result. Nothing may hold them longer.
  void AppendPools(std::vector<mlx::core::array>& out) const;

  // Blocks in all entries, keys and values of one after the other, each with its own bytes. The
  // buffers must be there. The device is waited for once.
  size_t block_bytes() const;
  void Read(std::span<const int32_t> blocks, std::span<const std::span<std::byte>> out) const;
  void Write(std::span<const int32_t> blocks, std::span<const std::span<const std::byte>> bytes);
  // Type and shape of what a block holds, in words.
  std::string layout() const;

 private:
  // What is kept of rows: themselves, or numbers, scales and biases.
  std::vector<mlx::core::array> PartsOf(const mlx::core::array& rows) const;
  KvRowsKept KeptIn(std::span<const std::optional<mlx::core::array>> own, int width) const;
  // Numbers, scales and biases of a side: as many buffers as `parts`, made at first use.
  std::span<std::optional<mlx::core::array>> PoolsOf(int entry, KvSide side,
                                                     std::span<const mlx::core::array> parts,
                                                     const mlx::core::array& rows);
  // Of all buffers, in the order of a block's bytes.
  std::vector<const mlx::core::array*> Pools() const;

  const int blocks_total_;
  const int bits_;
  std::vector<std::optional<mlx::core::array>> pools_;  // kParts of each side of an entry
};

}  // namespace macrame::runtime::engine
