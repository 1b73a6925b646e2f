#pragma once

// Multi-head latent attention of one layer as MLX's graph, in the absorbed form
// (cpu/latent_attention.h says what that is). Engine thread only.

#include <functional>
#include <optional>

#include "mlx/mlx.h"
#include "runtime/model/config/model_config.h"
#include "runtime/model/step/forward_step.h"
#include "runtime/model/weights/linear.h"
#include "runtime/model/weights/weight_loader.h"
#include "runtime/model/weights/weight_needs.h"

namespace macrame::runtime::engine {

// What the layers share: how a position turns what is in the last dimension, and the cache, which
// takes a segment's keys [1, 1, count, width] and gives those of all its positions; and likewise
// those of the indexer, where there is one.
struct MlxLatentStep {
  using Array = mlx::core::array;
  const ForwardStep& step;
  std::function<Array(const Array&, int begin, bool interleaved)> rotate;
  std::function<Array(const Segment&, const Array& keys)> append;
  std::function<Array(const Segment&, const Array& keys)> append_index;
};

// The indexer: which positions are attended to (cpu/sparse_index.h says how).
class MlxSparseIndex {
 public:
  MlxSparseIndex(const IndexTraits& traits, int rope, const IndexNeeds& needs,
                 WeightLoader& loader);

  // Of all rows of a step; `latent`: what queries are made from.
  struct Rows {
    mlx::core::array queries;  // [1, heads, rows, dim]
    mlx::core::array keys;     // [1, 1, rows, dim]
    mlx::core::array weights;  // [1, heads, rows, 1]
    Rows Part(int begin, int end) const;
  };
  Rows Project(const mlx::core::array& x, const mlx::core::array& latent) const;
  // Of one segment's rows, whose keys are added to the cache: [1, 1, count, top] positions. Unset:
  // there are no more than top.
  std::optional<mlx::core::array> Choose(const Segment& segment, const Rows& rows,
                                         const MlxLatentStep& step) const;

 private:
  mlx::core::array Turned(const mlx::core::array& x, int begin, const MlxLatentStep& step) const;

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
  // One segment: [1, heads, count, nope + rope] and [1, 1, count, kv_rank + rope].
  mlx::core::array Mix(const Segment& segment, const mlx::core::array& queries,
                       const mlx::core::array& keys,
                       const std::optional<MlxSparseIndex::Rows>& index,
                       const MlxLatentStep& step) const;

  // Queries [1, heads, count, width] over all positions that each sees, or those chosen for it.
  mlx::core::array Attend(const mlx::core::array& queries, const mlx::core::array& seen, int begin,
                          const std::optional<mlx::core::array>& chosen) const;

  const LatentTraits traits_;
  const bool interleaved_;  // of the rotary form
  const int heads_;
  std::optional<Linear> q_a_;
  Linear q_b_, kv_a_;
  std::optional<MlxSparseIndex> index_;
  StackedLinear embed_q_, unembed_out_;  // [heads, rows of one, columns]
  std::optional<mlx::core::array> q_a_norm_;
  mlx::core::array kv_a_norm_;
};

}  // namespace macrame::runtime::engine
