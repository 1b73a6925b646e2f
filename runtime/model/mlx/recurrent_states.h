#pragma once

// All sequences' states of a rank, and the snapshots of them, as MLX arrays (step/slot_states.h
// says which there are).
//
// Sequences that ran together share arrays, a row each: the run's result is kept as it is. While
// the same sequences run together in the same order, no state is copied between steps. Else the
// states of a run are put together from their rows, one primitive a layer and array; those that are
// left behind get arrays of their own, so that no sequence keeps another's state in memory.
//
// A copy of a state is another name for the same arrays: nothing writes into them. Engine thread
// only. Builds graphs; nothing is evaluated.

#include <memory>
#include <span>
#include <vector>

#include "mlx/mlx.h"
#include "runtime/model/mlx/recurrent.h"
#include "runtime/model/step/forward_step.h"
#include "runtime/model/step/slot_states.h"

namespace macrame::runtime::engine {

class MlxStates {
 public:
  MlxStates(int sequences_max, int snapshots)
      : states_(static_cast<size_t>(sequences_max)), snapshots_(static_cast<size_t>(snapshots)) {}

  // Before `slots` apply a step that they found good: the states of its closed slots can go.
  void Close(const ForwardStep& step, const SlotStates& slots);
  // After they did. `layers`: this rank's with a state and heads of it.
  void Begin(const ForwardStep& step, const SlotStates& slots,
             std::span<const MlxRecurrent* const> layers);
  // The step's runs through a layer, one of `layers`.
  std::span<MlxRun> Runs(size_t layer) { return runs_[layer]; }
  // After all layers ran: what the runs left are the states from now on.
  void End(const SlotStates& slots);
  // What the last step left, to be evaluated with its results.
  void Append(std::vector<mlx::core::array>& out) const;

 private:
  // Of some sequences: a state for each layer.
  struct Together {
    int sequences = 0;
    std::vector<MlxState> layers;
  };
  // One of them; none where no sequence is open.
  struct Held {
    std::shared_ptr<const Together> together;
    int row = 0;
  };
  static Held Alone(const Held& held);
  static MlxState PutTogether(std::span<const Held> held, size_t layer);
  void Open(std::span<const SlotStates::Opened> opened,
            std::span<const MlxRecurrent* const> layers);
  void SeparateThoseLeft();

  std::vector<Held> states_, snapshots_;
  Held zero_;                              // of a sequence without tokens; made when first used
  std::vector<std::vector<MlxRun>> runs_;  // of the step: by layer
  std::vector<std::vector<int>> ran_;      // of each run, its sequences' places in states_
  std::vector<SnapshotId> kept_;           // by the last step
};

}  // namespace macrame::runtime::engine
