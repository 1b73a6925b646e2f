#pragma once

// How the ranks of a tensor split add up, and put together, what each of them computed: one
// implementation for MLX's graphs and one for plain buffers. Every rank gets the same bits, and a
// row of a buffer gets the same bits whatever other rows are with it. Every rank calls the same
// functions in the same order; nodes of a graph must depend on one another where nothing else
// orders them. Engine thread only.

#include <cstddef>

#include "mlx/mlx.h"

namespace macrame::runtime::engine {

class RankSums {
 public:
  virtual ~RankSums() = default;

  // values = their sum over the ranks, added in the type that hidden states travel in. What is
  // there when it returns is the sum. Throws std::runtime_error when a rank is lost.
  virtual void AddOverRanks(float* values, size_t count) = 0;
  // The same in float32: exact where all ranks but one have zeros.
  virtual void AddExactlyOverRanks(float* values, size_t count) = 0;
  // The same two as nodes of MLX's graph, of the type of `partial`. Ranks on a CPU and ranks on a
  // GPU can add to each other.
  virtual mlx::core::array SumOverRanks(const mlx::core::array& partial) = 0;
  virtual mlx::core::array SumExactlyOverRanks(const mlx::core::array& partial) = 0;
  // What each rank gives, [rows, columns] and of the same shape and type on all, one rank's behind
  // the other's: [ranks x rows, columns], as a node of MLX's graph.
  virtual mlx::core::array GatherOverRanks(const mlx::core::array& own) = 0;
};

// For a rank that has nobody to add to.
class NoRankSums : public RankSums {
 public:
  void AddOverRanks(float*, size_t) override {}
  void AddExactlyOverRanks(float*, size_t) override {}
  mlx::core::array SumOverRanks(const mlx::core::array& partial) override { return partial; }
  mlx::core::array SumExactlyOverRanks(const mlx::core::array& partial) override { return partial; }
  mlx::core::array GatherOverRanks(const mlx::core::array& own) override { return own; }
};

}  // namespace macrame::runtime::engine
