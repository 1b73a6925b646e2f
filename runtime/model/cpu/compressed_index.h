#pragma once

// Which entries a row looks at (ModelConfig::compress), on a CPU: the indexer of one layer that
// chooses. An entry's score is what the row's queries give for its key, none below zero, weighed
// and added up over the indexer's heads. Keys stand behind the entries in their KV blocks, an entry
// at the last position of its group.
//
// Whole on each rank, so all choose alike. A row's choice depends on its sequence alone; of equal
// scores the earliest entries are taken.

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "runtime/kernels/attention.h"
#include "runtime/kernels/elementwise.h"
#include "runtime/kernels/thread_pool.h"
#include "runtime/model/config/model_config.h"
#include "runtime/model/cpu/linear.h"
#include "runtime/model/cpu/sparse_index.h"
#include "runtime/model/weights/weight_loader.h"
#include "runtime/model/weights/weight_needs.h"

namespace macrame::runtime::engine {

// What the rows of a step look at, as the last layer that chose left it.
struct EntryChoice {
  // Of each row `width` numbers, ascending, of which the first `counts` of the row hold.
  struct Lists {
    size_t width = 0;
    std::vector<int32_t> numbers{};
    std::vector<size_t> counts{};
    void Reset(size_t rows);
    std::span<int32_t> Of(size_t row) { return {numbers.data() + row * width, counts[row]}; }
    std::span<const int32_t> Of(size_t row) const {
      return {numbers.data() + row * width, counts[row]};
    }
    void Set(size_t row, std::span<const int32_t> from);
    // From and to a carried row, where -1 ends a list that does not fill it.
    void Read(size_t row, const float* from);
    void Write(size_t row, float* to) const;
    size_t memory_bytes() const {
      return numbers.capacity() * sizeof(int32_t) + counts.capacity() * sizeof(size_t);
    }
  };
  Lists chosen{}, candidates{};
};

class CpuCompressedIndex {
 public:
  CpuCompressedIndex(const ModelConfig& config, int layer, const CompressedNeeds& needs,
                     WeightLoader& loader);

  // Of all rows of a step: x [rows, hidden] normed hidden states, `latent` [rows, q_rank] what
  // queries are made from. `rotation`: of row 0; the others' follow.
  void MakeQueries(const float* x, const float* latent, size_t rows,
                   const kernels::Rotation& rotation, CpuProducts& products,
                   kernels::ThreadPool& pool, IndexWork& work) const;
  // The entries of the segment's rows, whose keys are stored.
  void Choose(const kernels::KvView& entries, const kernels::AttentionSegment& segment,
              kernels::ThreadPool& pool, IndexWork& work, EntryChoice& choice) const;

 private:
  // At most kSparseRowsAtOnce rows.
  void ChooseRows(const kernels::KvView& entries, const kernels::AttentionSegment& rows,
                  kernels::ThreadPool& pool, IndexWork& work, EntryChoice& choice) const;
  void Score(const kernels::KvView& entries, const kernels::AttentionSegment& rows, size_t count,
             kernels::ThreadPool& pool, IndexWork& work) const;
  void ChooseBlocks(const float* scores, size_t count, size_t row, EntryChoice& choice) const;
  size_t EntriesAt(size_t position) const { return (position + 1) / ratio_; }
  // Whether a row that sees so many entries needs no scores.
  bool SeesAll(size_t count) const;

  const CompressTraits traits_;
  const size_t ratio_, heads_, dim_, top_;
  const bool makes_candidates_, takes_candidates_;
  CpuLinear query_, weights_;
};

}  // namespace macrame::runtime::engine
