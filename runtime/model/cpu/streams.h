#pragma once

// Residual streams on a CPU (ModelConfig::streams): what half a layer reads of them, and how what
// it gives goes back into them. In float32; a row's bits depend on the row alone.

#include <cstddef>
#include <vector>

#include "runtime/kernels/thread_pool.h"
#include "runtime/model/config/model_config.h"
#include "runtime/model/cpu/linear.h"
#include "runtime/model/cuts/carried.h"
#include "runtime/model/weights/weight_loader.h"
#include "runtime/model/weights/weight_needs.h"

namespace macrame::runtime::engine {

// How half a layer weighs the streams.
class CpuStreamMix {
 public:
  CpuStreamMix(const StreamNeeds& needs, WeightLoader& loader);

 private:
  friend class CpuStreams;
  CpuLinear map_;
  std::vector<float> base_, scale_;
};

// The streams of a step's rows. Engine thread only.
class CpuStreams {
 public:
  CpuStreams(const ModelConfig& config, kernels::ThreadPool& pool, CpuProducts& products);

  // From rows that came from the stage before, and into those that go on.
  void Take(const float* carried, const CarriedRow& layout, size_t rows);
  void Put(float* carried, const CarriedRow& layout) const;
  // What a half layer reads, [rows, hidden]: the streams weighed as the half before it said. `mix`
  // says how the half's result is added, and how the next half reads.
  void Begin(const CpuStreamMix& mix, float* hidden);
  // `given` [rows, hidden]: what the half layer gave.
  void End(const float* given);
  // One carried row as a hidden state.
  void Collapse(const float* carried, float* hidden) const;
  size_t memory_bytes() const;

 private:
  void Weigh(const CpuStreamMix& mix, size_t row);
  void Balance(float* matrix) const;

  const StreamTraits traits_;
  const size_t count_, hidden_;
  const float norm_eps_;
  kernels::ThreadPool& pool_;
  CpuProducts& products_;
  const std::vector<float> ones_;
  size_t rows_ = 0;
  FloatBuffer streams_, weights_;  // [rows, count * hidden], [rows, count]
  FloatBuffer normed_, mixes_;     // [rows, count * hidden], [rows, mixes]
};

}  // namespace macrame::runtime::engine
