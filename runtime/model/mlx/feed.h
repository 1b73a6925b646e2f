#pragma once

// A feed-forward as an MLX graph: two products and one elementwise kernel on a GPU.
//
// Engine thread only, as are the graphs that it builds.

#include <optional>

#include "mlx/mlx.h"
#include "runtime/model/config/model_config.h"
#include "runtime/model/mlx/fused.h"
#include "runtime/model/weights/linear.h"
#include "runtime/model/weights/weight_loader.h"
#include "runtime/model/weights/weight_needs.h"

namespace macrame::runtime::engine {

// activation(gate) * up.
mlx::core::array MlxGated(Activation activation, const mlx::core::array& gate,
                          const mlx::core::array& up);

// What stands between a feed-forward's products: activation(gate) * up, or the clamped SwiGLU of
// `clamped`, min(gate, limit) * sigmoid(alpha * that) * (clip(up, -limit, limit) + 1), or with its
// gate_limit activation(min(gate, limit)) * clip(up, -limit, limit); without a gate the square of
// what is above zero.
class MlxActivation {
 public:
  // `clamped`: null where nothing is.
  MlxActivation(const ModelConfig& config, const ExpertTraits* clamped, const WeightLoader& loader);

  // gate and up, each [..., width] -> [..., width].
  mlx::core::array Apply(const mlx::core::array& gate, const mlx::core::array& up) const;
  // The product of joined maps: [..., 2 * width], the gate's half first; or of `up` alone where
  // there is no gate.
  mlx::core::array Apply(const mlx::core::array& product) const;

 private:
  const bool gated_;
  const Fused function_;
  // Limit and alpha of the clamped form, or the gate's limit.
  std::vector<mlx::core::array> constants_;
};

// down(activation(gate(x)) * up(x)) of this rank's part of the inner width; zeros, or a bias, where
// that is nothing. Gate and up are one product where their formats agree
// (WeightLoader::LoadJoined).
class MlxFeed {
 public:
  MlxFeed(const FeedNeeds& needs, const ModelConfig& config, WeightLoader& loader)
      : MlxFeed(needs, config, loader, config.clamped_feeds ? &config.experts : nullptr) {}
  // `clamped`: as MlxActivation has it.
  MlxFeed(const FeedNeeds& needs, const ModelConfig& config, WeightLoader& loader,
          const ExpertTraits* clamped);
  // x [rows, hidden] -> this rank's part of the result, of the same shape and type.
  mlx::core::array Apply(const mlx::core::array& x) const;

 private:
  std::optional<Linear> joined_;     // gate's rows, then up's
  std::optional<Linear> gate_, up_;  // where they are not joined; `gate_` unset: there is none
  const Linear down_;
  const MlxActivation activation_;
};

}  // namespace macrame::runtime::engine
