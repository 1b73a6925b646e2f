#pragma once

// DeepSeek-V4.1's attention of one layer on a CPU (ModelConfig::compress). A row attends to the
// window's vectors and to the entries that were chosen for it, which are copied side by side; so
// its bits depend on its sequence alone, as everywhere (cpu_model.h). What is looked at stands in
// KV blocks: a position's vector, and an entry at the last position of its group, so that both are
// found again with a cached prefix.

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "runtime/kernels/attention.h"
#include "runtime/kernels/elementwise.h"
#include "runtime/kernels/thread_pool.h"
#include "runtime/model/config/model_config.h"
#include "runtime/model/config/rope.h"
#include "runtime/model/cpu/compressed_index.h"
#include "runtime/model/cpu/linear.h"
#include "runtime/model/cuts/carried.h"
#include "runtime/model/weights/weight_loader.h"
#include "runtime/model/weights/weight_needs.h"

namespace macrame::runtime::engine {

// What all layers share: the memory of a step, and what its rows look at.
class CompressedWork {
 public:
  CompressedWork(const ModelConfig& config, kernels::ThreadPool& pool, CpuProducts& products,
                 kernels::AttentionScratch& scratch);
  // From rows that came from the stage before, and into those that go on.
  void Take(const float* carried, const CarriedRow& layout, size_t rows);
  void Put(float* carried, const CarriedRow& layout) const;
  // Of the row that ends a group: its entry, then its index key.
  const float* Entry(size_t row) const { return entries_.data() + row * entry_width_; }
  size_t memory_bytes() const;

 private:
  friend class CpuCompressedAttention;
  kernels::ThreadPool& pool_;
  CpuProducts& products_;
  kernels::AttentionScratch& scratch_;
  const size_t entry_width_;
  size_t rows_ = 0;
  FloatBuffer entries_;  // [rows, entry_width_]
  EntryChoice choice_;
  IndexWork index_;
  FloatBuffer query_latent_, keys_, pooled_, gates_, latents_, index_keys_;
  FloatBuffer queries_, mixed_, group_in_, group_out_, inverse_sines_;
  FloatBuffer seen_;  // what rows look at, as it is stored
  std::vector<int32_t> seen_blocks_;
};

struct CompressedStep {
  kernels::KvView window{};
  std::optional<kernels::KvView> entries{};  // that the layer looks at, or makes
  std::span<const kernels::AttentionSegment> segments{};
  // Of each segment the open group's numbers (OpenGroups); empty unless the layer pools.
  std::span<float* const> open{};
  size_t rows = 0;
  const float* sinks = nullptr;  // of this rank's heads
  const RopeTable* rope = nullptr;
  kernels::Rotation rotation{};  // of row 0; the others' follow
};

class CpuCompressedAttention {
 public:
  CpuCompressedAttention(const ModelConfig& config, const ShardPlace& place, int layer,
                         const CompressedNeeds& needs, WeightLoader& loader);

  // out [rows, own groups x group_rank] of x [rows, hidden], normed hidden states. A rank without
  // heads writes nothing to it, but makes and chooses entries like the others.
  void Apply(const float* x, const CompressedStep& step, CompressedWork& work, float* out) const;
  bool pools() const { return entry_gate_.has_value(); }

 private:
  using Floats = std::vector<float>;
  void Project(const float* x, const CompressedStep& step, CompressedWork& work) const;
  void StoreKeys(const CompressedStep& step, CompressedWork& work) const;
  void MakeEntries(const CompressedStep& step, CompressedWork& work) const;
  void Pool(const CompressedStep& step, size_t segment, size_t row, const CompressedWork& work,
            float* out) const;
  void KeepOpen(const CompressedStep& step, size_t segment, const CompressedWork& work) const;
  void Mix(const CompressedStep& step, size_t begin, size_t end, CompressedWork& work) const;
  // Of at most kSparseRowsAtOnce rows of one sequence.
  void MixRows(const CompressedStep& step, const kernels::AttentionSegment& rows, size_t begin,
               CompressedWork& work) const;
  void GroupOut(const CompressedStep& step, size_t begin, size_t end, CompressedWork& work,
                float* out) const;

  const CompressTraits traits_;
  const size_t ratio_, dim_, groups_, heads_;  // of this rank the last two
  const float norm_eps_;
  CpuLinear q_a_, q_b_, kv_;
  std::vector<CpuLinear> group_out_;
  Floats q_a_norm_, kv_norm_;
  std::optional<CpuLinear> entry_, entry_gate_, index_key_;
  Floats entry_norm_, index_key_norm_;
  std::optional<CpuCompressedIndex> index_;
};

}  // namespace macrame::runtime::engine
