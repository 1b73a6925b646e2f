#pragma once

// Keys and values of all sequences of a rank as MLX arrays, in blocks of kBlockTokens positions:
// one pool of keys and one of values a layer, [blocks × kBlockTokens, kv_heads, head_dim]. For
// MLX's own attention the positions of a sequence are gathered from its blocks at each step, which
// costs one more pass over them than reading in place. Engine thread only.

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "mlx/mlx.h"

namespace macrame::runtime::engine {

class MlxKvBlocks {
 public:
  // The pools are made at a layer's first use, in whole: what the plan counts for the cache.
  MlxKvBlocks(int layers, int blocks_total);

  struct View {
    mlx::core::array keys;  // [1, kv_heads, begin + count, head_dim]
    mlx::core::array values;
  };
  // Writes keys and values [1, kv_heads, count, head_dim] of one layer at positions [begin, begin +
  // count) of the sequence with this table, and gives those of [0, begin + count).
  View Append(int layer, std::span<const int32_t> table, int begin, const mlx::core::array& keys,
              const mlx::core::array& values);

  // The same for a cache of keys alone (multi-head latent attention): one pool a layer.
  mlx::core::array AppendKeys(int layer, std::span<const int32_t> table, int begin,
                              const mlx::core::array& keys);

  // And what stands beside those: the keys of an indexer, of a width of their own.
  mlx::core::array AppendIndex(int layer, std::span<const int32_t> table, int begin,
                               const mlx::core::array& keys);

  // The whole pools, to be evaluated together with a step's result.
  void AppendPools(std::vector<mlx::core::array>& out) const;

  // A block in all layers, keys and values of one after the other. The pools must be there.
  size_t block_bytes() const;
  void Read(int32_t block, std::span<std::byte> out) const;
  void Write(int32_t block, std::span<const std::byte> bytes);
  // Type and shape of what a block holds, in words.
  std::string layout() const;

 private:
  struct Layer {
    std::optional<mlx::core::array> keys;
    std::optional<mlx::core::array> values;
  };

  // Writes to a pool, which it makes at first use, and gives positions [0, begin + count).
  mlx::core::array AppendTo(std::optional<mlx::core::array>& pool, std::span<const int32_t> table,
                            int begin, const mlx::core::array& update) const;
  // Of all pools, in the order of a block's bytes.
  std::vector<mlx::core::array> Pools() const;

  std::vector<Layer> layers_;
  const int blocks_total_;
};

}  // namespace macrame::runtime::engine
