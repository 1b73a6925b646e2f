#pragma once

// Inputs that layers take of their own (ModelConfig::layer_input_width) on a CPU: made for all
// layers where tokens are embedded, and what a layer adds of its own. Whole on every rank; a row's
// bits depend on the row alone.

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "mlx/mlx.h"
#include "runtime/kernels/thread_pool.h"
#include "runtime/model/config/model_config.h"
#include "runtime/model/cpu/linear.h"
#include "runtime/model/step/rank_sums.h"
#include "runtime/model/weights/weight_loader.h"
#include "runtime/model/weights/weight_needs.h"

namespace macrame::runtime::engine {

// What both of them work in.
struct LayerInputWork {
  kernels::ThreadPool& pool;
  CpuProducts& products;
  FloatBuffer first{}, second{};
  size_t memory_bytes() const { return first.bytes() + second.bytes(); }
};

// Rows of numbers, `stride` apart.
template <typename Number>
struct StridedRows {
  Number* data = nullptr;
  size_t stride = 0;
};

class CpuLayerInputs {
 public:
  CpuLayerInputs(const InputNeeds& needs, const ModelConfig& config, WeightLoader& loader);

  // out[row] = the inputs of all layers for ids[row], whose embedding is hidden[row]. `sums`: over
  // the ranks that share the table's rows, of which this one has `own`.
  void Make(std::span<const int32_t> ids, const float* hidden, const Range& own, RankSums& sums,
            LayerInputWork& work, const StridedRows<float>& out) const;

 private:
  float scale_;             // of what the table has
  float projection_scale_;  // of what the embedding gives
  float epsilon_;
  CpuLinear table_, projection_;
  std::vector<float> norm_;
};

class CpuLayerInput {
 public:
  CpuLayerInput(const LayerInputNeeds& needs, const ModelConfig& config, WeightLoader& loader);

  // out[row] = norm(projection(gelu(gate(hidden[row])) * inputs[row])).
  void Apply(const float* hidden, size_t count, const StridedRows<const float>& inputs,
             LayerInputWork& work, float* out) const;

 private:
  float epsilon_;
  CpuLinear gate_, projection_;
  std::vector<float> norm_;
};

}  // namespace macrame::runtime::engine
