#pragma once

// Keys and values of one sequence for the layers of this rank. Grows in steps of kGrowthPositions,
// never above the context length that the rank was launched with. Engine thread only.

#include <vector>

#include "mlx/mlx.h"

namespace macrame::runtime::engine {

class KvCache {
 public:
  static constexpr int kGrowthPositions = 256;

  // `capacity_max`: positions, the context length.
  KvCache(int layers, int capacity_max);

  struct View {
    mlx::core::array keys;  // [1, kv_heads, begin + count, head_dim]
    mlx::core::array values;
  };
  // Writes keys and values [1, kv_heads, count, head_dim] of one layer at positions
  // [begin, begin + count) and gives those of [0, begin + count). What lay behind is forgotten, so
  // a new sequence simply begins at 0. begin + count must not pass capacity_max.
  View Append(int layer, const mlx::core::array& keys, const mlx::core::array& values, int begin);

  // The whole buffers, to be evaluated together with a step's result.
  void AppendBuffers(std::vector<mlx::core::array>& out) const;

  // Positions that a layer has room for, at present.
  int capacity(int layer) const { return layers_[layer].capacity; }
  int capacity_max() const { return capacity_max_; }

 private:
  struct Layer {
    std::vector<mlx::core::array> keys;  // one element, or none before the first step
    std::vector<mlx::core::array> values;
    int capacity = 0;
  };
  static void Grow(std::vector<mlx::core::array>& buffer, const mlx::core::array& like,
                   int capacity, int wanted);

  std::vector<Layer> layers_;
  const int capacity_max_;
};

// Positions to allocate when `needed` are: rounded up to whole steps, but at most `maximum`.
int CapacityFor(int needed, int maximum);

}  // namespace macrame::runtime::engine
