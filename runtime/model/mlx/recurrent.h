#pragma once

// Layers with a state as MLX graphs (ModelConfig::recurrent): a rank's key heads, with the value
// heads that share them.
//
// Tokens go one after the other: some ten small nodes each and layer, so a prompt of 256 tokens
// takes thousands. That is right and slow; a chunked form or a kernel for Metal would be faster and
// has yet to be written where it can be tried. States are in float32.

#include <optional>
#include <span>
#include <vector>

#include "mlx/mlx.h"
#include "runtime/model/config/model_config.h"
#include "runtime/model/cuts/recurrent_cut.h"
#include "runtime/model/step/forward_step.h"
#include "runtime/model/step/slot_states.h"
#include "runtime/model/weights/linear.h"
#include "runtime/model/weights/weight_loader.h"
#include "runtime/model/weights/weight_needs.h"

namespace macrame::runtime::engine {

// Of one sequence and layer.
struct MlxState {
  mlx::core::array inputs;    // the convolution's last ones, [taps - 1, channels]
  mlx::core::array matrices;  // [value heads, value_dim, key_dim]
};

class MlxRecurrent {
 public:
  MlxRecurrent(const ModelConfig& config, const ShardPlace& place, const RecurrentNeeds& needs,
               WeightLoader& loader);

  // What the output map takes, [rows, value heads * value_dim], of x [rows, hidden]: the step's
  // segments, whose states (states[i] is segment i's) go on.
  mlx::core::array Apply(const mlx::core::array& x, const ForwardStep& step,
                         std::span<MlxState* const> states) const;
  MlxState ZeroState() const;

 private:
  struct Gates {
    mlx::core::array fades, shares;  // [tokens, value heads]
  };
  Gates GatesOf(const mlx::core::array& projected) const;
  mlx::core::array Convolved(const mlx::core::array& channels, MlxState& state) const;
  mlx::core::array NormedOut(const mlx::core::array& given, const mlx::core::array& z) const;
  // One segment's channels and gates: [tokens, value heads, value_dim].
  mlx::core::array Run(const mlx::core::array& channels, const Gates& gates, MlxState& state) const;

  const RecurrentCut cut_;
  const RecurrentTraits traits_;
  const float norm_eps_;
  std::vector<Linear> maps_;
  std::optional<mlx::core::array> order_;  // of the maps' results; unset: as they are
  mlx::core::array taps_;                  // [taps, channels]
  std::optional<mlx::core::array> taps_bias_, skip_;
  mlx::core::array rates_, step_bias_;  // of each value head: exp(A_log), dt_bias
  mlx::core::array norm_;
};

// All sequences' states of a rank and the snapshots: a copy is another name for the same arrays.
class MlxStates {
 public:
  MlxStates(int sequences_max, int snapshots)
      : states_(static_cast<size_t>(sequences_max)), snapshots_(static_cast<size_t>(snapshots)) {}

  // `layers`: this rank's with a state.
  void Open(std::span<const SlotStates::Opened> opened,
            std::span<const MlxRecurrent* const> layers);
  void Keep(std::span<const SlotStates::Kept> kept);
  MlxState& Layer(int state, size_t layer) { return states_[static_cast<size_t>(state)][layer]; }
  void Append(std::vector<mlx::core::array>& out) const;

 private:
  std::vector<std::vector<MlxState>> states_, snapshots_;
};

}  // namespace macrame::runtime::engine
