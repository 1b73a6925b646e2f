#include "runtime/model/cpu/cpu_model.h"

#include <algorithm>
#include <cmath>

#include "absl/strings/str_cat.h"
#include "mlx/allocator.h"
#include "proto/check.h"
#include "runtime/kernels/elementwise.h"
#include "runtime/kernels/matmul.h"
#include "runtime/model/weights/block_needs.h"

namespace macrame::runtime::engine {
namespace {

namespace mx = mlx::core;

static_assert(kBlockTokens == static_cast<int>(kernels::kBlockTokens));

kernels::KvType KvTypeOf(mx::Dtype type) {
  return type == mx::float32 ? kernels::KvType::kFloat32 : kernels::KvType::kFloat16;
}

kernels::KvType KvTypeOf(const WeightLoader& loader, const LayerStackOptions& options) {
  return options.kv_type.value_or(KvTypeOf(loader.model_type()));
}

kernels::KvShape KvShapeOf(const ModelConfig& config, const ShardPlace& place, int layer,
                           kernels::KvType type) {
  if (config.has_compression()) {
    // Ranks without heads too make and choose entries.
    const auto dim = static_cast<size_t>(config.head_dim);
    return {1, dim, type, dim};
  }
  const auto heads = static_cast<size_t>(KvHeadsOf(config, layer, place.slices()).size());
  if (config.has_latent()) {
    return {heads > 0 ? size_t{1} : size_t{0}, static_cast<size_t>(config.latent.width()), type,
            static_cast<size_t>(config.latent.kv_rank), static_cast<size_t>(config.index.dim)};
  }
  return {heads, static_cast<size_t>(config.HeadsOf(layer).dim), type};
}

// Of all layers whose keys and values this rank keeps.
std::vector<kernels::KvShape> KvShapesOf(const ModelConfig& config, const ShardPlace& place,
                                         const WeightLoader& loader,
                                         const LayerStackOptions& options) {
  std::vector<kernels::KvShape> shapes;
  for (const int layer : KvLayersOf(config, place)) {
    shapes.push_back(KvShapeOf(config, place, layer, KvTypeOf(loader, options)));
  }
  // Behind them the keys of their indexers.
  const bool has_heads = KvHeadsOf(config, place.slices()).size() > 0;
  const auto dim = static_cast<size_t>(config.block_index.dim);
  const kernels::KvShape index{has_heads ? size_t{1} : 0, 0, KvTypeOf(loader, options), dim, dim};
  shapes.insert(shapes.end(), BlockIndexLayersOf(config, place).size(), index);
  return shapes;
}

// Of compressed entries, with their index keys.
kernels::KvShape EntryShapeOf(const ModelConfig& config, const WeightLoader& loader,
                              const LayerStackOptions& options) {
  const auto dim = static_cast<size_t>(config.head_dim);
  return {1, dim, KvTypeOf(loader, options), dim, static_cast<size_t>(config.compress.index_dim)};
}

// An array of float32 to write into.
mx::array NewArray(size_t rows, size_t columns) {
  return mx::array(mx::allocator::malloc(rows * columns * sizeof(float)),
                   {static_cast<int>(rows), static_cast<int>(columns)}, mx::float32);
}

// The array's float32 numbers, row after row.
mx::array Evaluated(const mx::array& x) {
  if (x.dtype() == mx::float32 && x.is_available() && x.flags().row_contiguous) return x;
  mx::array plain = mx::contiguous(mx::astype(x, mx::float32));
  plain.eval();
  return plain;
}

mx::array LoadNorm(WeightLoader& loader, const VectorNeed& need) {
  return Evaluated(*loader.LoadVector(need));
}

std::optional<mx::array> LoadOptional(WeightLoader& loader, const VectorNeed& need) {
  if (need.name.empty()) return std::nullopt;
  return LoadNorm(loader, need);
}

void Multiply(float scale, float* x, size_t size) {
  if (scale == 1.0F) return;
  for (size_t i = 0; i < size; ++i) x[i] *= scale;
}

void CapLogits(float cap, float* logits, size_t count, kernels::ThreadPool& pool) {
  constexpr size_t kPiece = 4096;
  ForRows(pool, (count + kPiece - 1) / kPiece, kPiece, [&](size_t piece) {
    for (size_t i = piece * kPiece; i < std::min(count, (piece + 1) * kPiece); ++i) {
      logits[i] = cap * std::tanh(logits[i] / cap);
    }
  });
}

std::optional<std::variant<CpuFeed, CpuExperts>> LoadFeed(const ModelConfig& config,
                                                          const LayerNeeds& needs,
                                                          WeightLoader& loader) {
  if (needs.feed.has_value()) return CpuFeed(*needs.feed, config, loader);
  if (!needs.router.has_value()) return std::nullopt;
  return CpuExperts(needs, config, loader);
}

std::optional<CpuBlockAttention> LoadByBlocks(const ModelConfig& config, const ShardPlace& place,
                                              const LayerNeeds& needs, WeightLoader& loader) {
  if (!needs.block_index.has_value()) return std::nullopt;
  return CpuBlockAttention(config, place, *needs.block_index, loader);
}

}  // namespace

CpuModel::CpuModel(const ModelConfig& config, const ShardPlace& place, WeightLoader& loader,
                   RankSums& sums, const LayerStackOptions& options)
    : config_(config),
      place_(place),
      sums_(sums),
      observer_(options.observer),
      hidden_size_(static_cast<size_t>(config.hidden_size)),
      in_(CarriedInto(config, place.layer_begin)),
      out_(CarriedInto(config, place.layer_end)),
      kv_layers_(KvLayersOf(config, place)),
      vocabulary_(VocabularyOf(config, place.slices())),
      entry_places_(config, place),
      pool_(options.threads),
      products_(pool_),
      feed_{pool_, products_},
      latent_(pool_, products_, attention_),
      by_blocks_(pool_, products_, attention_),
      input_work_{pool_, products_},
      recurrent_cut_(RecurrentCutOf(config, place.slices())),
      recurrent_{pool_, products_},
      tables_(options.blocks_total, options.context_length),
      slot_states_(options.sequences_max, options.state_snapshots),
      states_(static_cast<size_t>(RecurrentLayersOf(config, place)), recurrent_cut_.floats(),
              options.sequences_max, options.state_snapshots),
      compressed_(config, pool_, products_, attention_),
      open_groups_(static_cast<size_t>(PoolingLayersOf(config, place)),
                   2 * static_cast<size_t>(config.head_dim)),
      streams_(config, pool_, products_),
      rope_layout_(RopeLayoutOf(config.rope, config.local_rope, options.context_length)),
      blocks_(options.blocks_total, KvShapesOf(config, place, loader, options)),
      entries_(options.blocks_total, std::vector(static_cast<size_t>(entry_places_.count),
                                                 EntryShapeOf(config, loader, options))),
      block_bytes_(blocks_.block_bytes() + entries_.block_bytes()),
      ones_(static_cast<size_t>(std::max({config.head_dim, config.hidden_size,
                                          config.global_heads.value_or(HeadTraits()).dim})),
            1.0F) {
  ropes_.emplace_back(config.rope, options.context_length);
  if (config.local_rope.has_value()) {
    ropes_.emplace_back(*config.local_rope, options.context_length);
  }
  if (place.embeds) {
    embedding_.emplace(loader.LoadLinear(EmbeddingNeed(config, place)));
    if (const auto needs = InputNeedsOf(config, place)) inputs_.emplace(*needs, config, loader);
  }
  for (const CarriedRow::Kv& kv : out_.kv) {
    if (kv.layer < place.layer_begin) continue;
    read_kv_.push_back(kv);
    read_kv_.back().begin = read_kv_width_;
    read_kv_width_ += 2 * kv.size();
  }
  layers_.reserve(static_cast<size_t>(place.layer_end - place.layer_begin));
  for (int layer = place.layer_begin; layer < place.layer_end; ++layer) {
    layers_.push_back(LoadLayer(layer, loader));
    const Heads& heads = layers_.back().heads;
    query_width_ = std::max(query_width_, heads.query_width());
    kv_width_ = std::max(kv_width_, heads.kv_width());
    const int columns = config.OutputColumns(config.HeadsOf(layer));
    mixed_width_ = std::max(mixed_width_, heads.kv * static_cast<size_t>(columns));
  }
  if (place.has_head) final_norm_ = LoadNorm(loader, FinalNormNeed(config));
  if (LoadsHead(config, place)) head_.emplace(loader.LoadLinear(HeadNeed(config, place)));
}

std::string CpuModel::kv_layout() const {
  std::string layout = absl::StrCat("cpu ", kernels::InstructionSet());
  const kernels::KvShape* before = nullptr;
  for (const kernels::KvShape& shape : blocks_.shapes()) {
    const bool is_same = before != nullptr && before->kv_heads == shape.kv_heads &&
                         before->head_dim == shape.head_dim;
    if (before == nullptr) absl::StrAppend(&layout, ", type ", static_cast<int>(shape.type));
    before = &shape;
    if (is_same) continue;
    absl::StrAppend(&layout, ", ", shape.kv_heads, " x ", shape.head_dim,
                    shape.index_dim > 0 ? absl::StrCat(" + ", shape.index_dim) : "");
  }
  const int entries = entry_places_.count;
  if (entries > 0) absl::StrAppend(&layout, ", entries of ", entries);
  return layout + rope_layout_;
}

// A block in all layers, then in all that hold entries.
void CpuModel::ReadBlock(int32_t block, std::span<std::byte> out) const {
  blocks_.Read(block, out.first(blocks_.block_bytes()));
  entries_.Read(block, out.subspan(blocks_.block_bytes()));
}

void CpuModel::WriteBlock(int32_t block, std::span<const std::byte> bytes) {
  blocks_.Write(block, bytes.first(blocks_.block_bytes()));
  entries_.Write(block, bytes.subspan(blocks_.block_bytes()));
}

std::optional<CpuModel::Beside> CpuModel::LoadBeside(const LayerNeeds& needs,
                                                     WeightLoader& loader) const {
  if (!needs.beside.has_value()) return std::nullopt;
  CpuExperts experts(needs, config_, loader);
  const BesideNeeds& own = *needs.beside;
  mx::array feed_out = LoadNorm(loader, own.feed_out_norm);
  mx::array experts_in = LoadNorm(loader, own.experts_in_norm);
  mx::array experts_out = LoadNorm(loader, own.experts_out_norm);
  const float root = 1.0F / std::sqrt(static_cast<float>(hidden_size_));
  return Beside{std::move(experts), std::move(feed_out), std::move(experts_in),
                std::move(experts_out),
                Evaluated(mx::multiply(LoadNorm(loader, own.router_scale), mx::array(root)))};
}

CpuModel::Layer CpuModel::LoadLayer(int layer, WeightLoader& loader) const {
  const LayerNeeds needs = NeedsOfLayer(config_, place_, layer);
  const auto load = [&](const LinearNeed& need) -> std::optional<CpuLinear> {
    if (need.module.empty()) return std::nullopt;
    return CpuLinear(loader.LoadLinear(need));
  };
  const auto load_latent = [&]() -> std::optional<CpuLatentAttention> {
    if (!needs.latent.has_value()) return std::nullopt;
    return CpuLatentAttention(config_, place_, *needs.latent, loader);
  };
  const auto load_recurrent = [&]() -> std::optional<CpuRecurrent> {
    if (!needs.recurrent.has_value()) return std::nullopt;
    const ShardPlace before{.layer_begin = place_.layer_begin, .layer_end = layer};
    return CpuRecurrent(config_, place_, *needs.recurrent, loader,
                        static_cast<size_t>(RecurrentLayersOf(config_, before)));
  };
  const auto load_compressed = [&]() -> std::optional<CpuCompressedAttention> {
    if (!needs.compressed.has_value()) return std::nullopt;
    return CpuCompressedAttention(config_, place_, layer, *needs.compressed, loader);
  };
  const auto load_mix = [&](const std::optional<StreamNeeds>& own) -> std::optional<CpuStreamMix> {
    if (!own.has_value()) return std::nullopt;
    return CpuStreamMix(*own, loader);
  };
  const auto load_input = [&]() -> std::optional<CpuLayerInput> {
    if (!needs.input.has_value()) return std::nullopt;
    return CpuLayerInput(*needs.input, config_, loader);
  };
  const auto load_scalar = [&]() {
    return needs.scalar.name.empty() ? 1.0F : LoadNorm(loader, needs.scalar).data<float>()[0];
  };
  const HeadTraits heads = config_.HeadsOf(layer);
  const Range own = KvHeadsOf(config_, layer, place_.slices());
  const auto kv = static_cast<size_t>(own.size());
  const auto found = std::find(kv_layers_.begin(), kv_layers_.end(), config_.KvSourceOf(layer));
  const size_t indexed_before = BlockIndexLayersOf(config_, {place_.layer_begin, layer}).size();
  const bool attends = config_.MixerOf(layer) == MixerKind::kAttention;
  return Layer{load(needs.q),
               load(needs.k),
               load(needs.v),
               load_latent(),
               load_recurrent(),
               load_compressed(),
               LoadByBlocks(config_, place_, needs, loader),
               load(needs.o),
               LoadFeed(config_, needs, loader),
               LoadBeside(needs, loader),
               load_input(),
               LoadOptional(loader, needs.attention_norm),
               LoadOptional(loader, needs.attention_out_norm),
               LoadOptional(loader, needs.feed_norm),
               LoadOptional(loader, needs.feed_out_norm),
               LoadOptional(loader, needs.q_norm),
               LoadOptional(loader, needs.k_norm),
               LoadOptional(loader, needs.sinks),
               load_scalar(),
               static_cast<size_t>(config_.sliding_windows[static_cast<size_t>(layer)]),
               config_.rope_uses[static_cast<size_t>(layer)],
               load_mix(needs.attention_streams),
               load_mix(needs.feed_streams),
               {kv * static_cast<size_t>(config_.attention_heads / heads.kv_heads), kv,
                static_cast<size_t>(heads.dim), static_cast<size_t>(own.begin)},
               layer,
               attends ? static_cast<int>(found - kv_layers_.begin()) : -1,
               static_cast<int>(kv_layers_.size() + indexed_before),
               out_.KvOf(layer) != nullptr};
}

absl::Status CpuModel::Begin(const ForwardStep& step) {
  absl::Status good = config_.has_state() ? slot_states_.Check(step) : open_groups_.Check(step);
  if (good.ok() && !step.copies.empty()) {
    good =
        absl::InternalError("rank 0 sent a step that copies blocks, which our kernels never need");
  }
  if (good.ok()) good = tables_.Apply(step, config_.vocab_size);
  if (!good.ok()) return good;
  if (config_.has_state()) {
    slot_states_.Apply(step);
    states_.Open(slot_states_.opened());
  }
  open_groups_.Apply(step);
  TakeRows(step);
  return good;
}

void CpuModel::TakeRows(const ForwardStep& step) {
  rows_.clear();
  segments_.clear();
  recurrent_segments_.clear();
  slots_.clear();
  for (const Segment& segment : step.segments) {
    const int32_t* blocks = tables_.Table(segment.slot).data();
    segments_.push_back({rows_.size(), segment.tokens.size(), segment.begin, blocks});
    slots_.push_back(segment.slot);
    if (config_.has_state()) {
      recurrent_segments_.push_back(
          {rows_.size(), segment.tokens.size(), slot_states_.StateOf(segment.slot)});
    }
    for (size_t i = 0; i < segment.tokens.size(); ++i) rows_.push_back({segment.begin + i, blocks});
  }
  for (Rope& rope : ropes_) rope.TurnTo(rows_);
}

// The cosines and sines of each row's position.
void CpuModel::Rope::TurnTo(const std::vector<Row>& rows) {
  const size_t half = table.frequencies.size();
  float* cosine = cosines.Reserve(rows.size() * half);
  float* sine = sines.Reserve(rows.size() * half);
  for (const Row& row : rows) {
    const float position = static_cast<float>(row.position) * table.position_scale;
    for (const float frequency : table.frequencies) {
      const double angle = position * frequency;
      *cosine++ = static_cast<float>(std::cos(angle) * double{table.magnitude});
      *sine++ = static_cast<float>(std::sin(angle) * double{table.magnitude});
    }
  }
}

const CpuModel::Rope* CpuModel::RopeOf(const Layer& layer) const {
  if (layer.rope == RopeUse::kNone) return nullptr;
  return &(layer.rope == RopeUse::kLocal ? ropes_.back() : ropes_.front());
}

// What goes into a layer's output map, of the kind of layer that has most.
size_t CpuModel::MixedWidth() const { return std::max(mixed_width_, recurrent_cut_.value_width()); }

void CpuModel::ReserveBuffers() {
  const size_t count = rows_.size();
  buffers_.hidden.Reserve(count * hidden_size_);
  buffers_.normed.Reserve(count * hidden_size_);
  buffers_.partial.Reserve(count * hidden_size_);
  buffers_.mixed.Reserve(count * MixedWidth());
  buffers_.read_kv.Reserve(count * static_cast<size_t>(read_kv_width_));
  if (config_.experts.beside_feed) {
    buffers_.beside.Reserve(count * hidden_size_);
    buffers_.seen.Reserve(count * hidden_size_);
  }
  if (config_.has_latent() || config_.has_compression()) return;
  buffers_.queries.Reserve(count * query_width_);
  buffers_.keys.Reserve(count * kv_width_);
  buffers_.values.Reserve(count * kv_width_);
  if (config_.attention_gate) buffers_.gated.Reserve(count * 2 * query_width_);
  if (config_.qk_norm_whole) buffers_.squares.Reserve(count * 2);
}

uint64_t CpuModel::buffer_bytes() const {
  uint64_t bytes = products_.memory_bytes() + attention_.memory_bytes() + feed_.memory_bytes() +
                   latent_.memory_bytes() + by_blocks_.memory_bytes() + recurrent_.memory_bytes() +
                   states_.memory_bytes() + input_work_.memory_bytes() +
                   compressed_.memory_bytes() + open_groups_.memory_bytes() +
                   streams_.memory_bytes();
  for (const FloatBuffer* buffer :
       {&buffers_.hidden, &buffers_.normed, &buffers_.queries, &buffers_.keys, &buffers_.values,
        &buffers_.mixed, &buffers_.partial, &buffers_.gated, &buffers_.squares, &buffers_.beside,
        &buffers_.seen, &buffers_.read_kv}) {
    bytes += buffer->bytes();
  }
  for (const Rope& rope : ropes_) bytes += rope.cosines.bytes() + rope.sines.bytes();
  return bytes;
}

void CpuModel::Norm(const float* x, const mx::array& weight, float* out) const {
  kernels::RmsNorm(x, weight.data<float>(), config_.rms_norm_eps, weight.size(), out);
}

void CpuModel::EmbedRows(std::span<const int32_t> ids, float* rows) {
  const size_t count = ids.size() * hidden_size_;
  if (place_.tp == 1) {
    kernels::GatherRows(embedding_->view(), ids.data(), ids.size(), rows);
    Multiply(config_.embedding_scale, rows, count);
    return;
  }
  std::fill_n(rows, count, 0.0F);
  for (size_t i = 0; i < ids.size(); ++i) {
    if (ids[i] < vocabulary_.begin || ids[i] >= vocabulary_.end) continue;
    const int32_t row = ids[i] - vocabulary_.begin;
    kernels::GatherRows(embedding_->view(), &row, 1, rows + i * hidden_size_);
  }
  sums_.AddExactlyOverRanks(rows, count);
  Multiply(config_.embedding_scale, rows, count);
}

// All streams begin as the embedding, and the first half layer reads the first one.
mx::array CpuModel::Embed(std::span<const int32_t> ids) {
  MACRAME_CHECK(embedding_.has_value()) << "this rank holds no embedding";
  const auto width = static_cast<size_t>(in_.width);
  mx::array out = NewArray(ids.size(), width);
  if (width == hidden_size_) {
    EmbedRows(ids, out.data<float>());
    return out;
  }
  float* rows = buffers_.normed.Reserve(ids.size() * hidden_size_);
  EmbedRows(ids, rows);
  for (size_t row = 0; row < ids.size(); ++row) {
    float* to = out.data<float>() + row * width;
    for (int stream = 0; stream < config_.streams.count; ++stream) {
      to = std::copy_n(rows + row * hidden_size_, hidden_size_, to);
    }
    std::fill_n(to, in_.weights, 0.0F);
    if (in_.weights > 0) *to = 1.0F;
  }
  if (!inputs_.has_value()) return out;
  inputs_->Make(ids, rows, vocabulary_, sums_, input_work_,
                {out.data<float>() + in_.InputBegin(0), width});
  return out;
}

// Queries from among their gates.
void CpuModel::TakeQueries(const Layer& layer, size_t row) {
  const size_t dim = layer.heads.dim;
  const float* from = buffers_.gated.data() + row * 2 * layer.heads.query_width();
  float* to = buffers_.queries.data() + row * layer.heads.query_width();
  for (size_t head = 0; head < layer.heads.queries; ++head) {
    std::copy_n(from + 2 * head * dim, dim, to + head * dim);
  }
}

// A row's queries turned to its position; its keys too, which are stored with the values.
void CpuModel::Turn(const Layer& layer, const kernels::KvView& view, size_t row) {
  const Heads& own = layer.heads;
  float* queries = buffers_.queries.data() + row * own.query_width();
  if (config_.attention_gate) TakeQueries(layer, row);
  if (config_.qk_norm) {
    for (size_t head = 0; head < own.queries; ++head) {
      Norm(queries + head * own.dim, *layer.q_norm, queries + head * own.dim);
    }
  } else if (config_.qk_norm_whole) {
    ScaleWhole(layer, row);
  }
  if (const Rope* rope = RopeOf(layer); rope != nullptr) {
    kernels::Rotate(queries, own.queries, own.dim, rope->RotationOf(row));
  }
  if (config_.ScalesQueries()) {
    Multiply(config_.QueryScaleAt(rows_[row].position, static_cast<int>(own.dim)), queries,
             own.query_width());
  }
  if (!layer.k.has_value()) return;  // another layer's are there
  TurnKeys(layer, row);
  kernels::StoreKv(view, rows_[row].blocks, rows_[row].position,
                   buffers_.keys.data() + row * own.kv_width(),
                   buffers_.values.data() + row * own.kv_width());
}

void CpuModel::TurnKeys(const Layer& layer, size_t row) {
  const Heads& own = layer.heads;
  float* keys = buffers_.keys.data() + row * own.kv_width();
  float* values = buffers_.values.data() + row * own.kv_width();
  if (!layer.v.has_value()) std::copy_n(keys, own.kv_width(), values);
  for (size_t head = 0; head < own.kv; ++head) {
    float* key = keys + head * own.dim;
    float* value = values + head * own.dim;
    if (config_.qk_norm) Norm(key, *layer.k_norm, key);
    if (config_.value_norm) {
      kernels::RmsNorm(value, ones_.data(), config_.rms_norm_eps, own.dim, value);
    }
  }
  if (const Rope* rope = RopeOf(layer); rope != nullptr) {
    kernels::Rotate(keys, own.kv, own.dim, rope->RotationOf(row));
  }
}

// Every rank adds its part of the squares, one without heads too.
void CpuModel::AddSquares(const Layer& layer) {
  float* squares = buffers_.squares.data();
  const auto sum_of = [](const float* x, size_t size) {
    float sum = 0.0F;
    for (size_t i = 0; i < size; ++i) sum += x[i] * x[i];
    return sum;
  };
  const size_t queries = layer.heads.query_width(), keys = layer.heads.kv_width();
  ForRows(pool_, rows_.size(), queries + keys, [&](size_t row) {
    squares[2 * row] = sum_of(buffers_.queries.data() + row * queries, queries);
    squares[2 * row + 1] = sum_of(buffers_.keys.data() + row * keys, keys);
  });
  if (place_.tp > 1) sums_.AddExactlyOverRanks(squares, rows_.size() * 2);
}

// RMS norms over the queries and over the keys of all heads, of which this rank has some.
void CpuModel::ScaleWhole(const Layer& layer, size_t row) {
  const auto scale = [&](float* x, size_t size, int whole, float squares, const mx::array& weight) {
    const float by = 1.0F / std::sqrt(squares / static_cast<float>(whole) + config_.rms_norm_eps);
    const float* weights = weight.data<float>();
    for (size_t i = 0; i < size; ++i) x[i] = x[i] * by * weights[i];
  };
  const float* squares = buffers_.squares.data() + 2 * row;
  const size_t queries = layer.heads.query_width(), keys = layer.heads.kv_width();
  scale(buffers_.queries.data() + row * queries, queries,
        config_.attention_heads * config_.head_dim, squares[0], *layer.q_norm);
  scale(buffers_.keys.data() + row * keys, keys, config_.kv_heads * config_.head_dim, squares[1],
        *layer.k_norm);
}

const float* CpuModel::NormedHidden(const std::optional<mx::array>& norm,
                                    const std::optional<CpuStreamMix>& mix) {
  if (mix.has_value()) streams_.Begin(*mix, buffers_.hidden.data());
  if (!norm.has_value()) return buffers_.hidden.data();
  ForRows(pool_, rows_.size(), hidden_size_, [&](size_t row) {
    Norm(buffers_.hidden.data() + row * hidden_size_, *norm,
         buffers_.normed.data() + row * hidden_size_);
  });
  return buffers_.normed.data();
}

void CpuModel::Attend(const Layer& layer) {
  if (!layer.o.has_value()) return;
  const bool has_heads = layer.heads.queries > 0;
  if (layer.recurrent.has_value()) {
    layer.recurrent->Apply(NormedHidden(layer.attention_norm, layer.attention_mix), rows_.size(),
                           recurrent_segments_, states_, recurrent_, buffers_.mixed.data());
  } else if (layer.compressed.has_value()) {
    MixCompressed(layer);
  } else if (layer.latent.has_value()) {
    if (has_heads) MixLatent(layer);
  } else {
    if (has_heads) Project(layer);
    if (config_.qk_norm_whole) AddSquares(layer);
    if (has_heads) Mix(layer);
    if (layer.is_read) KeepForLater(layer);
  }
  products_.SetInput(buffers_.mixed.data(), rows_.size(), layer.o->columns());
  products_.Apply(*layer.o, buffers_.partial.data());
  SumPartial();
  AddPartial(layer.attention_out_norm);
}

void CpuModel::MixLatent(const Layer& layer) {
  const LatentStep step{blocks_.Layer(layer.kv), segments_, rows_.size(),
                        RopeOf(layer)->RotationOf(0)};
  layer.latent->Apply(NormedHidden(layer.attention_norm, layer.attention_mix), step, latent_,
                      buffers_.mixed.data());
}

void CpuModel::MixCompressed(const Layer& layer) {
  const auto index = static_cast<size_t>(layer.number - place_.layer_begin);
  CompressedStep step;
  step.window = blocks_.Layer(layer.kv);
  step.segments = segments_;
  const int place = entry_places_.of_layer[index];
  if (place >= 0) step.entries = entries_.Layer(place);
  std::vector<float*> open;
  if (layer.compressed->pools()) {
    size_t before = 0;
    for (size_t i = 0; i < index; ++i) {
      if (layers_[i].compressed->pools()) ++before;
    }
    for (const uint32_t slot : slots_) open.push_back(open_groups_.Layer(slot, before));
  }
  step.open = open;
  step.rows = rows_.size();
  step.sinks = layer.sinks->data<float>();
  step.rope = &RopeOf(layer)->table;
  step.rotation = RopeOf(layer)->RotationOf(0);
  layer.compressed->Apply(NormedHidden(layer.attention_norm, layer.attention_mix), step,
                          compressed_, buffers_.mixed.data());
}

void CpuModel::Project(const Layer& layer) {
  products_.SetInput(NormedHidden(layer.attention_norm, layer.attention_mix), rows_.size(),
                     hidden_size_);
  products_.Apply(*layer.q, (config_.attention_gate ? buffers_.gated : buffers_.queries).data());
  if (layer.k.has_value()) products_.Apply(*layer.k, buffers_.keys.data());
  if (layer.v.has_value()) products_.Apply(*layer.v, buffers_.values.data());
  if (layer.by_blocks.has_value()) layer.by_blocks->Project(BlockStepOf(layer), by_blocks_);
}

BlockStep CpuModel::BlockStepOf(const Layer& layer) const {
  return {blocks_.Layer(layer.kv), blocks_.Layer(layer.index), segments_, rows_.size(),
          RopeOf(layer)->RotationOf(0)};
}

void CpuModel::Mix(const Layer& layer) {
  const Heads& own = layer.heads;
  const kernels::KvView view = blocks_.Layer(layer.kv);
  ForRows(pool_, rows_.size(), own.query_width() + 2 * own.kv_width(),
          [&](size_t row) { Turn(layer, view, row); });
  const float* queries = buffers_.queries.data();
  const float* sinks = layer.sinks.has_value() ? layer.sinks->data<float>() : nullptr;
  if (layer.by_blocks.has_value()) {
    layer.by_blocks->Attend(BlockStepOf(layer), queries, buffers_.mixed.data(), by_blocks_);
  } else {
    kernels::Attend(pool_, view, {own.queries, layer.window, 0, sinks}, segments_, queries,
                    buffers_.mixed.data(), attention_);
  }
  if (!config_.attention_gate) return;
  ForRows(pool_, rows_.size(), 2 * own.query_width(), [&](size_t row) {
    const float* gates = buffers_.gated.data() + row * 2 * own.query_width() + own.dim;
    float* mixed = buffers_.mixed.data() + row * own.query_width();
    for (size_t head = 0; head < own.queries; ++head) {
      kernels::SigmoidMultiply(gates + 2 * head * own.dim, own.dim, mixed + head * own.dim);
    }
  });
}

// This rank's heads of a layer's keys and values, zeros for those of the others.
void CpuModel::KeepForLater(const Layer& layer) {
  const auto stride = static_cast<size_t>(read_kv_width_);
  const size_t own = layer.heads.kv_width(), first = layer.heads.first_kv * layer.heads.dim;
  for (const CarriedRow::Kv& kv : read_kv_) {
    if (kv.layer != layer.number) continue;
    const auto size = static_cast<size_t>(kv.size());
    for (size_t row = 0; row < rows_.size(); ++row) {
      float* to = buffers_.read_kv.data() + row * stride + kv.begin;
      std::fill_n(to, 2 * size, 0.0F);
      std::copy_n(buffers_.keys.data() + row * own, own, to + first);
      std::copy_n(buffers_.values.data() + row * own, own, to + size + first);
    }
  }
}

void CpuModel::Feed(const Layer& layer) {
  if (!layer.feed.has_value()) return;
  const float* in = NormedHidden(layer.feed_norm, layer.feed_mix);
  std::visit(
      [&](const auto& feed) { feed.Apply(in, rows_.size(), feed_, buffers_.partial.data()); },
      *layer.feed);
  SumPartial();
  if (layer.beside.has_value()) FeedBeside(*layer.beside);
  AddPartial(layer.feed_out_norm);
}

void CpuModel::FeedBeside(const Beside& beside) {
  float* fed = buffers_.beside.data();
  std::copy_n(buffers_.partial.data(), rows_.size() * hidden_size_, fed);
  float* seen = buffers_.seen.data();
  ForRows(pool_, rows_.size(), hidden_size_, [&](size_t row) {
    const size_t at = row * hidden_size_;
    Norm(buffers_.hidden.data() + at, beside.router_norm, seen + at);
    Norm(fed + at, beside.feed_out_norm, fed + at);
  });
  beside.experts.Apply(NormedHidden(beside.experts_in_norm, std::nullopt), seen, rows_.size(),
                       feed_, buffers_.partial.data());
  SumPartial();
  ForRows(pool_, rows_.size(), hidden_size_, [&](size_t row) {
    float* own = buffers_.partial.data() + row * hidden_size_;
    Norm(own, beside.experts_out_norm, own);
    kernels::AddTo(fed + row * hidden_size_, hidden_size_, own);
  });
}

// The input that a layer has of its own, and what all of the layer's is multiplied by.
void CpuModel::TakeInput(const Layer& layer) {
  if (layer.input.has_value()) {
    const StridedRows<const float> inputs{carried_ + in_.InputBegin(layer.number),
                                          static_cast<size_t>(in_.width)};
    layer.input->Apply(buffers_.hidden.data(), rows_.size(), inputs, input_work_,
                       buffers_.partial.data());
    AddPartial(std::nullopt);
  }
  Multiply(layer.scalar, buffers_.hidden.data(), rows_.size() * hidden_size_);
}

void CpuModel::SumPartial() {
  if (place_.tp > 1) sums_.AddOverRanks(buffers_.partial.data(), rows_.size() * hidden_size_);
}

void CpuModel::AddPartial(const std::optional<mx::array>& norm) {
  float* partial = buffers_.partial.data();
  if (config_.has_streams()) return streams_.End(partial);
  ForRows(pool_, rows_.size(), hidden_size_, [&](size_t row) {
    float* own = partial + row * hidden_size_;
    if (norm.has_value()) Norm(own, *norm, own);
    Multiply(config_.residual_scale, own, hidden_size_);
    kernels::AddTo(own, hidden_size_, buffers_.hidden.data() + row * hidden_size_);
  });
}

void CpuModel::TakeCarried(const float* rows) {
  carried_ = rows;
  if (config_.has_streams()) {
    streams_.Take(rows, in_, rows_.size());
    compressed_.Take(rows, in_, rows_.size());
  }
  for (size_t row = 0; row < rows_.size(); ++row) {
    const float* from = rows + row * static_cast<size_t>(in_.width);
    if (!config_.has_streams()) {
      std::copy_n(from, hidden_size_, buffers_.hidden.data() + row * hidden_size_);
    }
    if (entry_places_.first_is_handed) TakeEntry(row);
    for (const CarriedRow::Kv& kv : in_.kv) {
      const auto found = std::find(kv_layers_.begin(), kv_layers_.end(), kv.layer);
      const Range own = KvHeadsOf(config_, kv.layer, place_.slices());
      if (found == kv_layers_.end() || own.size() == 0) continue;
      const float* keys = from + kv.begin + own.begin * kv.heads.dim;
      kernels::StoreKv(blocks_.Layer(static_cast<int>(found - kv_layers_.begin())),
                       rows_[row].blocks, rows_[row].position, keys, keys + kv.size());
    }
  }
}

// The entry of the group that a row ends, which a stage before made.
void CpuModel::TakeEntry(size_t row) {
  const size_t position = rows_[row].position;
  if ((position + 1) % static_cast<size_t>(entry_places_.handed_ratio) != 0) return;
  kernels::StoreKv(entries_.Layer(0), rows_[row].blocks, position, compressed_.Entry(row), nullptr);
}

mx::array CpuModel::HandOn() {
  const auto width = static_cast<size_t>(out_.width);
  const auto passed = static_cast<size_t>(read_kv_width_);
  float* kept = buffers_.read_kv.data();
  if (passed > 0 && place_.tp > 1) sums_.AddExactlyOverRanks(kept, rows_.size() * passed);
  mx::array out = NewArray(rows_.size(), width);
  for (size_t row = 0; row < rows_.size(); ++row) {
    const float* from = carried_ + row * static_cast<size_t>(in_.width);
    float* to = out.data<float>() + row * width;
    if (!config_.has_streams()) {
      std::copy_n(buffers_.hidden.data() + row * hidden_size_, hidden_size_, to);
    }
    std::copy_n(from + in_.InputBegin(place_.layer_end),
                (config_.layer_count - place_.layer_end) * config_.layer_input_width,
                to + out_.InputBegin(place_.layer_end));
    for (const CarriedRow::Kv& kv : out_.kv) {  // those of earlier stages come first
      if (const CarriedRow::Kv* held = in_.KvOf(kv.layer); held != nullptr) {
        std::copy_n(from + held->begin, 2 * kv.size(), to + kv.begin);
      }
    }
    std::copy_n(kept + row * passed, passed, to + width - passed);
  }
  if (config_.has_streams()) {
    streams_.Put(out.data<float>(), out_);
    compressed_.Put(out.data<float>(), out_);
  }
  return out;
}

mx::array CpuModel::Run(const mx::array& hidden, const ForwardStep&) {
  const size_t count = rows_.size() * static_cast<size_t>(in_.width);
  MACRAME_CHECK(hidden.size() == count) << hidden.size() << " numbers for " << rows_.size();
  ReserveBuffers();
  const mx::array in = Evaluated(hidden);
  TakeCarried(in.data<float>());
  for (size_t i = 0; i < layers_.size(); ++i) {
    const PartScope part(observer_, StepPart::kLayer,
                         static_cast<uint32_t>(place_.layer_begin) + static_cast<uint32_t>(i));
    Attend(layers_[i]);
    Feed(layers_[i]);
    TakeInput(layers_[i]);
  }
  states_.Keep(slot_states_.kept());
  return HandOn();
}

void CpuModel::NormRows(const mx::array& hidden, std::span<const int32_t> rows, float* out) const {
  MACRAME_CHECK(final_norm_.has_value()) << "this rank is not of the last stage";
  const mx::array in = Evaluated(hidden);
  for (size_t i = 0; i < rows.size(); ++i) {
    const float* row =
        in.data<float>() + static_cast<size_t>(rows[i]) * static_cast<size_t>(out_.width);
    float* own = out + i * hidden_size_;
    if (config_.has_streams()) {
      streams_.Collapse(row, own);
      row = own;
    }
    Norm(row, *final_norm_, own);
  }
}

mx::array CpuModel::Hidden(const mx::array& hidden, std::span<const int32_t> rows) {
  mx::array out = NewArray(rows.size(), hidden_size_);
  NormRows(hidden, rows, out.data<float>());
  return out;
}

mx::array CpuModel::Logits(const mx::array& hidden, std::span<const int32_t> rows) {
  MACRAME_CHECK(config_.has_head) << "the model has no head";
  const CpuLinear& head = head_.has_value() ? *head_ : *embedding_;
  float* normed = buffers_.normed.Reserve(rows.size() * hidden_size_);
  NormRows(hidden, rows, normed);
  mx::array out = NewArray(rows.size(), head.rows());
  products_.SetInput(normed, rows.size(), hidden_size_);
  products_.Apply(head, out.data<float>());
  Multiply(config_.logit_scale, out.data<float>(), out.size());
  if (config_.logit_cap > 0) CapLogits(config_.logit_cap, out.data<float>(), out.size(), pool_);
  return out;
}

}  // namespace macrame::runtime::engine
