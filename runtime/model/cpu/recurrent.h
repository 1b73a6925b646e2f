#pragma once

// Layers with a state on a CPU (ModelConfig::recurrent): a rank's key heads, with the value heads
// that share them. Results in float32; a token's bits depend on the tokens before it alone.

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "runtime/kernels/thread_pool.h"
#include "runtime/model/config/model_config.h"
#include "runtime/model/cpu/linear.h"
#include "runtime/model/cuts/recurrent_cut.h"
#include "runtime/model/step/slot_states.h"
#include "runtime/model/weights/weight_loader.h"
#include "runtime/model/weights/weight_needs.h"

namespace macrame::runtime::engine {

// The numbers of all sequences' states and of the snapshots: of each, all of this rank's layers one
// after the other. Memory is taken when a state or snapshot is first used. Engine thread only.
class CpuStates {
 public:
  CpuStates(size_t layers, size_t layer_floats, int sequences_max, int snapshots);

  void Open(std::span<const SlotStates::Opened> opened);
  void Keep(std::span<const SlotStates::Kept> kept);
  float* Layer(int state, size_t layer) {
    return states_[static_cast<size_t>(state)].data() + layer * layer_floats_;
  }
  uint64_t memory_bytes() const;

 private:
  const size_t layer_floats_;
  const size_t floats_;
  std::vector<FloatBuffer> states_, snapshots_;
};

// A run of one sequence's tokens.
struct RecurrentSegment {
  size_t row = 0;  // of its first token
  size_t count = 0;
  int state = 0;
};

// What all layers share.
struct RecurrentWork {
  kernels::ThreadPool& pool;
  CpuProducts& products;
  // Of each row: what the input maps give, one map after the other and then in the order of
  // RecurrentCut::projected(); the channels behind the convolution; fades and shares of each head.
  FloatBuffer given{}, projected{}, convolved{}, gates{};
  std::vector<size_t> segment_of_row{};

  size_t memory_bytes() const {
    return given.bytes() + projected.bytes() + convolved.bytes() + gates.bytes() +
           segment_of_row.capacity() * sizeof(size_t);
  }
};

class CpuRecurrent {
 public:
  CpuRecurrent(const ModelConfig& config, const ShardPlace& place, const RecurrentNeeds& needs,
               WeightLoader& loader, size_t layer);

  // out [rows, value heads * value_dim] of x [rows, hidden], whose states go on.
  void Apply(const float* x, size_t rows, std::span<const RecurrentSegment> segments,
             CpuStates& states, RecurrentWork& work, float* out) const;

 private:
  struct Step {
    size_t rows;
    std::span<const RecurrentSegment> segments;
    CpuStates& states;
    RecurrentWork& work;
  };
  // Neighbours in ProjectedOrder that are neighbours in a map's rows.
  struct Piece {
    size_t map, from, to, count;
  };
  static std::vector<Piece> PiecesOf(const std::vector<int>& order,
                                     const std::vector<CpuLinear>& maps);
  void Project(const float* x, const Step& step) const;
  void Convolve(const Step& step, size_t row) const;
  void KeepInputs(const Step& step, const RecurrentSegment& segment) const;
  void MeasureKeys(float* channels) const;
  void Gate(const Step& step, size_t row) const;
  void RunHead(const Step& step, const RecurrentSegment& segment, size_t head, float* out) const;
  void NormOut(const Step& step, size_t row, float* out) const;

  const RecurrentCut cut_;
  const RecurrentTraits traits_;
  const size_t layer_;  // of the states
  const float norm_eps_;
  std::vector<CpuLinear> maps_;
  std::vector<Piece> pieces_;
  std::vector<float> taps_;               // [taps][channels]
  std::vector<float> taps_bias_;          // empty: none
  std::vector<float> rates_, step_bias_;  // of each head: exp(A_log), dt_bias
  std::vector<float> skip_;               // of each head of a state space
  std::vector<float> norm_;
  std::vector<float> query_scale_, key_scale_;  // what their norms are multiplied by
};

}  // namespace macrame::runtime::engine
