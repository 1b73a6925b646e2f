#pragma once

// Which compressed entries the rows of a step look at, as an MLX graph: the indexer of one layer
// that chooses (cpu/compressed_index.h says how). Whole on each rank, so all choose alike. Scores
// are float32. Engine thread only.

#include <cstddef>
#include <optional>

#include "mlx/mlx.h"
#include "runtime/model/config/model_config.h"
#include "runtime/model/mlx/entry_step.h"
#include "runtime/model/mlx/float_rounding.h"
#include "runtime/model/mlx/rope.h"
#include "runtime/model/mlx/step_rows.h"
#include "runtime/model/weights/linear.h"
#include "runtime/model/weights/weight_loader.h"
#include "runtime/model/weights/weight_needs.h"

namespace macrame::runtime::engine {

// Rows of one sequence for which scores, or copies of what they look at, are made at once: as many
// as take 64 MiB, two at least: so a part of one row is always a sequence's last.
int CompressedRowsAtOnce(size_t bytes_of_row);

class MlxCompressedIndex {
 public:
  MlxCompressedIndex(const ModelConfig& config, int layer, const CompressedNeeds& needs,
                     WeightLoader& loader);

  // x [rows, hidden] normed hidden states, `latent` [rows, q_rank] what queries are made from. Sets
  // what each sequence chose, and of which candidates layers behind may choose.
  void Choose(const mlx::core::array& x, const mlx::core::array& latent, const MlxRope& rope,
              const MlxFloatRounding& rounding, EntryStep& step) const;

 private:
  // Whether rows that see at most so many entries need no scores.
  bool SeesAll(int entries) const;
  // Of rows [begin, begin + queries.shape(2)): [rows, entries], those that a row does not see at
  // minus infinity. `queries` [1, heads, rows, dim], `weights` [1, heads, rows, 1].
  mlx::core::array Scores(const mlx::core::array& queries, const mlx::core::array& weights,
                          const mlx::core::array& keys, int begin) const;
  // bool [rows, blocks]; unset: all.
  std::optional<mlx::core::array> BlocksOf(const mlx::core::array& scores, int begin) const;
  // int32 [rows, top], ascending, -1 behind where there are fewer.
  mlx::core::array Highest(const mlx::core::array& scores) const;

  const CompressTraits traits_;
  const int ratio_;
  const bool makes_candidates_, takes_candidates_;
  const Linear query_, weights_;
};

}  // namespace macrame::runtime::engine
