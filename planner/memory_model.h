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
#include "planner/tensor_cut.h"

namespace macrame::planner {

// A step of rankd has at most this many positions of prompts, all sequences together.
inline constexpr uint32_t kPrefillChunkTokens = 256;
// Positions stand in blocks of this many; each sequence has whole ones.
inline constexpr uint32_t kKvBlockTokens = 32;
// The process without a model's weights: code, MLX, gRPC, tokenizer. Measured as the most resident
// in `rankd --generate` on x86-64 Linux: 31 MiB with the bundled model, whose vocabulary has 3,072
// tokens (3 MiB of it weights), 148 MiB with a vocabulary of 128,000. Not measured: Metal.
inline constexpr uint64_t kRuntimeBytes = 192ULL << 20;
// What allocators waste and estimates miss: a part of everything that grows with the model (one in
// 20 unless the options are stricter or looser), and never less than this. With the operating
// system's own part outside of a node's usable memory, loads up to about 90 % of it are accepted.
inline constexpr uint64_t kHeadroomBytesMin = 64ULL << 20;
uint64_t HeadroomDivisor(v1::Strictness strictness);

// Where a rank computes: it decides how wide its numbers are.
enum class ComputeKind {
  kGpu,  // Metal, CUDA: in the model's own 16 or 32 bits
  kCpu,  // activations in float32, because 16-bit sums on a CPU lose too much; KV as on a GPU
};

// A node that says it has GPU cores computes on them.
ComputeKind ComputeKindOf(const v1::PlannerNode& node);

struct ServingLoad {
  uint32_t context_tokens = 0;  // of each sequence, prompt and answer together
  uint32_t sequences = 1;       // at the same time
  uint32_t kv_bits = 0;         // of a number in the KV cache; 0: as the rank computes
  v1::Strictness strictness = v1::STRICTNESS_NORMAL;
  // Of context, that speeds are predicted at; 0: kPredictedPositions (gang.h).
  uint32_t predicted_positions = 0;
  uint64_t draft_bytes = 0;  // of a draft model, on the entry node (DraftBytes); 0: none
};

// With 8 bits on a CPU, so many of a head's dimensions share a scale of so many bytes
// (kernels/kv_view.h).
inline constexpr uint32_t kKvGroupDims = 32;
inline constexpr uint32_t kKvScaleBytes = 2;

// Threads that a CPU's kernels keep memory for; those of a machine with more take it from the
// headroom.
inline constexpr uint64_t kCpuThreads = 32;
// Partial sums of attention that CPU kernels keep at most (kernels/attention.h).
inline constexpr uint64_t kAttentionSumsBytesMax = 64ULL << 20;

// Bytes of one number in activations.
uint64_t ComputeElementBytes(const v1::ModelDescription& model, ComputeKind kind);
// Tokens that one step can have: a chunk of prompts and one of each answer.
uint64_t StepTokensMax(const ServingLoad& load);

// One layer's tensors: the share of what a tensor split divides, and all of the rest.
uint64_t LayerWeightBytes(const v1::ModelDescription& model, uint32_t layer, Slice slice);

// Of one layer's tensors, those of routed experts; 0: a dense layer.
uint64_t LayerExpertBytes(const v1::ModelDescription& model, uint32_t layer);

// Does this layer attend to all positions? (Else to a window, or it keeps a fixed state.)
bool AttendsToAll(const v1::ModelDescription& model, uint32_t layer);

// Layers from this one on read keys and values of layers before them (Gemma 4): they keep none of
// their own, and a stage that has some of them keeps copies of the at most kSharedKvKinds layers
// whose it is handed. layer_count: there are none.
uint32_t FirstKvReader(const v1::ModelDescription& model);
// One layer that sees a window, one that sees all.
inline constexpr uint32_t kSharedKvKinds = 2;

// What one layer keeps of one position of one sequence, in bytes: keys and values by head, or the
// latent vector; an indexer's key, too. Vector and key are never divided.
double KvPositionBytes(const v1::ModelDescription& model, Slice slice, uint32_t kv_bits,
                       ComputeKind kind);

// States of recurrent layers that are kept for reuse: kStateSnapshotsDefault where there are any.
uint32_t StateSnapshots(const v1::ModelDescription& model);
// What a layer that does not attend keeps of all sequences and snapshots.
uint64_t LayerStateBytes(const v1::ModelDescription& model, uint32_t layer, Slice slice,
                         const ServingLoad& load);

// Keys and values (or the sequences' own fixed states) of one layer. A window bounds the positions
// kept.
uint64_t LayerKvBytes(const v1::ModelDescription& model, uint32_t layer, Slice slice,
                      const ServingLoad& load, ComputeKind kind);

// Scratch of the largest step: the residual stream, projections and feed-forward of one layer, on a
// CPU what its kernels make of them; logits of all answers where they come about or are sampled
// from (`sees_logits`: the head's rank and rank 0).
uint64_t ActivationBytes(const v1::ModelDescription& model, Slice slice, const ServingLoad& load,
                         ComputeKind kind, bool sees_logits);

// The slice's rows of the embedding table, on a rank of the first stage.
uint64_t EmbeddingBytes(const v1::ModelDescription& model, Slice slice = {});

// Final norm and the slice's rows of the output head. A head that is tied to the embedding costs
// its bytes again on a rank that does not hold the embedding.
uint64_t HeadBytes(const v1::ModelDescription& model, bool holds_embedding, Slice slice = {});

// All of a draft model that the entry rank runs whole, on the CPU: weights, a KV cache for as many
// positions as the model's own (as far as it knows so many), scratch.
uint64_t DraftBytes(const v1::ModelDescription& draft, const ServingLoad& load);
// `need` of the entry rank with the load's draft model.
void AddDraft(const ServingLoad& load, v1::MemoryNeed* need);
uint64_t NeedWithDraft(const ServingLoad& load, uint64_t need_bytes);

uint64_t HeadroomBytes(uint64_t model_dependent_bytes, v1::Strictness strictness);

// The needs of all ranks that hold one slice of a model at one load; each answer in constant time.
class MemoryModel {
 public:
  // `model` must be valid (ValidateModel in constraints.h) and outlive this.
  // `vocabulary`: the part of embedding and head; the whole where an engine does not divide them.
  MemoryModel(const v1::ModelDescription& model, const ServingLoad& load, Slice slice = {},
              Slice vocabulary = {});

  // For layers [begin, end). Grows with the range, the load and never shrinks with either.
  v1::MemoryNeed Need(ComputeKind kind, uint32_t begin, uint32_t end, bool holds_embedding,
                      bool holds_head) const;
  // The same, in total.
  uint64_t NeedBytes(ComputeKind kind, uint32_t begin, uint32_t end, bool holds_embedding,
                     bool holds_head) const;
  uint32_t layer_count() const { return model_->layer_count(); }

 private:
  struct Sums {
    std::vector<uint64_t> kv_before;        // [i]: bytes of layers [0, i), states too
    uint64_t activation_bytes[2] = {0, 0};  // without and with logits
    uint64_t copies = 0;                    // of layers' keys and values that are read elsewhere
  };
  uint64_t GrowingBytes(const Sums& sums, uint32_t begin, uint32_t end, bool holds_embedding,
                        bool holds_head) const;
  const Sums& SumsOf(ComputeKind kind) const { return kind == ComputeKind::kGpu ? gpu_ : cpu_; }

  const v1::ModelDescription* model_;
  ServingLoad load_;
  Slice slice_;
  std::vector<uint64_t> weights_before_;  // [i]: bytes of layers [0, i)
  std::vector<uint64_t> states_before_;   // likewise
  uint64_t embedding_bytes_;
  uint64_t head_bytes_[2];  // without and with the embedding
  Sums gpu_, cpu_;
};

}  // namespace macrame::planner
