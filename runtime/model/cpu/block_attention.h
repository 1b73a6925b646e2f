#pragma once

// Attention of one layer on a CPU whose key-value heads choose the blocks of positions that they
// attend to (ModelConfig::block_index). Rows that see no more blocks than may be chosen attend to
// all; of the others each key-value head attends to its chosen blocks like a sequence of one head
// that has these blocks alone, so nothing is copied. The indexer's keys stand in KV blocks of their
// own, so they are found again with a cached prefix.
//
// A row's choice, and so its bits, depend on its sequence alone: products don't depend on what is
// multiplied beside them (kernels/matmul.h), and of equal scores the earliest blocks are taken.

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

// Rows whose blocks are chosen at once.
inline constexpr size_t kBlockRowsAtOnce = 32;

// What all layers share: the memory of a step.
class BlockAttentionWork {
 public:
  BlockAttentionWork(kernels::ThreadPool& pool, CpuProducts& products,
                     kernels::AttentionScratch& scratch)
      : pool_(pool), products_(products), scratch_(scratch) {}
  size_t memory_bytes() const;

 private:
  friend class CpuBlockAttention;
  kernels::ThreadPool& pool_;
  CpuProducts& products_;
  kernels::AttentionScratch& scratch_;
  FloatBuffer queries_{}, keys_{};  // the indexer's, of all rows of a step
  FloatBuffer read_{};              // keys of positions that stand side by side
  FloatBuffer products_out_{}, scores_{};
  kernels::Activations input_{};
  kernels::Scratch product_scratch_{};
  std::vector<int32_t> order_{}, tables_{};
  std::vector<kernels::AttentionSegment> dense_{}, chosen_{};
};

struct BlockStep {
  kernels::KvView kv;    // of this rank's heads
  kernels::KvView keys;  // of the indexer: a latent cache of index_dim numbers alone
  std::span<const kernels::AttentionSegment> segments;
  size_t rows = 0;
  kernels::Rotation rotation;  // of row 0; the others' follow
};

class CpuBlockAttention {
 public:
  CpuBlockAttention(const ModelConfig& config, const ShardPlace& place,
                    const BlockIndexNeeds& needs, WeightLoader& loader);

  // Stores the index keys of all rows and makes the queries of those that choose. The normed hidden
  // states must be the input of the products.
  void Project(const BlockStep& step, BlockAttentionWork& work) const;
  // out [rows, heads x dim] = attention of queries, of the same shape, over positions that were
  // stored before.
  void Attend(const BlockStep& step, const float* queries, float* out,
              BlockAttentionWork& work) const;

 private:
  using Floats = std::vector<float>;
  // Of at most kBlockRowsAtOnce rows of one sequence, which all choose.
  void AttendChosen(const BlockStep& step, const kernels::AttentionSegment& rows,
                    const float* queries, float* out, BlockAttentionWork& work) const;
  // scores_[row][index head][block], of blocks that a row sees.
  void Score(const BlockStep& step, const kernels::AttentionSegment& rows,
             BlockAttentionWork& work) const;
  // order_[row][index head][block]: the chosen ones first, ascending.
  void Choose(const kernels::AttentionSegment& rows, BlockAttentionWork& work) const;
  size_t BlocksAt(size_t position) const { return position / size_ + 1; }

  const size_t top_, size_, local_, dim_;
  const size_t heads_;     // query heads that share a key-value head
  const size_t kv_heads_;  // of this rank
  const size_t index_heads_;
  std::vector<size_t> index_head_;  // of each of this rank's key-value heads, among its own
  const float norm_eps_;
  CpuLinear query_, key_;
  Floats query_norm_, key_norm_;
};

}  // namespace macrame::runtime::engine
