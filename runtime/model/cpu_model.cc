#include "runtime/model/cpu_model.h"

#include <algorithm>
#include <cmath>

#include "absl/strings/str_cat.h"
#include "mlx/allocator.h"
#include "proto/check.h"
#include "runtime/kernels/elementwise.h"
#include "runtime/kernels/matmul.h"

namespace macrame::runtime::engine {
namespace {

namespace mx = mlx::core;

static_assert(kBlockTokens == static_cast<int>(kernels::kBlockTokens));

kernels::KvType KvTypeOf(mx::Dtype type) {
  return type == mx::float32 ? kernels::KvType::kFloat32 : kernels::KvType::kFloat16;
}

kernels::KvShape KvShapeOf(const ModelConfig& config, const ShardPlace& place,
                           const WeightLoader& loader, const LayerStackOptions& options) {
  const auto heads = static_cast<size_t>(KvHeadsOf(config, place.slices()).size());
  const kernels::KvType type = options.kv_type.value_or(KvTypeOf(loader.model_type()));
  if (config.has_latent()) {
    return {heads > 0 ? size_t{1} : size_t{0}, static_cast<size_t>(config.latent.width()), type,
            static_cast<size_t>(config.latent.kv_rank), static_cast<size_t>(config.index.dim)};
  }
  return {heads, static_cast<size_t>(config.head_dim), type};
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

std::optional<std::variant<CpuFeed, CpuExperts>> LoadFeed(const ModelConfig& config,
                                                          const LayerNeeds& needs,
                                                          WeightLoader& loader) {
  if (needs.feed.has_value()) return CpuFeed(*needs.feed, config.activation, loader);
  if (!needs.router.has_value()) return std::nullopt;
  return CpuExperts(needs, config, loader);
}

}  // namespace

CpuModel::CpuModel(const ModelConfig& config, const ShardPlace& place, WeightLoader& loader,
                   RankSums& sums, const LayerStackOptions& options)
    : config_(config),
      place_(place),
      sums_(sums),
      observer_(options.observer),
      hidden_size_(static_cast<size_t>(config.hidden_size)),
      head_dim_(static_cast<size_t>(config.head_dim)),
      heads_(static_cast<size_t>(KvHeadsOf(config, place.slices()).size() *
                                 (config.attention_heads / config.kv_heads))),
      kv_heads_(static_cast<size_t>(KvHeadsOf(config, place.slices()).size())),
      value_dim_(static_cast<size_t>(config.value_dim())),
      vocabulary_(VocabularyOf(config, place.slices())),
      block_bytes_(kernels::BlockBytes(KvShapeOf(config, place, loader, options)) *
                   static_cast<uint64_t>(AttentionLayersOf(config, place))),
      pool_(options.threads),
      products_(pool_),
      feed_{pool_, products_},
      latent_(pool_, products_, attention_),
      recurrent_cut_(RecurrentCutOf(config, place.slices())),
      recurrent_{pool_, products_},
      tables_(options.blocks_total, options.context_length),
      slot_states_(options.sequences_max, options.state_snapshots),
      states_(static_cast<size_t>(RecurrentLayersOf(config, place)), recurrent_cut_.floats(),
              options.sequences_max, options.state_snapshots),
      rope_layout_(RopeLayoutOf(config.rope, config.local_rope, options.context_length)),
      blocks_(AttentionLayersOf(config, place), options.blocks_total,
              KvShapeOf(config, place, loader, options)) {
  ropes_.emplace_back(config.rope, options.context_length);
  if (config.local_rope.has_value()) {
    ropes_.emplace_back(*config.local_rope, options.context_length);
  }
  if (place.embeds) embedding_.emplace(loader.LoadMatrix(EmbeddingNeed(config, place)));
  layers_.reserve(static_cast<size_t>(place.layer_end - place.layer_begin));
  for (int layer = place.layer_begin; layer < place.layer_end; ++layer) {
    layers_.push_back(LoadLayer(config, place, layer, loader));
  }
  if (place.has_head) final_norm_ = LoadNorm(loader, FinalNormNeed(config));
  if (LoadsHead(config, place)) head_.emplace(loader.LoadMatrix(HeadNeed(config, place)));
}

std::string CpuModel::kv_layout() const {
  const kernels::KvShape& shape = blocks_.shape();
  return absl::StrCat("cpu ", kernels::InstructionSet(), ", type ", static_cast<int>(shape.type),
                      ", ", shape.kv_heads, " x ", shape.head_dim,
                      shape.index_dim > 0 ? absl::StrCat(" + ", shape.index_dim) : "",
                      rope_layout_);
}

CpuModel::Layer CpuModel::LoadLayer(const ModelConfig& config, const ShardPlace& place, int layer,
                                    WeightLoader& loader) {
  const LayerNeeds needs = NeedsOfLayer(config, place, layer);
  const auto load = [&](const MatrixNeed& need) -> std::optional<CpuLinear> {
    if (need.module.empty()) return std::nullopt;
    return CpuLinear(loader.LoadMatrix(need));
  };
  const auto load_latent = [&]() -> std::optional<CpuLatentAttention> {
    if (!needs.latent.has_value()) return std::nullopt;
    return CpuLatentAttention(config, place, *needs.latent, loader);
  };
  const auto load_recurrent = [&]() -> std::optional<CpuRecurrent> {
    if (!needs.recurrent.has_value()) return std::nullopt;
    const ShardPlace before{.layer_begin = place.layer_begin, .layer_end = layer};
    return CpuRecurrent(config, place, *needs.recurrent, loader,
                        static_cast<size_t>(RecurrentLayersOf(config, before)));
  };
  return Layer{load(needs.q),
               load(needs.k),
               load(needs.v),
               load_latent(),
               load_recurrent(),
               load(needs.o),
               LoadFeed(config, needs, loader),
               LoadOptional(loader, needs.attention_norm),
               LoadOptional(loader, needs.attention_out_norm),
               LoadOptional(loader, needs.feed_norm),
               LoadOptional(loader, needs.feed_out_norm),
               LoadOptional(loader, needs.q_norm),
               LoadOptional(loader, needs.k_norm),
               LoadOptional(loader, needs.sinks),
               static_cast<size_t>(config.sliding_windows[static_cast<size_t>(layer)]),
               config.rope_uses[static_cast<size_t>(layer)]};
}

absl::Status CpuModel::Begin(const ForwardStep& step) {
  absl::Status good = config_.has_state() ? slot_states_.Check(step) : absl::OkStatus();
  if (good.ok()) good = tables_.Apply(step, config_.vocab_size);
  if (!good.ok()) return good;
  if (config_.has_state()) {
    slot_states_.Apply(step);
    states_.Open(slot_states_.opened());
  }
  TakeRows(step);
  return good;
}

void CpuModel::TakeRows(const ForwardStep& step) {
  rows_.clear();
  segments_.clear();
  recurrent_segments_.clear();
  for (const Segment& segment : step.segments) {
    const int32_t* blocks = tables_.Table(segment.slot).data();
    segments_.push_back({rows_.size(), segment.tokens.size(), segment.begin, blocks});
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
size_t CpuModel::MixedWidth() const {
  return std::max(heads_ * value_dim_, recurrent_cut_.value_width());
}

void CpuModel::ReserveBuffers() {
  const size_t count = rows_.size();
  buffers_.hidden.Reserve(count * hidden_size_);
  buffers_.normed.Reserve(count * hidden_size_);
  buffers_.partial.Reserve(count * hidden_size_);
  buffers_.mixed.Reserve(count * MixedWidth());
  if (config_.has_latent()) return;
  buffers_.queries.Reserve(count * heads_ * head_dim_);
  buffers_.keys.Reserve(count * kv_heads_ * head_dim_);
  buffers_.values.Reserve(count * kv_heads_ * head_dim_);
  if (config_.attention_gate) buffers_.gated.Reserve(count * 2 * heads_ * head_dim_);
  if (config_.qk_norm_whole) buffers_.squares.Reserve(count * 2);
}

uint64_t CpuModel::buffer_bytes() const {
  uint64_t bytes = products_.memory_bytes() + attention_.memory_bytes() + feed_.memory_bytes() +
                   latent_.memory_bytes() + recurrent_.memory_bytes() + states_.memory_bytes();
  for (const FloatBuffer* buffer :
       {&buffers_.hidden, &buffers_.normed, &buffers_.queries, &buffers_.keys, &buffers_.values,
        &buffers_.mixed, &buffers_.partial, &buffers_.gated, &buffers_.squares}) {
    bytes += buffer->bytes();
  }
  for (const Rope& rope : ropes_) bytes += rope.cosines.bytes() + rope.sines.bytes();
  return bytes;
}

void CpuModel::Norm(const float* x, const mx::array& weight, float* out) const {
  kernels::RmsNorm(x, weight.data<float>(), config_.rms_norm_eps, weight.size(), out);
}

mx::array CpuModel::Embed(std::span<const int32_t> ids) {
  MACRAME_CHECK(embedding_.has_value()) << "this rank holds no embedding";
  mx::array out = NewArray(ids.size(), hidden_size_);
  float* rows = out.data<float>();
  if (place_.tp == 1) {
    kernels::GatherRows(embedding_->view(), ids.data(), ids.size(), rows);
    Multiply(config_.embedding_scale, rows, out.size());
    return out;
  }
  std::fill_n(rows, out.size(), 0.0F);
  for (size_t i = 0; i < ids.size(); ++i) {
    if (ids[i] < vocabulary_.begin || ids[i] >= vocabulary_.end) continue;
    const int32_t row = ids[i] - vocabulary_.begin;
    kernels::GatherRows(embedding_->view(), &row, 1, rows + i * hidden_size_);
  }
  sums_.AddExactlyOverRanks(rows, out.size());
  Multiply(config_.embedding_scale, rows, out.size());
  return out;
}

// Queries from among their gates.
void CpuModel::TakeQueries(size_t row) {
  const float* from = buffers_.gated.data() + row * 2 * heads_ * head_dim_;
  float* to = buffers_.queries.data() + row * heads_ * head_dim_;
  for (size_t head = 0; head < heads_; ++head) {
    std::copy_n(from + 2 * head * head_dim_, head_dim_, to + head * head_dim_);
  }
}

// A row's queries and keys turned to its position; keys and values stored.
void CpuModel::Turn(const Layer& layer, const kernels::KvView& view, size_t row) {
  float* queries = buffers_.queries.data() + row * heads_ * head_dim_;
  float* keys = buffers_.keys.data() + row * kv_heads_ * head_dim_;
  if (config_.attention_gate) TakeQueries(row);
  const auto norm_heads = [&](float* x, size_t heads, const std::optional<mx::array>& weight) {
    for (size_t head = 0; head < heads; ++head, x += head_dim_) Norm(x, *weight, x);
  };
  if (config_.qk_norm) {
    norm_heads(queries, heads_, layer.q_norm);
    norm_heads(keys, kv_heads_, layer.k_norm);
  } else if (config_.qk_norm_whole) {
    ScaleWhole(layer, row);
  }
  if (const Rope* rope = RopeOf(layer); rope != nullptr) {
    const kernels::Rotation turn = rope->RotationOf(row);
    kernels::Rotate(queries, heads_, head_dim_, turn);
    kernels::Rotate(keys, kv_heads_, head_dim_, turn);
  }
  if (config_.ScalesQueries()) {
    Multiply(config_.QueryScaleAt(rows_[row].position), queries, heads_ * head_dim_);
  }
  kernels::StoreKv(view, rows_[row].blocks, rows_[row].position, keys,
                   buffers_.values.data() + row * kv_heads_ * head_dim_);
}

// Every rank adds its part of the squares, one without heads too.
void CpuModel::AddSquares() {
  float* squares = buffers_.squares.data();
  const auto sum_of = [](const float* x, size_t size) {
    float sum = 0.0F;
    for (size_t i = 0; i < size; ++i) sum += x[i] * x[i];
    return sum;
  };
  const size_t queries = heads_ * head_dim_, keys = kv_heads_ * head_dim_;
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
  const size_t queries = heads_ * head_dim_, keys = kv_heads_ * head_dim_;
  scale(buffers_.queries.data() + row * queries, queries,
        config_.attention_heads * config_.head_dim, squares[0], *layer.q_norm);
  scale(buffers_.keys.data() + row * keys, keys, config_.kv_heads * config_.head_dim, squares[1],
        *layer.k_norm);
}

const float* CpuModel::NormedHidden(const std::optional<mx::array>& norm) {
  if (!norm.has_value()) return buffers_.hidden.data();
  ForRows(pool_, rows_.size(), hidden_size_, [&](size_t row) {
    Norm(buffers_.hidden.data() + row * hidden_size_, *norm,
         buffers_.normed.data() + row * hidden_size_);
  });
  return buffers_.normed.data();
}

void CpuModel::Attend(const Layer& layer, int index) {
  if (!layer.o.has_value()) return;
  if (layer.recurrent.has_value()) {
    layer.recurrent->Apply(NormedHidden(layer.attention_norm), rows_.size(), recurrent_segments_,
                           states_, recurrent_, buffers_.mixed.data());
  } else if (layer.latent.has_value()) {
    if (heads_ > 0) MixLatent(layer, index);
  } else {
    if (heads_ > 0) Project(layer);
    if (config_.qk_norm_whole) AddSquares();
    if (heads_ > 0) Mix(layer, index);
  }
  products_.SetInput(buffers_.mixed.data(), rows_.size(), layer.o->columns());
  products_.Apply(*layer.o, buffers_.partial.data());
  AddPartial(layer.attention_out_norm);
}

void CpuModel::MixLatent(const Layer& layer, int index) {
  const LatentStep step{blocks_.Layer(index), segments_, rows_.size(),
                        RopeOf(layer)->RotationOf(0)};
  layer.latent->Apply(NormedHidden(layer.attention_norm), step, latent_, buffers_.mixed.data());
}

void CpuModel::Project(const Layer& layer) {
  products_.SetInput(NormedHidden(layer.attention_norm), rows_.size(), hidden_size_);
  products_.Apply(*layer.q, (config_.attention_gate ? buffers_.gated : buffers_.queries).data());
  products_.Apply(*layer.k, buffers_.keys.data());
  products_.Apply(*layer.v, buffers_.values.data());
}

void CpuModel::Mix(const Layer& layer, int index) {
  const kernels::KvView view = blocks_.Layer(index);
  ForRows(pool_, rows_.size(), (heads_ + 2 * kv_heads_) * head_dim_,
          [&](size_t row) { Turn(layer, view, row); });
  const float* sinks = layer.sinks.has_value() ? layer.sinks->data<float>() : nullptr;
  kernels::Attend(pool_, view, {heads_, layer.window, 0, sinks}, segments_, buffers_.queries.data(),
                  buffers_.mixed.data(), attention_);
  if (!config_.attention_gate) return;
  ForRows(pool_, rows_.size(), 2 * heads_ * head_dim_, [&](size_t row) {
    const float* gates = buffers_.gated.data() + row * 2 * heads_ * head_dim_ + head_dim_;
    float* mixed = buffers_.mixed.data() + row * heads_ * head_dim_;
    for (size_t head = 0; head < heads_; ++head) {
      kernels::SigmoidMultiply(gates + 2 * head * head_dim_, head_dim_, mixed + head * head_dim_);
    }
  });
}

void CpuModel::Feed(const Layer& layer) {
  if (!layer.feed.has_value()) return;
  const float* in = NormedHidden(layer.feed_norm);
  std::visit(
      [&](const auto& feed) { feed.Apply(in, rows_.size(), feed_, buffers_.partial.data()); },
      *layer.feed);
  AddPartial(layer.feed_out_norm);
}

void CpuModel::AddPartial(const std::optional<mx::array>& norm) {
  float* partial = buffers_.partial.data();
  if (place_.tp > 1) sums_.AddOverRanks(partial, rows_.size() * hidden_size_);
  ForRows(pool_, rows_.size(), hidden_size_, [&](size_t row) {
    float* own = partial + row * hidden_size_;
    if (norm.has_value()) Norm(own, *norm, own);
    Multiply(config_.residual_scale, own, hidden_size_);
    kernels::AddTo(own, hidden_size_, buffers_.hidden.data() + row * hidden_size_);
  });
}

mx::array CpuModel::Run(const mx::array& hidden, const ForwardStep&) {
  const size_t count = rows_.size() * hidden_size_;
  MACRAME_CHECK(hidden.size() == count) << hidden.size() << " numbers for " << rows_.size();
  ReserveBuffers();
  const mx::array in = Evaluated(hidden);
  std::copy_n(in.data<float>(), count, buffers_.hidden.data());
  int attending = 0;
  for (size_t i = 0; i < layers_.size(); ++i) {
    const PartScope part(observer_, StepPart::kLayer,
                         static_cast<uint32_t>(place_.layer_begin) + static_cast<uint32_t>(i));
    Attend(layers_[i], attending);
    if (layers_[i].q.has_value() || layers_[i].latent.has_value()) ++attending;
    Feed(layers_[i]);
  }
  states_.Keep(slot_states_.kept());
  mx::array out = NewArray(rows_.size(), hidden_size_);
  std::copy_n(buffers_.hidden.data(), count, out.data<float>());
  return out;
}

void CpuModel::NormRows(const mx::array& hidden, std::span<const int32_t> rows, float* out) const {
  MACRAME_CHECK(final_norm_.has_value()) << "this rank is not of the last stage";
  const mx::array in = Evaluated(hidden);
  for (size_t i = 0; i < rows.size(); ++i) {
    Norm(in.data<float>() + static_cast<size_t>(rows[i]) * hidden_size_, *final_norm_,
         out + i * hidden_size_);
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
  return out;
}

}  // namespace macrame::runtime::engine
