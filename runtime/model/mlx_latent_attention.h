#pragma once

// Multi-head latent attention of one layer as MLX's graph, in the absorbed form
// (cpu_latent_attention.h says what that is). Engine thread only.

#include <functional>
#include <optional>

#include "mlx/mlx.h"
#include "runtime/model/forward_step.h"
#include "runtime/model/matrix.h"
#include "runtime/model/model_config.h"
#include "runtime/model/weight_loader.h"
#include "runtime/model/weight_needs.h"

namespace macrame::runtime::engine {

// What the layers share: how a position turns what is in the last dimension, and the cache, which
// takes a segment's keys [1, 1, count, width] and gives those of all its positions.
struct MlxLatentStep {
  const ForwardStep& step;
  std::function<mlx::core::array(const mlx::core::array&, int begin)> rotate;
  std::function<mlx::core::array(const Segment&, const mlx::core::array& keys)> append;
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
                       const mlx::core::array& keys, const MlxLatentStep& step) const;

  const LatentTraits traits_;
  const int heads_;
  std::optional<Matrix> q_a_;
  Matrix q_b_, kv_a_;
  StackedMatrix embed_q_, unembed_out_;  // [heads, rows of one, columns]
  std::optional<mlx::core::array> q_a_norm_;
  mlx::core::array kv_a_norm_;
};

}  // namespace macrame::runtime::engine
