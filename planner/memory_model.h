#pragma once

// What a rank needs, byte by byte. Each item is a function of its own, so that a figure in a plan
// can be traced to a line here; MemoryModel adds them up.
//
// Weights, embedding and head are counted as the model's files store them. The rest is arithmetic
// about how rankd computes; the constants say where they come from.

#include <cstdint>
#include <vector>

#include "macrame/v1/model.pb.h"
#include "macrame/v1/plan.pb.h"

namespace macrame::planner {

// rankd feeds a prompt in pieces of at most this many positions.
inline constexpr uint32_t kPrefillChunkTokens = 256;
// rankd grows its KV cache in steps of this many positions.
inline constexpr uint32_t kKvStepTokens = 256;
// The process without a model's weights: code, MLX, gRPC, tokenizer. Measured as the most resident
// in `rankd --generate` on x86-64 Linux: 31 MiB with the bundled model, whose vocabulary has 3,072
// tokens (3 MiB of it weights), 148 MiB with a vocabulary of 128,000. Not measured: Metal.
inline constexpr uint64_t kRuntimeBytes = 192ULL << 20;
// What allocators waste and estimates miss: one part in 20 of everything that grows with the model,
// and never less than this. With the operating system's own part outside of a node's usable memory,
// loads up to about 90 % of it are accepted.
inline constexpr uint64_t kHeadroomBytesMin = 64ULL << 20;
inline constexpr uint64_t kHeadroomDivisor = 20;

// Where a rank computes: it decides how wide its numbers are.
enum class ComputeKind {
  kGpu,  // Metal, CUDA: in the model's own 16 or 32 bits, attention fused
  kCpu,  // float32 throughout, because 16-bit sums on a CPU lose too much; attention scores in full
};

// A node that says it has GPU cores computes on them.
ComputeKind ComputeKindOf(const v1::PlannerNode& node);

struct ServingLoad {
  uint32_t context_tokens = 0;  // of each sequence, prompt and answer together
  uint32_t sequences = 1;       // at the same time
};

// Bytes of one number in activations and KV cache.
uint64_t ComputeElementBytes(const v1::ModelDescription& model, ComputeKind kind);

// One layer's tensors for one of `tp` ranks: its share of what a tensor split divides, and all of
// the rest.
uint64_t LayerWeightBytes(const v1::ModelDescription& model, uint32_t layer, uint32_t tp);

// Keys and values of one layer for one of `tp` ranks. A sliding window bounds the positions kept.
uint64_t LayerKvBytes(const v1::ModelDescription& model, uint32_t tp, const ServingLoad& load,
                      ComputeKind kind);

// Scratch of one forward step over a prefill chunk: the residual stream, projections and
// feed-forward of one layer, attention scores where they are not fused, one row of logits on the
// head's rank.
uint64_t ActivationBytes(const v1::ModelDescription& model, uint32_t tp, const ServingLoad& load,
                         ComputeKind kind, bool holds_head);

// The embedding table, which the first stage holds whole.
uint64_t EmbeddingBytes(const v1::ModelDescription& model);

// Final norm and output head. A head that is tied to the embedding costs its bytes again on a rank
// that does not hold the embedding.
uint64_t HeadBytes(const v1::ModelDescription& model, bool holds_embedding);

uint64_t HeadroomBytes(uint64_t model_dependent_bytes);

// The needs of all ranks of one model at one load and tensor degree; each answer in constant time.
class MemoryModel {
 public:
  // `model` must be valid (ValidateModel in constraints.h) and outlive this. tp >= 1.
  MemoryModel(const v1::ModelDescription& model, const ServingLoad& load, uint32_t tp);

  // For layers [begin, end). Grows with the range, the load and never shrinks with either.
  v1::MemoryNeed Need(ComputeKind kind, uint32_t begin, uint32_t end, bool holds_embedding,
                      bool holds_head) const;
  uint64_t NeedBytes(ComputeKind kind, uint32_t begin, uint32_t end, bool holds_embedding,
                     bool holds_head) const;
  uint32_t layer_count() const { return model_->layer_count(); }

 private:
  const v1::ModelDescription* model_;
  ServingLoad load_;
  uint32_t tp_;
  std::vector<uint64_t> weights_before_;  // [i]: bytes of layers [0, i)
};

}  // namespace macrame::planner
