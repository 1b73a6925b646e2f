#pragma once

// Attention over keys and values in blocks, for decoding and for prompts in chunks, with heads that
// share keys and values. Causal: position p sees positions up to p, of these the last `window` when
// that is set. Sums are float32, softmax goes along with the keys. A head's sink counts in the sum
// of its weights like the score of one more key whose value is zero.
//
// What a position gets is bit for bit the same whatever else is in the call, however its sequence
// was cut into calls, and however many threads there are: keys are taken in units of 128 and ranges
// of 512 that begin at multiples of these, and ranges are joined in their order.

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>

#include "runtime/kernels/kv_view.h"
#include "runtime/kernels/thread_pool.h"

namespace macrame::runtime::kernels {

struct AttentionShape {
  size_t heads = 0;              // of queries; a multiple of the key-value heads
  size_t window = 0;             // 0: all positions are seen
  float scale = 0;               // of scores; 0: one over the root of the keys' width
  const float* sinks = nullptr;  // of each head; null: there are none
};

// A run of one sequence's positions.
struct AttentionSegment {
  size_t row = 0;       // of its first position in `queries` and `out`
  size_t count = 0;     // positions
  size_t position = 0;  // of the first one
  const int32_t* blocks = nullptr;
};

// Of partial sums that threads share; a call that would need more gives each thread whole rows.
inline constexpr size_t kAttentionSumsBytesMax = size_t{64} << 20;

// Memory that Attend keeps between calls.
class AttentionScratch {
 public:
  AttentionScratch();
  ~AttentionScratch();
  size_t memory_bytes() const;

 private:
  friend class AttentionCall;
  struct Memory;
  const std::unique_ptr<Memory> memory_;
};

// Writes one position's keys and values, [kv_heads][head_dim] each, rounded to the stored type;
// what a half can't hold becomes its largest number. A latent cache takes keys alone. Any thread;
// positions may be written at the same time.
void StoreKv(const KvView& view, const int32_t* blocks, size_t position, const float* keys,
             const float* values);

// Of a latent cache: out [count][index_dim] = what stands behind the keys of positions [begin,
// begin + count), widened. index_dim and head_dim must be multiples of 16.
void ReadIndex(const KvView& view, const int32_t* blocks, size_t begin, size_t count, float* out);

// Of a latent cache: the key at a position, bit for bit, to position `at` of a sequence whose
// blocks are those of `to` in their order. Of the same shape but for index_dim.
void CopyLatent(const KvView& from, const int32_t* blocks, size_t position, const KvView& to,
                size_t at);

// out[row], [heads][ValueDim], = attention of queries[row], [heads][head_dim], over positions that
// were stored before, each segment's own included.
void Attend(ThreadPool& pool, const KvView& view, const AttentionShape& shape,
            std::span<const AttentionSegment> segments, const float* queries, float* out,
            AttentionScratch& scratch);

}  // namespace macrame::runtime::kernels
