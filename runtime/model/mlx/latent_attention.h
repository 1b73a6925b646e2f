#pragma once

// Multi-head latent attention of one layer as MLX's graph. Engine thread only.
//
// Two forms give the same. Absorbed (cpu/latent_attention.h says what that is): queries go into the
// latent space and attend to the cache as it is. Unpacked: keys and values of all heads are made of
// the cache, and attention runs over these. The first reads and computes less for few rows, the
// second for many.

#include <optional>
#include <vector>

#include "mlx/mlx.h"
#include "runtime/model/config/model_config.h"
#include "runtime/model/mlx/kv_pools.h"
#include "runtime/model/mlx/rope.h"
#include "runtime/model/mlx/step_rows.h"
#include "runtime/model/weights/linear.h"
#include "runtime/model/weights/weight_loader.h"
#include "runtime/model/weights/weight_needs.h"

namespace macrame::runtime::engine {

// What a layer has of the step and of its rank.
struct MlxLatentStep {
  const StepRows& rows;
  KvPools& pools;
  const MlxRope& rope;
  int entry;  // keys are the latent vectors with the rotary key, values the indexer's keys
};

// The indexer: which positions are attended to (cpu/sparse_index.h says how).
class MlxSparseIndex {
 public:
  MlxSparseIndex(const IndexTraits& traits, int rope, const IndexNeeds& needs,
                 WeightLoader& loader);

  // Of all rows of a step; `latent`: what queries are made from.
  struct Rows {
    // By sequence, as StepRows::Each has them; queries are turned.
    std::vector<mlx::core::array> queries, weights;
    KvRowsKept pool;  // all keys, those of the step among them
  };
  Rows Project(const mlx::core::array& x, const mlx::core::array& latent,
               const MlxLatentStep& step) const;
  // Of one sequence's rows: [1, 1, count, top] positions. Unset: there are no more than top.
  std::optional<mlx::core::array> Choose(const StepRows::Sequence& sequence, const Rows& rows,
                                         const StepRows& step) const;

 private:
  mlx::core::array Turned(const mlx::core::array& laid, const MlxLatentStep& step) const;

  const IndexTraits traits_;
  const int rope_;
  Linear wq_b_, wk_, weights_;
  mlx::core::array key_norm_, key_norm_bias_;
};

class MlxLatentAttention {
 public:
  MlxLatentAttention(const ModelConfig& config, const ShardPlace& place, const LatentNeeds& needs,
                     WeightLoader& loader);

  // x [rows, hidden] -> [rows, heads x value] of this rank's heads. The rank must have some.
  mlx::core::array Apply(const mlx::core::array& x, const MlxLatentStep& step) const;

 private:
  // One sequence's queries [1, heads, count, nope] and [1, heads, count, rope], over all positions
  // that each row sees, or over those that are chosen for it: [1, heads, count, value].
  struct Queries {
    mlx::core::array nope, rope;
  };
  mlx::core::array AttendAbsorbed(const Queries& queries, const mlx::core::array& seen, int begin,
                                  const std::optional<mlx::core::array>& chosen) const;
  mlx::core::array AttendUnpacked(const Queries& queries, const mlx::core::array& seen,
                                  int begin) const;
  // Whether the unpacked form takes fewer products for so many rows.
  bool UnpacksFor(int count) const;

  const LatentTraits traits_;
  const int heads_;
  std::optional<Linear> q_a_;
  Linear q_b_, kv_a_;
  std::optional<MlxSparseIndex> index_;
  StackedLinear embed_q_, unembed_out_;  // [heads, rows of one, columns]
  std::optional<mlx::core::array> q_a_norm_;
  mlx::core::array kv_a_norm_;
};

}  // namespace macrame::runtime::engine
