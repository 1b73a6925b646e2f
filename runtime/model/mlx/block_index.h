#pragma once

// Which positions the key-value heads of a layer attend to (ModelConfig::block_index), as an MLX
// graph, for GPUs: a mask over all positions of a sequence.

#include <optional>

#include "mlx/mlx.h"
#include "runtime/model/config/model_config.h"
#include "runtime/model/mlx/step_rows.h"
#include "runtime/model/weights/linear.h"
#include "runtime/model/weights/weight_loader.h"
#include "runtime/model/weights/weight_needs.h"

namespace macrame::runtime::engine {

class MlxBlockIndex {
 public:
  // The rank must have heads.
  MlxBlockIndex(const ModelConfig& config, const ShardPlace& place, const BlockIndexNeeds& needs,
                WeightLoader& loader);

  struct Rows {
    mlx::core::array queries;  // of this rank's index heads
    mlx::core::array keys;     // of one
  };
  // Of x [rows, hidden], normed, laid out and not yet turned.
  Rows Project(const mlx::core::array& x, const StepRows& rows) const;

  // Of turned queries at [begin, begin + count) and the turned keys of all positions up to there:
  // [1, index heads, count, begin + count], true where a position is attended to. Unset: each row
  // attends to all positions up to its own.
  std::optional<mlx::core::array> Choose(const mlx::core::array& queries,
                                         const mlx::core::array& keys, int begin) const;
  // Attention of queries [1, heads, count, dim] under that mask.
  mlx::core::array Attend(const mlx::core::array& queries, const mlx::core::array& keys,
                          const mlx::core::array& values, float scale,
                          const mlx::core::array& mask) const;

 private:
  const BlockIndexTraits traits_;
  const int heads_;     // of the indexer, of this rank
  const int first_kv_;  // this rank's first key-value head
  const int each_;      // key-value heads that one of the indexer's serves
  const float norm_eps_;
  Linear query_, key_;
  mlx::core::array query_norm_, key_norm_;
};

}  // namespace macrame::runtime::engine
