#pragma once

// A layer of experts as an MLX graph: gather_qmm (gather_mm for floats) over the stacked weights of
// the experts that this rank has a part of, so that only those that tokens chose are read. Gate and
// up of all experts are one product where their formats agree.
//
// From kSortedChoices on the choices of a step are sorted by expert, as mlx-lm does it: MLX then
// reads each expert's weights once for all rows that chose it.
//
// A rank that holds whole experts does not know how many choices are its own until the router has
// run. Waiting for that would stop the graph in every layer, so the graph has the shape of all
// choices: those of other ranks go to this rank's last expert, behind its own when sorted, and what
// they give is replaced by zeros. No other expert's weights are read for them. It costs two
// primitives a layer and the products of all choices instead of this rank's alone. Few rows are
// bound by the reading of weights and lose next to nothing; long prompts are bound by the products,
// and whole experts make the experts' part of a prompt no faster than one rank is. Experts cut by
// their width have neither cost.
//
// Engine thread only. Nothing is evaluated while a graph is built.

#include <cstdint>
#include <optional>

#include "mlx/mlx.h"
#include "runtime/model/config/model_config.h"
#include "runtime/model/mlx/feed.h"
#include "runtime/model/mlx/fused.h"
#include "runtime/model/weights/linear.h"
#include "runtime/model/weights/weight_loader.h"
#include "runtime/model/weights/weight_needs.h"

namespace macrame::runtime::engine {

inline constexpr int kSortedChoices = 64;  // of all tokens of a step together

class MlxExperts {
 public:
  MlxExperts(const LayerNeeds& needs, const ModelConfig& config, WeightLoader& loader);
  // x [rows, hidden] -> this rank's part of the result, of the same shape and type.
  mlx::core::array Apply(const mlx::core::array& x) const { return Apply(x, x); }
  // `seen`: what the router goes by, where that is not what the experts are given.
  mlx::core::array Apply(const mlx::core::array& x, const mlx::core::array& seen) const;

 private:
  struct Shared {
    MlxFeed feed;
    std::optional<Linear> router;
  };
  // Of a rank that holds some of a layer's experts whole.
  struct Dealt {
    mlx::core::array first, last;  // among all experts; and the last among its own
    Fused to_own, only_own;
  };
  struct Scores {
    mlx::core::array by;       // experts are chosen by them
    mlx::core::array weighed;  // the chosen ones' weights follow from them
  };
  struct Choice {
    mlx::core::array experts;  // [rows, active], among all of the layer
    mlx::core::array weights;  // of the activation type
  };
  Choice Choose(const mlx::core::array& seen) const;
  // [rows, experts].
  Scores ScoresOf(const mlx::core::array& seen) const;
  mlx::core::array WeightsOf(const mlx::core::array& scores, const mlx::core::array& experts) const;
  // The sum of what the chosen experts that this rank has give, weighed; [rows, hidden].
  mlx::core::array Given(const mlx::core::array& x, const Choice& choice) const;
  // What each choice gives, [rows, active, hidden]; `experts` count among those of this rank.
  mlx::core::array Each(const mlx::core::array& x, const mlx::core::array& experts) const;
  mlx::core::array EachSorted(const mlx::core::array& x, const mlx::core::array& experts) const;
  // x [..., 1, hidden], for the choices [..., active].
  mlx::core::array Down(const mlx::core::array& x, const mlx::core::array& experts,
                        bool sorted) const;
  mlx::core::array Product(const StackedLinear& map, const mlx::core::array& x,
                           const mlx::core::array& experts, bool sorted) const;
  int own_experts() const { return down_.has_value() ? down_->weight.shape(0) : 0; }
  // Whether this rank gives anything but zeros.
  bool has_experts() const { return own_experts() > 0 && (has_width_ || down_->bias.has_value()); }

  const ExpertTraits traits_;
  Linear router_;
  std::optional<mlx::core::array> score_bias_;
  std::optional<mlx::core::array> expert_scales_;  // of each one's weight
  // [experts, rows, columns]; unset on a rank without experts. Gate and up are joined or apart.
  std::optional<StackedLinear> joined_, gate_, up_, down_;
  bool has_width_ = false;
  std::optional<Dealt> dealt_;
  std::optional<Shared> shared_;
  const MlxActivation activation_;
  const Fused scores_, weights_, add_shared_;
  // Made once, so that no step makes them. Scalars: zero of the activation type, of scores, the
  // weights' scale, a token's choices.
  mlx::core::array zero_, group_zero_, weight_scale_, active_;
  mlx::core::array counting_;  // 0 to kSortedChoices - 1
};

}  // namespace macrame::runtime::engine
