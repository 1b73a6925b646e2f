#pragma once

// Attention of one layer over keys and values in the KV pools, as MLX's graph. Engine thread only.

#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "mlx/mlx.h"
#include "runtime/model/config/model_config.h"
#include "runtime/model/mlx/block_index.h"
#include "runtime/model/mlx/kv_pools.h"
#include "runtime/model/mlx/rope.h"
#include "runtime/model/mlx/step_rows.h"
#include "runtime/model/step/rank_sums.h"
#include "runtime/model/weights/linear.h"
#include "runtime/model/weights/weight_loader.h"
#include "runtime/model/weights/weight_needs.h"

namespace macrame::runtime::engine {

// A layer's keys and values of all sequences, as a step has written them.
struct KvWritten {
  KvRowsKept keys, values;
};
// Those of a step alone, laid out (step_rows.h).
struct KvOfStep {
  mlx::core::array keys, values;
};

// What the layers of a rank share in one step.
struct AttentionStep {
  const StepRows& rows;
  KvPools& pools;
  // By entry of the pools: what was written so far in this step, for layers that attend to
  // another one's.
  std::vector<std::optional<KvWritten>> written{};
  // Of each row's queries, laid out; unset: 1.
  std::optional<mlx::core::array> query_scales{};
};

// Where a layer's keys and values stand.
struct KvEntries {
  int own = 0;    // of keys and values in the pools
  int index = 0;  // of the indexer's keys, where the layer has one
};

class MlxAttention {
 public:
  // `rope`: null where queries and keys are not turned; it outlives the layer. The rank must have
  // heads.
  MlxAttention(const ModelConfig& config, const ShardPlace& place, int layer,
               const LayerNeeds& needs, WeightLoader& loader, const MlxRope* rope,
               const KvEntries& entries);

  // x [rows, hidden], normed -> what this rank's heads give, [rows, heads x dim], for the layer's
  // output map. `kept`: takes the layer's keys and values, laid out, where it is not null.
  mlx::core::array Apply(const mlx::core::array& x, AttentionStep& step, RankSums& sums,
                         std::optional<KvOfStep>* kept) const;

 private:
  struct Projected {
    mlx::core::array queries;                          // laid out, not turned
    std::optional<mlx::core::array> keys{}, values{};  // unset: another layer's are there
    std::optional<mlx::core::array> gate{};            // [rows, heads x dim]
  };
  // Queries, keys and values [rows, width of each].
  std::vector<mlx::core::array> ProjectEach(const mlx::core::array& x) const;
  Projected Project(const mlx::core::array& x, const StepRows& rows, RankSums& sums) const;
  // qk_norm_whole: queries and keys [rows, this rank's], normed over those of all ranks.
  void NormWhole(mlx::core::array& queries, mlx::core::array& keys, RankSums& sums) const;
  mlx::core::array HeadNormed(const mlx::core::array& x, int heads,
                              const std::optional<mlx::core::array>& norm) const;
  mlx::core::array Turned(const mlx::core::array& laid, const StepRows& rows) const;
  // Of the indexer: queries, laid out, and the keys of all sequences.
  struct Indexed {
    mlx::core::array queries;
    KvRowsKept keys;
  };
  mlx::core::array AttendAll(const mlx::core::array& queries, const KvWritten& seen,
                             const std::optional<Indexed>& index, AttentionStep& step) const;
  // Of one sequence, over all that it sees. `before`: what those before it gave.
  mlx::core::array Attend(const mlx::core::array& queries, const KvWritten& seen,
                          const StepRows& rows, const StepRows::Sequence& sequence, float scale,
                          std::span<const mlx::core::array> before) const;

  const ModelConfig& config_;
  const int tp_;
  const HeadTraits traits_;
  const int kv_heads_, heads_;  // of this rank
  const int window_;
  const KvEntries entries_;
  const float scale_;  // of queries
  const mlx::core::array scale_number_;
  const MlxRope* const rope_;
  // What queries, keys and values are made with: keys unset where another layer's are read, values
  // where keys are values. One after the other as one map where their formats agree, else each.
  std::optional<Linear> joined_;
  std::vector<Linear> maps_;
  std::vector<int> widths_;  // of each one's part
  std::optional<mlx::core::array> q_norm_, k_norm_;
  std::optional<mlx::core::array> sinks_;  // of this rank's heads
  std::optional<MlxBlockIndex> block_index_;
};

}  // namespace macrame::runtime::engine
