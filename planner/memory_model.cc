#include "planner/memory_model.h"

#include <algorithm>
#include <cmath>

#include "planner/saturating.h"
#include "proto/check.h"
#include "proto/serving_limits.h"

namespace macrame::planner {
namespace {

constexpr uint64_t kFloat32Bytes = 4;
// What a sampler keeps of each token of the vocabulary: logit, id, probability.
constexpr uint64_t kSamplerBytes = 16;
// CPU kernels (runtime/kernels): rows of queries that go over the keys together, keys of a unit and
// of a range; values and sums are padded to whole vectors.
constexpr uint64_t kTileRows = 64;
constexpr uint64_t kUnitTokens = 128;
constexpr uint64_t kRangeTokens = 512;
constexpr uint64_t kVectorFloats = 16;
constexpr uint64_t kLatentRows = 64;           // of queries in the latent space at once
constexpr uint64_t kPanelBytes = 64 << 10;     // of quantised weights, for each thread
constexpr uint64_t kPanelColumnBytes = 32;     // of float weights, for each thread and column
constexpr uint64_t kIntegerFormPadding = 256;  // behind each vector

uint64_t RoundUp(uint64_t value, uint64_t step) {
  return SaturatingMultiply(DivideRoundingUp(value, step), step);
}

// Positions whose keys and values a layer keeps.
uint64_t KvPositions(const v1::ModelDescription& model, uint32_t layer, const ServingLoad& load) {
  uint64_t positions = load.context_tokens;
  if (model.sliding_window() > 0 && !AttendsToAll(model, layer)) {
    // While a chunk is prefilled, its own positions are there besides the window's.
    positions =
        std::min<uint64_t>(positions, uint64_t{model.sliding_window()} + kPrefillChunkTokens);
  }
  return RoundUp(positions, kKvBlockTokens);
}

uint64_t Part(uint64_t whole, Slice slice) {
  return DivideRoundingUp(SaturatingMultiply(whole, slice.width), slice.of);
}

// A state is cut by whole key heads (runtime/model/cuts/tensor_cut.h). A description does not say
// how many there are: 16 in Qwen3-Next and Qwen3.5; of models with 8 groups it is a bound up to
// four ranks.
constexpr uint64_t kStateHeads = 16;

// The most that a rank with this slice may get of it, wherever its slices lie.
uint64_t StatePart(const v1::ModelDescription& model, Slice slice) {
  const uint64_t heads = DivideRoundingUp(kStateHeads * slice.width, slice.of);
  return DivideRoundingUp(SaturatingMultiply(model.fixed_state_bytes(), heads), kStateHeads);
}

uint64_t KvElementBytes(const v1::ModelDescription& model) {
  return model.dtype() == "float32" ? 4 : 2;
}

bool IsNarrowOnGpu(uint32_t kv_bits, ComputeKind kind) {
  return kind == ComputeKind::kGpu && (kv_bits == kKvBitsNarrow || kv_bits == kKvBitsFewest);
}

// Of a row of so many numbers that a GPU keeps in few bits: each group of 64, or else 32, has a
// scale and a bias of the model's type, and a row that no group divides is kept as it is
// (runtime/model/mlx/kv_pools.h).
double NarrowGpuBytes(const v1::ModelDescription& model, uint64_t width, uint32_t kv_bits) {
  const auto element = static_cast<double>(KvElementBytes(model));
  for (const uint64_t group : {64, 32}) {
    if (width % group != 0) continue;
    const uint64_t groups = width / group;
    return static_cast<double>(width) * kv_bits / 8 + 2 * element * static_cast<double>(groups);
  }
  return element * static_cast<double>(width);
}

// Of an indexer's key beside keys and values by head; whole on each rank that has any of those.
double IndexKeyBytes(const v1::ModelDescription& model, double element, uint32_t kv_bits,
                     ComputeKind kind) {
  if (IsNarrowOnGpu(kv_bits, kind)) {
    return NarrowGpuBytes(model, model.kv_index_width(), kv_bits);
  }
  const double scales = kind == ComputeKind::kCpu && kv_bits == kKvBitsNarrow
                            ? 1.0 * kKvScaleBytes / kKvGroupDims
                            : 0.0;
  return (element + scales) * model.kv_index_width();
}

// Of queries: those of the slice's key-value heads.
uint64_t HeadsOf(const v1::ModelDescription& model, Slice slice, const Cut& cut) {
  const uint64_t queries =
      DivideRoundingUp(model.attention_heads(), std::max<uint64_t>(1, model.kv_heads()));
  return std::clamp(queries * cut.kv_heads, Part(model.attention_heads(), slice),
                    uint64_t{model.attention_heads()});
}

// What CPU kernels keep beside the rows of activations, for `rows` of them.
uint64_t CpuKernelBytes(const v1::ModelDescription& model, Slice slice, const ServingLoad& load,
                        uint64_t rows) {
  const Cut cut = CutOf(model, slice);
  const uint64_t heads = HeadsOf(model, slice, cut);
  // All heads attend to the one latent vector of a position.
  const bool latent = model.kv_latent_width() > 0;
  const uint64_t kv_heads = latent ? 1 : std::max<uint64_t>(1, cut.kv_heads);
  const uint64_t key_width = latent ? model.kv_latent_width() : model.head_dim();
  const uint64_t widest = std::max<uint64_t>(
      {model.hidden_size(), SaturatingMultiply(heads, model.head_dim()), cut.inner});
  const uint64_t stride = RoundUp(key_width, kVectorFloats);
  const uint64_t sums = stride + kVectorFloats;  // of a row of queries
  uint64_t thread = SaturatingMultiply(
      kFloat32Bytes, kTileRows * (stride + kUnitTokens + 2 * sums) + 2 * kUnitTokens * stride +
                         kUnitTokens * DivideRoundingUp(key_width, kKvGroupDims));
  // A few rows at once are in the latent space, queries and results; each thread has one head of
  // them before and after a product.
  uint64_t rows_of_heads = 0;
  if (latent) {
    rows_of_heads = SaturatingMultiply(2 * kLatentRows * kFloat32Bytes * stride, heads);
    thread = SaturatingAdd(thread, 2 * kLatentRows * kFloat32Bytes * stride);
  }
  uint64_t integers = rows_of_heads;
  if (model.quantization().bits() > 0) {
    thread += kPanelBytes;
    // 16 bits for each number, 12 bytes for each group; a form for 4 bits and one for others.
    integers = SaturatingAdd(
        rows_of_heads, SaturatingMultiply(2 * rows, SaturatingAdd(SaturatingMultiply(widest, 3),
                                                                  kIntegerFormPadding)));
  } else {
    thread = SaturatingAdd(thread, SaturatingMultiply(kPanelColumnBytes, widest));
  }
  // A tile that threads share keeps the sums of each range of keys.
  const uint64_t tiles_each =
      rows * DivideRoundingUp(heads, kv_heads) / kTileRows + kAnsweredAtOnceMax + 1;
  const uint64_t tiles = SaturatingMultiply(tiles_each, kv_heads);
  const uint64_t ranges = DivideRoundingUp(load.context_tokens, kRangeTokens);
  const uint64_t shared =
      std::min(kAttentionSumsBytesMax,
               SaturatingMultiply(SaturatingMultiply(tiles, ranges),
                                  SaturatingMultiply(kTileRows * kFloat32Bytes, sums)));
  return SaturatingAdd(SaturatingAdd(SaturatingMultiply(kCpuThreads, thread), integers), shared);
}

}  // namespace

uint64_t HeadroomDivisor(v1::Strictness strictness) {
  switch (strictness) {
    case v1::STRICTNESS_SAFE:
      return 8;
    case v1::STRICTNESS_TIGHT:
      return 50;
    default:
      return 20;
  }
}

ComputeKind ComputeKindOf(const v1::PlannerNode& node) {
  return node.gpu_cores() > 0 ? ComputeKind::kGpu : ComputeKind::kCpu;
}

uint64_t ComputeElementBytes(const v1::ModelDescription& model, ComputeKind kind) {
  return kind == ComputeKind::kCpu || model.dtype() == "float32" ? 4 : 2;
}

uint64_t LayerWeightBytes(const v1::ModelDescription& model, uint32_t layer, Slice slice) {
  const uint64_t all = model.layer_bytes(static_cast<int>(layer));
  const uint64_t divisible = model.layer_divisible_bytes(static_cast<int>(layer));
  slice.whole_experts = slice.whole_experts && LayerExpertBytes(model, layer) > 0;
  if (CutOf(model, slice).even) return SaturatingAdd(all - divisible, Part(divisible, slice));
  const double share = ShareOf(model, layer, slice);
  const auto part = static_cast<uint64_t>(std::ceil(static_cast<double>(divisible) * share));
  return SaturatingAdd(all - divisible, std::min(divisible, part));
}

uint64_t LayerExpertBytes(const v1::ModelDescription& model, uint32_t layer) {
  const int index = static_cast<int>(layer);
  return index < model.layer_expert_bytes_size() ? model.layer_expert_bytes(index) : 0;
}

bool AttendsToAll(const v1::ModelDescription& model, uint32_t layer) {
  if (model.attention_layers_size() > 0) {
    const auto& layers = model.attention_layers();
    return std::binary_search(layers.begin(), layers.end(), layer);
  }
  const uint32_t every = model.full_attention_every();
  if (every <= 1) return model.sliding_window() == 0;
  return layer % every == every - 1;
}

uint32_t FirstKvReader(const v1::ModelDescription& model) {
  const auto& attending = model.attention_layers();
  const auto count = static_cast<uint32_t>(attending.size());
  // The first layers attend, and the others keep nothing.
  const bool is_prefix = count > 0 && attending.Get(attending.size() - 1) + 1 == count;
  return is_prefix && model.fixed_state_bytes() == 0 ? count : model.layer_count();
}

double KvPositionBytes(const v1::ModelDescription& model, Slice slice, uint32_t kv_bits,
                       ComputeKind kind) {
  const bool is_default = kv_bits == 0 || kv_bits == kKvBitsDefault;
  const double element = is_default ? static_cast<double>(KvElementBytes(model)) : kv_bits / 8.0;
  if (model.kv_latent_width() > 0) {
    const uint64_t width = model.kv_latent_width();
    if (kind != ComputeKind::kCpu) {
      return IsNarrowOnGpu(kv_bits, kind) ? NarrowGpuBytes(model, width, kv_bits)
                                          : element * static_cast<double>(width);
    }
    const bool scaled = kv_bits == kKvBitsNarrow;
    return element * static_cast<double>(RoundUp(width, kVectorFloats)) +
           (scaled ? 1.0 * kKvScaleBytes * DivideRoundingUp(width, kKvGroupDims) : 0.0);
  }
  const uint64_t heads = CutOf(model, slice).kv_heads;
  const uint64_t values =
      kind == ComputeKind::kCpu ? RoundUp(model.head_dim(), kVectorFloats) : model.head_dim();
  double head = element * static_cast<double>(model.head_dim() + values);
  if (kind == ComputeKind::kCpu && kv_bits == kKvBitsNarrow) {
    head += 2.0 * kKvScaleBytes * DivideRoundingUp(model.head_dim(), kKvGroupDims);
  } else if (IsNarrowOnGpu(kv_bits, kind)) {
    head = 2 * NarrowGpuBytes(model, model.head_dim(), kv_bits);
  }
  const double index = heads == 0 ? 0 : IndexKeyBytes(model, element, kv_bits, kind);
  return static_cast<double>(heads) * head + index;
}

uint32_t StateSnapshots(const v1::ModelDescription& model) {
  return model.engine().empty() && model.fixed_state_bytes() > 0 ? kStateSnapshotsDefault : 0;
}

uint64_t LayerStateBytes(const v1::ModelDescription& model, uint32_t layer, Slice slice,
                         const ServingLoad& load) {
  if (model.sliding_window() > 0 || AttendsToAll(model, layer)) return 0;
  return SaturatingMultiply(
      StatePart(model, slice),
      uint64_t{std::max(load.sequences, kAnsweredAtOnceMax)} + StateSnapshots(model));
}

uint64_t LayerKvBytes(const v1::ModelDescription& model, uint32_t layer, Slice slice,
                      const ServingLoad& load, ComputeKind kind) {
  const bool fixed = model.sliding_window() == 0 && !AttendsToAll(model, layer);
  if (fixed) {
    return SaturatingMultiply(StatePart(model, slice), load.sequences);
  }
  const double position = KvPositionBytes(model, slice, load.kv_bits, kind);
  return SaturatingMultiply(SaturatingMultiply(static_cast<uint64_t>(std::ceil(position)),
                                               KvPositions(model, layer, load)),
                            load.sequences);
}

uint64_t StepTokensMax(const ServingLoad& load) {
  return std::min<uint64_t>(
      kPrefillChunkTokens + kAnsweredAtOnceMax,
      SaturatingMultiply(RoundUp(load.context_tokens, kKvBlockTokens), load.sequences));
}

uint64_t ActivationBytes(const v1::ModelDescription& model, Slice slice, const ServingLoad& load,
                         ComputeKind kind, bool sees_logits) {
  const uint64_t rows = StepTokensMax(load);
  const Cut cut = CutOf(model, slice);
  // Residual, its norm, the attention's output and the feed-forward's; query, key and value before
  // and after rotation; gate, up and their product.
  uint64_t per_position =
      4ULL * model.hidden_size() +
      SaturatingMultiply(2 * (HeadsOf(model, slice, cut) + 2 * cut.kv_heads), model.head_dim()) +
      3 * cut.inner;
  // What comes from other ranks and goes to them, in their type and in ours; sines and cosines.
  if (kind == ComputeKind::kCpu) per_position += 4ULL * model.hidden_size() + model.head_dim();
  // Residual streams, in float32: as they come and go, between the halves of a layer, and normed.
  if (model.residual_streams() > 1) {
    per_position += 4ULL * model.residual_streams() * model.hidden_size() * kFloat32Bytes /
                    ComputeElementBytes(model, kind);
  }
  uint64_t bytes =
      SaturatingMultiply(SaturatingMultiply(per_position, rows), ComputeElementBytes(model, kind));
  if (kind == ComputeKind::kCpu) {
    bytes = SaturatingAdd(bytes, CpuKernelBytes(model, slice, load, rows));
  } else if (IsNarrowOnGpu(load.kv_bits, kind)) {
    // A prompt's rows attend to a layer's keys and values unpacked, from a copy of the narrow ones;
    // those of the next layer come before they have gone.
    const double unpacked = 2 * (KvPositionBytes(model, slice, 0, kind) +
                                 KvPositionBytes(model, slice, load.kv_bits, kind));
    bytes = SaturatingAdd(
        bytes, SaturatingMultiply(static_cast<uint64_t>(std::ceil(unpacked)), load.context_tokens));
  }
  if (!sees_logits) return bytes;
  // As the layers give them and as they are sampled from.
  const uint64_t logits = 2 * kFloat32Bytes * kAnsweredAtOnceMax + kSamplerBytes;
  return SaturatingAdd(bytes, SaturatingMultiply(logits, model.vocab_size()));
}

uint64_t EmbeddingBytes(const v1::ModelDescription& model, Slice slice) {
  return Part(model.embedding_bytes(), slice);
}

uint64_t HeadBytes(const v1::ModelDescription& model, bool holds_embedding, Slice slice) {
  uint64_t head = model.head_bytes();
  if (model.tied_embeddings()) head = holds_embedding ? 0 : model.embedding_bytes();
  return SaturatingAdd(Part(head, slice), model.final_norm_bytes());
}

uint64_t HeadroomBytes(uint64_t model_dependent_bytes, v1::Strictness strictness) {
  return std::max(kHeadroomBytesMin, model_dependent_bytes / HeadroomDivisor(strictness));
}

uint64_t DraftBytes(const v1::ModelDescription& draft, const ServingLoad& load) {
  ServingLoad own = load;
  if (draft.context_length_max() > 0) {
    own.context_tokens = std::min(own.context_tokens, draft.context_length_max());
  }
  own.kv_bits = 0;
  const MemoryModel memory(draft, own);
  uint64_t bytes = 0;  // where it takes most: which node enters is not known here
  for (const ComputeKind kind : {ComputeKind::kCpu, ComputeKind::kGpu}) {
    const v1::MemoryNeed need = memory.Need(kind, 0, draft.layer_count(), true, true);
    bytes = std::max(
        bytes, SaturatingSubtract(need.total_bytes(),
                                  SaturatingAdd(need.runtime_bytes(), need.headroom_bytes())));
  }
  return bytes;
}

void AddDraft(const ServingLoad& load, v1::MemoryNeed* need) {
  const uint64_t spare = load.draft_bytes / HeadroomDivisor(load.strictness);
  need->set_draft_bytes(load.draft_bytes);
  need->set_headroom_bytes(SaturatingAdd(need->headroom_bytes(), spare));
  need->set_total_bytes(NeedWithDraft(load, need->total_bytes()));
}

uint64_t NeedWithDraft(const ServingLoad& load, uint64_t need_bytes) {
  const uint64_t spare = load.draft_bytes / HeadroomDivisor(load.strictness);
  return SaturatingAdd(need_bytes, SaturatingAdd(load.draft_bytes, spare));
}

MemoryModel::MemoryModel(const v1::ModelDescription& model, const ServingLoad& load, Slice slice,
                         Slice vocabulary)
    : model_(&model), load_(load), slice_(slice) {
  MACRAME_CHECK(slice.width >= 1 && slice.width <= slice.of) << slice.width << "/" << slice.of;
  const uint32_t layers = model.layer_count();
  weights_before_.assign(layers + 1, 0);
  gpu_.kv_before = cpu_.kv_before = states_before_ = weights_before_;
  for (uint32_t layer = 0; layer < layers; ++layer) {
    weights_before_[layer + 1] =
        SaturatingAdd(weights_before_[layer], LayerWeightBytes(model, layer, slice));
    const uint64_t state = LayerStateBytes(model, layer, slice, load);
    states_before_[layer + 1] = SaturatingAdd(states_before_[layer], state);
    for (const auto kind : {ComputeKind::kGpu, ComputeKind::kCpu}) {
      std::vector<uint64_t>& before = (kind == ComputeKind::kGpu ? gpu_ : cpu_).kv_before;
      const uint64_t kv = state > 0 ? state : LayerKvBytes(model, layer, slice, load, kind);
      before[layer + 1] = SaturatingAdd(before[layer], kv);
    }
  }
  if (FirstKvReader(model) < layers) {
    gpu_.copies =
        SaturatingMultiply(kSharedKvKinds, LayerKvBytes(model, 0, slice, load, ComputeKind::kGpu));
    cpu_.copies =
        SaturatingMultiply(kSharedKvKinds, LayerKvBytes(model, 0, slice, load, ComputeKind::kCpu));
  }
  embedding_bytes_ = EmbeddingBytes(model, vocabulary);
  for (const bool yes : {false, true}) {
    head_bytes_[yes] = HeadBytes(model, yes, vocabulary);
    gpu_.activation_bytes[yes] = ActivationBytes(model, slice, load, ComputeKind::kGpu, yes);
    cpu_.activation_bytes[yes] = ActivationBytes(model, slice, load, ComputeKind::kCpu, yes);
  }
}

uint64_t MemoryModel::GrowingBytes(const Sums& sums, uint32_t begin, uint32_t end,
                                   bool holds_embedding, bool holds_head) const {
  uint64_t bytes = weights_before_[end] - weights_before_[begin];
  if (end > FirstKvReader(*model_)) bytes = SaturatingAdd(bytes, sums.copies);
  // A sum that stopped at the largest number has lost what came before.
  const uint64_t kv = sums.kv_before[end] == kBytesMax && begin < end
                          ? kBytesMax
                          : sums.kv_before[end] - sums.kv_before[begin];
  bytes = SaturatingAdd(bytes, kv);
  bytes = SaturatingAdd(bytes, sums.activation_bytes[holds_head || holds_embedding]);
  if (holds_embedding) bytes = SaturatingAdd(bytes, embedding_bytes_);
  if (holds_head) bytes = SaturatingAdd(bytes, head_bytes_[holds_embedding]);
  return bytes;
}

v1::MemoryNeed MemoryModel::Need(ComputeKind kind, uint32_t begin, uint32_t end,
                                 bool holds_embedding, bool holds_head) const {
  MACRAME_CHECK(begin <= end && end < weights_before_.size()) << begin << ".." << end;
  const Sums& sums = SumsOf(kind);
  const uint64_t grows = GrowingBytes(sums, begin, end, holds_embedding, holds_head);
  v1::MemoryNeed need;
  need.set_weights_bytes(weights_before_[end] - weights_before_[begin]);
  if (holds_embedding) need.set_embedding_bytes(embedding_bytes_);
  if (holds_head) need.set_head_bytes(head_bytes_[holds_embedding]);
  const uint64_t states = states_before_[end] - states_before_[begin];
  need.set_state_bytes(states);
  const uint64_t copies = end > FirstKvReader(*model_) ? sums.copies : 0;
  need.set_kv_cache_bytes(
      sums.kv_before[end] == kBytesMax
          ? kBytesMax
          : SaturatingAdd(sums.kv_before[end] - sums.kv_before[begin] - states, copies));
  need.set_activation_bytes(sums.activation_bytes[holds_head || holds_embedding]);
  need.set_runtime_bytes(kRuntimeBytes);
  need.set_headroom_bytes(HeadroomBytes(grows, load_.strictness));
  need.set_total_bytes(NeedBytes(kind, begin, end, holds_embedding, holds_head));
  return need;
}

uint64_t MemoryModel::NeedBytes(ComputeKind kind, uint32_t begin, uint32_t end,
                                bool holds_embedding, bool holds_head) const {
  const uint64_t grows = GrowingBytes(SumsOf(kind), begin, end, holds_embedding, holds_head);
  return SaturatingAdd(SaturatingAdd(grows, HeadroomBytes(grows, load_.strictness)), kRuntimeBytes);
}

}  // namespace macrame::planner
