#pragma once

// A layer of experts as an MLX graph, for GPUs: gather_qmm (gather_mm for floats) over the stacked
// weights of the experts that this rank has a part of, so that only those that tokens chose are
// read.
//
// Of a rank that holds whole experts, choices that fall on others give zeros. In steps of few
// tokens they are computed all the same, with the rank's first expert, since taking them out costs
// a look at the choice before the graph goes on; from kPickedChoices on that is done.

#include <optional>

#include "mlx/mlx.h"
#include "runtime/model/config/model_config.h"
#include "runtime/model/weights/linear.h"
#include "runtime/model/weights/weight_loader.h"
#include "runtime/model/weights/weight_needs.h"

namespace macrame::runtime::engine {

// activation(gate) * up.
mlx::core::array MlxGated(Activation activation, const mlx::core::array& gate,
                          const mlx::core::array& up);

// down(activation(gate(x)) * up(x)) of one feed-forward, or without a gate, or clamped and joined
// as `clamped` says of experts unless it is null; zeros where this rank has no part of it.
mlx::core::array MlxFeed(const std::optional<Linear>& gate, const Linear& up, const Linear& down,
                         Activation activation, const ExpertTraits* clamped,
                         const mlx::core::array& x);

inline constexpr int kPickedChoices = 32;  // of all tokens of a step together

class MlxExperts {
 public:
  MlxExperts(const LayerNeeds& needs, const ModelConfig& config, WeightLoader& loader);
  // x [rows, hidden] -> this rank's part of the result, of the same shape and type.
  mlx::core::array Apply(const mlx::core::array& x) const { return Apply(x, x); }
  // `seen`: what the router goes by, where that is not what the experts are given.
  mlx::core::array Apply(const mlx::core::array& x, const mlx::core::array& seen) const;

 private:
  struct Shared {
    std::optional<Linear> gate;
    Linear up, down;
    std::optional<Linear> router;
  };
  struct Choice {
    mlx::core::array experts, weights;  // [rows, active]
  };
  Choice Choose(const mlx::core::array& x) const;
  // What each of [rows, active] choices gives, [rows, active, hidden].
  mlx::core::array Given(const mlx::core::array& x, const mlx::core::array& experts) const;
  // The same of choices among all experts, of which this rank holds some; zeros for the others.
  mlx::core::array GivenByOwn(const mlx::core::array& x, const mlx::core::array& chosen) const;
  mlx::core::array GivenByPicked(const mlx::core::array& x, const mlx::core::array& chosen) const;
  int own_experts() const { return up_.has_value() ? up_->weight.shape(0) : 0; }

  // Of x [rows, 1, 1, hidden].
  mlx::core::array Inner(const mlx::core::array& x, const mlx::core::array& experts) const;

  ExpertTraits traits_;
  Activation activation_;
  const bool clamped_shared_;
  Linear router_;
  std::optional<mlx::core::array> score_bias_;
  std::optional<mlx::core::array> expert_scales_;  // of each one's weight
  int first_expert_;                               // of this rank's
  // [experts, rows, columns]; up and down unset on a rank without experts.
  std::optional<StackedLinear> gate_, up_, down_;
  std::optional<Shared> shared_;
};

}  // namespace macrame::runtime::engine
