#pragma once

// A layer's feed-forward on a CPU: one for all tokens, or experts of which each token takes a few.
//
// Both give this rank's part of the result, which is summed over the tensor ranks: of each expert
// that was chosen, or of those alone that it holds. A row's bits
// depend on the row alone: its experts' parts are added in the order of their numbers, and products
// don't depend on what is multiplied beside them.

#include <cstddef>
#include <optional>
#include <span>
#include <vector>

#include "runtime/kernels/thread_pool.h"
#include "runtime/model/cpu/expert_choice.h"
#include "runtime/model/cpu/linear.h"
#include "runtime/model/weights/weight_loader.h"
#include "runtime/model/weights/weight_needs.h"

namespace macrame::runtime::engine {

// Calls function(row) for each of `count` rows: on all threads if that is worth waking them.
template <typename Function>
void ForRows(kernels::ThreadPool& pool, size_t count, size_t floats_per_row,
             const Function& function) {
  constexpr size_t kFloatsAloneMax = 32 * 1024;
  if (count * floats_per_row <= kFloatsAloneMax) {
    for (size_t row = 0; row < count; ++row) function(row);
    return;
  }
  pool.Run([&](int worker, int workers) {
    const auto part = kernels::RowsOfWorker(count, 1, worker, workers);
    for (size_t row = part.begin; row < part.end; ++row) function(row);
  });
}

// What all layers' feed-forwards share.
struct FeedWork {
  kernels::ThreadPool& pool;
  CpuProducts& products;
  FloatBuffer gate{}, up{};
  // Of layers with experts.
  FloatBuffer scores{}, taken{}, given{};
  std::vector<ExpertChoice> choices{};
  std::vector<size_t> by_expert{};  // indices of the choices, each expert's side by side

  size_t memory_bytes() const {
    return gate.bytes() + up.bytes() + scores.bytes() + taken.bytes() + given.bytes() +
           choices.capacity() * sizeof(ExpertChoice) + by_expert.capacity() * sizeof(size_t);
  }
};

// down(activation(gate(x)) * up(x)), or gated as the experts' traits say, or without a gate.
class CpuFeed {
 public:
  // One that all tokens take. `gate_limit`: as ExpertTraits has it.
  CpuFeed(const FeedNeeds& needs, const ModelConfig& config, WeightLoader& loader,
          float gate_limit = 0.0F);
  // An expert.
  CpuFeed(std::optional<CpuLinear> gate, CpuLinear up, CpuLinear down, const ModelConfig& config);

  // out [count, hidden] = the part that this rank has of the result for x [count, hidden].
  void Apply(const float* x, size_t count, FeedWork& work, float* out) const;

 private:
  void ApplyWithoutGate(const float* x, size_t count, FeedWork& work, float* out) const;

  std::optional<CpuLinear> gate_;  // unset: none
  CpuLinear up_, down_;
  Activation activation_;
  float swiglu_limit_ = 0.0F, swiglu_alpha_ = 0.0F;
  float gate_limit_ = 0.0F;
};

class CpuExperts {
 public:
  CpuExperts(const LayerNeeds& needs, const ModelConfig& config, WeightLoader& loader);

  void Apply(const float* x, size_t count, FeedWork& work, float* out) const {
    Apply(x, x, count, work, out);
  }
  // `seen`: what the router goes by, where that is not what the experts are given.
  void Apply(const float* x, const float* seen, size_t count, FeedWork& work, float* out) const;

 private:
  void ApplyShared(const float* x, size_t count, FeedWork& work, float* out) const;
  void Choose(const float* x, size_t count, FeedWork& work) const;
  // work.by_expert: the choices that fall on this rank's experts.
  void SortByExpert(FeedWork& work) const;

  ExpertTraits traits_;
  CpuLinear router_;
  std::vector<float> score_bias_;     // empty: none
  std::vector<float> expert_scales_;  // of each one's weight; empty: none
  int first_expert_;                  // of this rank's
  std::vector<CpuFeed> experts_;
  std::optional<CpuFeed> shared_;
  std::optional<CpuLinear> shared_router_;
};

}  // namespace macrame::runtime::engine
