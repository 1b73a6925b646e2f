#pragma once

// Layers with a state as MLX graphs (ModelConfig::recurrent): a rank's key heads, with the value
// heads that share them.
//
// A step's segments come as runs: neighbours with the same number of tokens, whose states are one
// array each, so that sequences that decode together cost the primitives of one. The number of
// primitives of a run does not depend on its tokens, but see recurrence.h.
//
// The convolution's inputs are kept in the activation type, in which they were computed; what
// follows them is float32.

#include <optional>
#include <span>
#include <vector>

#include "mlx/mlx.h"
#include "runtime/model/config/model_config.h"
#include "runtime/model/cuts/recurrent_cut.h"
#include "runtime/model/mlx/fused.h"
#include "runtime/model/mlx/recurrence.h"
#include "runtime/model/weights/linear.h"
#include "runtime/model/weights/weight_loader.h"
#include "runtime/model/weights/weight_needs.h"

namespace macrame::runtime::engine {

// Of one layer and one or more sequences.
struct MlxState {
  mlx::core::array inputs;    // the convolution's last ones, [sequences, taps - 1, channels]
  mlx::core::array matrices;  // [sequences, value heads, value_dim, key_dim], float32
};

// Rows of a step that follow each other: the same number of tokens of each of some sequences.
struct MlxRun {
  int row = 0;  // the first one
  int sequences = 0;
  int tokens = 0;  // of each sequence
  MlxState state;  // before the run; Apply puts the one behind it here
};

// Builds graphs; nothing is evaluated. Engine thread only.
class MlxRecurrent {
 public:
  MlxRecurrent(const ModelConfig& config, const ShardPlace& place, const RecurrentNeeds& needs,
               WeightLoader& loader);

  // What the output map takes, [rows, value heads * value_dim], of x [rows, hidden], whose rows are
  // those of the runs.
  mlx::core::array Apply(const mlx::core::array& x, std::span<MlxRun> runs) const;
  // Of one sequence that has no tokens yet.
  MlxState ZeroState() const;
  bool has_heads() const { return cut_.value_heads > 0; }

 private:
  mlx::core::array Projected(const mlx::core::array& x) const;
  // Of a run's part of what is projected.
  mlx::core::array Run(const mlx::core::array& projected, MlxRun& run) const;
  mlx::core::array Convolved(const mlx::core::array& channels, MlxState& state) const;
  MlxRecurrence::Tokens TokensOf(const mlx::core::array& convolved,
                                 const mlx::core::array& projected) const;
  // [sequences, tokens, value heads, value_dim] -> [rows, all of them].
  mlx::core::array NormedOut(const mlx::core::array& given, const mlx::core::array& values,
                             const mlx::core::array& projected) const;

  const RecurrentCut cut_;
  const RecurrentTraits traits_;
  const bool is_delta_;
  const float norm_eps_;
  const mlx::core::Dtype type_;  // of activations
  // One map in the order of RecurrentCut::projected(); or, where their formats differ, all of them,
  // whose results are put in this order.
  std::vector<Linear> maps_;
  std::optional<mlx::core::array> order_;
  std::vector<mlx::core::array> taps_;  // of each tap [channels], then the bias if there is one
  std::vector<mlx::core::array> gate_numbers_;  // what the gates are made with
  std::vector<mlx::core::array> skip_;          // of a state space: [value heads, 1]
  mlx::core::array norm_, key_scale_;
  const MlxRecurrence recurrence_;
  const Fused convolve_, gates_, gate_out_, scale_out_;
};

}  // namespace macrame::runtime::engine
