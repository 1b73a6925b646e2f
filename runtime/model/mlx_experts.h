#pragma once

// A layer of experts as an MLX graph, for GPUs: gather_qmm (gather_mm for floats) over the stacked
// weights of all experts, so that only those that tokens chose are read.

#include <optional>

#include "mlx/mlx.h"
#include "runtime/model/matrix.h"
#include "runtime/model/model_config.h"
#include "runtime/model/weight_loader.h"
#include "runtime/model/weight_needs.h"

namespace macrame::runtime::engine {

// activation(gate) * up.
mlx::core::array MlxGated(Activation activation, const mlx::core::array& gate,
                          const mlx::core::array& up);

// down(activation(gate(x)) * up(x)) of one feed-forward, or without a gate; zeros where this rank
// has no part of it.
mlx::core::array MlxFeed(const std::optional<Matrix>& gate, const Matrix& up, const Matrix& down,
                         Activation activation, const mlx::core::array& x);

class MlxExperts {
 public:
  MlxExperts(const LayerNeeds& needs, const ModelConfig& config, WeightLoader& loader);
  // x [rows, hidden] -> this rank's part of the result, of the same shape and type.
  mlx::core::array Apply(const mlx::core::array& x) const { return Apply(x, x); }
  // `seen`: what the router goes by, where that is not what the experts are given.
  mlx::core::array Apply(const mlx::core::array& x, const mlx::core::array& seen) const;

 private:
  struct Shared {
    std::optional<Matrix> gate;
    Matrix up, down;
    std::optional<Matrix> router;
  };
  struct Choice {
    mlx::core::array experts, weights;  // [rows, active]
  };
  Choice Choose(const mlx::core::array& x) const;

  // Of x [rows, 1, 1, hidden].
  mlx::core::array Inner(const mlx::core::array& x, const mlx::core::array& experts) const;

  ExpertTraits traits_;
  Activation activation_;
  Matrix router_;
  std::optional<mlx::core::array> score_bias_;
  std::optional<mlx::core::array> expert_scales_;  // of each one's weight
  std::optional<StackedMatrix> gate_;              // [experts, rows, columns], like the others
  StackedMatrix up_, down_;
  std::optional<Shared> shared_;
};

}  // namespace macrame::runtime::engine
