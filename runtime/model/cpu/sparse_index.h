#pragma once

// The indexer of one layer on a CPU: which positions a row attends to, once there are more than
// traits.top (DeepSeek-V3.2, GLM-5). A row's score of a position is what its queries give for the
// position's key, none below zero, weighed and added up over the indexer's heads. The keys stand
// behind the latent ones in the KV cache (kernels/kv_view.h).
//
// Whole on each rank, so all choose alike. A row's choice depends on the row and its sequence
// alone: products don't depend on what is multiplied beside them (kernels/matmul.h), and of equal
// scores the earliest positions are taken.

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "runtime/kernels/attention.h"
#include "runtime/kernels/elementwise.h"
#include "runtime/kernels/thread_pool.h"
#include "runtime/model/config/model_config.h"
#include "runtime/model/cpu/linear.h"
#include "runtime/model/weights/weight_loader.h"
#include "runtime/model/weights/weight_needs.h"

namespace macrame::runtime::engine {

// Keys that are compared with queries at once.
inline constexpr size_t kIndexKeysAtOnce = 1024;
// Rows whose positions are chosen, copied and attended to at once.
inline constexpr size_t kSparseRowsAtOnce = 8;

// What all layers share: the memory of a step.
struct IndexWork {
  FloatBuffer queries{}, weights{};  // of all rows of a step
  FloatBuffer keys{};                // of positions that stand side by side
  FloatBuffer products{}, scores{};
  std::vector<int32_t> order{};
  kernels::Activations input{};
  kernels::Scratch scratch{};
  size_t memory_bytes() const {
    size_t bytes = input.memory_bytes() + scratch.memory_bytes() + order.size() * sizeof(int32_t);
    for (const FloatBuffer* buffer : {&queries, &weights, &keys, &products, &scores}) {
      bytes += buffer->bytes();
    }
    return bytes;
  }
};

class CpuSparseIndex {
 public:
  CpuSparseIndex(const ModelConfig& config, const IndexNeeds& needs, WeightLoader& loader);

  size_t top() const { return static_cast<size_t>(traits_.top); }
  size_t dim() const { return static_cast<size_t>(traits_.dim); }

  // The keys of `rows` rows x of normed hidden states, to out[row * stride]. `rotation`: of row 0;
  // the others' follow. `products` is left with x as its input.
  void MakeKeys(const float* x, size_t rows, const kernels::Rotation& rotation,
                CpuProducts& products, kernels::ThreadPool& pool, IndexWork& work, float* out,
                size_t stride) const;
  // Their queries and weights; `latent`: the normed vectors that queries are made from.
  void MakeQueries(const float* x, const float* latent, size_t rows,
                   const kernels::Rotation& rotation, CpuProducts& products,
                   kernels::ThreadPool& pool, IndexWork& work) const;
  // The top() positions of each row of the segment, at most kSparseRowsAtOnce rows whose positions
  // are top() or more: out [count][top()], from the lowest on.
  void Choose(const kernels::KvView& view, const kernels::AttentionSegment& segment,
              kernels::ThreadPool& pool, IndexWork& work, int32_t* out) const;

 private:
  // scores[row][begin + k] for the keys in work.keys.
  void AddScores(const kernels::AttentionSegment& segment, size_t begin, size_t count,
                 kernels::ThreadPool& pool, IndexWork& work) const;

  const IndexTraits traits_;
  CpuLinear wq_b_, wk_, weights_;
  std::vector<float> key_norm_, key_norm_bias_;
};

}  // namespace macrame::runtime::engine
