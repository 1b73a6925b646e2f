#include "planner/memory_model.h"

#include <algorithm>

#include "planner/saturating.h"
#include "proto/check.h"

namespace macrame::planner {
namespace {

constexpr uint64_t kFloat32Bytes = 4;

uint64_t RoundUp(uint64_t value, uint64_t step) {
  return SaturatingMultiply(DivideRoundingUp(value, step), step);
}

// Positions whose keys and values are kept.
uint64_t KvPositions(const v1::ModelDescription& model, const ServingLoad& load) {
  uint64_t positions = load.context_tokens;
  if (model.sliding_window() > 0) {
    // While a chunk is prefilled, its own positions are there besides the window's.
    positions =
        std::min<uint64_t>(positions, uint64_t{model.sliding_window()} + kPrefillChunkTokens);
  }
  return RoundUp(positions, kKvStepTokens);
}

}  // namespace

ComputeKind ComputeKindOf(const v1::PlannerNode& node) {
  return node.gpu_cores() > 0 ? ComputeKind::kGpu : ComputeKind::kCpu;
}

uint64_t ComputeElementBytes(const v1::ModelDescription& model, ComputeKind kind) {
  return kind == ComputeKind::kCpu || model.dtype() == "float32" ? 4 : 2;
}

uint64_t LayerWeightBytes(const v1::ModelDescription& model, uint32_t layer, uint32_t tp) {
  const uint64_t all = model.layer_bytes(static_cast<int>(layer));
  const uint64_t divisible = model.layer_divisible_bytes(static_cast<int>(layer));
  return SaturatingAdd(all - divisible, DivideRoundingUp(divisible, tp));
}

uint64_t LayerKvBytes(const v1::ModelDescription& model, uint32_t tp, const ServingLoad& load,
                      ComputeKind kind) {
  const uint64_t heads = DivideRoundingUp(model.kv_heads(), tp);
  const uint64_t position_bytes =
      SaturatingMultiply(2 * heads * ComputeElementBytes(model, kind), model.head_dim());
  return SaturatingMultiply(SaturatingMultiply(position_bytes, KvPositions(model, load)),
                            load.sequences);
}

uint64_t ActivationBytes(const v1::ModelDescription& model, uint32_t tp, const ServingLoad& load,
                         ComputeKind kind, bool holds_head) {
  const uint64_t chunk = std::min<uint64_t>(kPrefillChunkTokens, load.context_tokens);
  const uint64_t heads = DivideRoundingUp(model.attention_heads(), tp);
  const uint64_t kv_heads = DivideRoundingUp(model.kv_heads(), tp);
  // Residual, its norm, the attention's output and the feed-forward's; query, key and value before
  // and after rotation; gate, up and their product.
  const uint64_t per_position = 4ULL * model.hidden_size() +
                                SaturatingMultiply(2 * (heads + 2 * kv_heads), model.head_dim()) +
                                3 * DivideRoundingUp(model.intermediate_size(), tp);
  uint64_t bytes =
      SaturatingMultiply(SaturatingMultiply(per_position, chunk), ComputeElementBytes(model, kind));
  if (kind == ComputeKind::kCpu) {
    // Scores and their softmax, for every head, chunk position and position attended to.
    const uint64_t scores =
        SaturatingMultiply(SaturatingMultiply(heads * chunk, load.context_tokens), kFloat32Bytes);
    bytes = SaturatingAdd(bytes, SaturatingMultiply(2, scores));
  }
  if (holds_head) bytes = SaturatingAdd(bytes, 2 * kFloat32Bytes * model.vocab_size());
  return bytes;
}

uint64_t EmbeddingBytes(const v1::ModelDescription& model) { return model.embedding_bytes(); }

uint64_t HeadBytes(const v1::ModelDescription& model, bool holds_embedding) {
  uint64_t head = model.head_bytes();
  if (model.tied_embeddings()) head = holds_embedding ? 0 : model.embedding_bytes();
  return SaturatingAdd(head, model.final_norm_bytes());
}

uint64_t HeadroomBytes(uint64_t model_dependent_bytes) {
  return std::max(kHeadroomBytesMin, model_dependent_bytes / kHeadroomDivisor);
}

MemoryModel::MemoryModel(const v1::ModelDescription& model, const ServingLoad& load, uint32_t tp)
    : model_(&model), load_(load), tp_(tp) {
  MACRAME_CHECK(tp >= 1) << "a tensor degree of " << tp;
  weights_before_.reserve(model.layer_count() + 1);
  weights_before_.push_back(0);
  for (uint32_t layer = 0; layer < model.layer_count(); ++layer) {
    weights_before_.push_back(
        SaturatingAdd(weights_before_.back(), LayerWeightBytes(model, layer, tp)));
  }
}

v1::MemoryNeed MemoryModel::Need(ComputeKind kind, uint32_t begin, uint32_t end,
                                 bool holds_embedding, bool holds_head) const {
  MACRAME_CHECK(begin <= end && end < weights_before_.size()) << begin << ".." << end;
  v1::MemoryNeed need;
  need.set_weights_bytes(weights_before_[end] - weights_before_[begin]);
  if (holds_embedding) need.set_embedding_bytes(EmbeddingBytes(*model_));
  if (holds_head) need.set_head_bytes(HeadBytes(*model_, holds_embedding));
  need.set_kv_cache_bytes(SaturatingMultiply(LayerKvBytes(*model_, tp_, load_, kind), end - begin));
  need.set_activation_bytes(ActivationBytes(*model_, tp_, load_, kind, holds_head));
  need.set_runtime_bytes(kRuntimeBytes);
  uint64_t grows = need.weights_bytes();
  for (uint64_t item : {need.embedding_bytes(), need.head_bytes(), need.kv_cache_bytes(),
                        need.activation_bytes()}) {
    grows = SaturatingAdd(grows, item);
  }
  need.set_headroom_bytes(HeadroomBytes(grows));
  need.set_total_bytes(
      SaturatingAdd(SaturatingAdd(grows, need.headroom_bytes()), need.runtime_bytes()));
  return need;
}

uint64_t MemoryModel::NeedBytes(ComputeKind kind, uint32_t begin, uint32_t end,
                                bool holds_embedding, bool holds_head) const {
  return Need(kind, begin, end, holds_embedding, holds_head).total_bytes();
}

}  // namespace macrame::planner
