#include "runtime/model/cpu/latent_attention.h"

#include <algorithm>
#include <cstring>
#include <numeric>
#include <utility>

#include "proto/check.h"
#include "runtime/kernels/matmul.h"
#include "runtime/model/cpu/feed.h"

namespace macrame::runtime::engine {
namespace {

namespace mx = mlx::core;

std::vector<float> LoadNorm(WeightLoader& loader, const VectorNeed& need) {
  mx::array floats = mx::contiguous(mx::astype(*loader.LoadVector(need), mx::float32));
  floats.eval();
  return {floats.data<float>(), floats.data<float>() + floats.size()};
}

// `rows` x `columns` scalars of `size` bytes, turned over.
void Turn(const std::byte* from, size_t rows, size_t columns, size_t size, std::byte* to) {
  for (size_t row = 0; row < rows; ++row) {
    for (size_t column = 0; column < columns; ++column) {
      std::memcpy(to + (column * rows + row) * size, from + (row * columns + column) * size, size);
    }
  }
}

// All of a quantised matrix' numbers, row after row.
std::vector<float> Unpacked(const kernels::MatrixView& matrix) {
  std::vector<int32_t> rows(matrix.rows);
  std::iota(rows.begin(), rows.end(), 0);
  std::vector<float> floats(matrix.rows * matrix.columns);
  kernels::GatherRows(matrix, rows.data(), rows.size(), floats.data());
  return floats;
}

// Calls function(head, worker) for each head, on all threads.
template <typename Workers, typename Function>
void ForHeads(kernels::ThreadPool& pool, size_t heads, Workers& workers, const Function& function) {
  pool.Run([&](int worker, int count) {
    const auto part = kernels::RowsOfWorker(heads, 1, worker, count);
    for (size_t head = part.begin; head < part.end; ++head) {
      function(head, *workers[static_cast<size_t>(worker)]);
    }
  });
}

// to [count, map.rows] = the map of `count` vectors.
template <typename Worker>
void Multiply(const kernels::MatrixView& map, size_t count, Worker& worker) {
  worker.input.Set(worker.from.data(), count, map.columns);
  kernels::MultiplyTransposed(worker.alone, map, worker.input, worker.to.data(), worker.scratch);
}

}  // namespace

LatentWork::LatentWork(kernels::ThreadPool& pool, CpuProducts& products,
                       kernels::AttentionScratch& scratch)
    : pool_(pool), products_(products), scratch_(scratch) {
  for (int i = 0; i < pool.threads(); ++i) workers_.push_back(std::make_unique<Worker>());
}

size_t LatentWork::memory_bytes() const {
  size_t bytes = query_latent_.bytes() + keys_.bytes() + queries_.bytes() + embedded_.bytes() +
                 mixed_.bytes() + rows_.bytes() + chosen_cache_.bytes() + index_.memory_bytes();
  for (const auto& worker : workers_) {
    bytes += worker->input.memory_bytes() + worker->scratch.memory_bytes() + worker->from.bytes() +
             worker->to.bytes();
  }
  return bytes;
}

CpuLatentAttention::CpuLatentAttention(const ModelConfig& config, const ShardPlace& place,
                                       const LatentNeeds& needs, WeightLoader& loader)
    : traits_(config.latent),
      heads_(static_cast<size_t>(KvHeadsOf(config, place.slices()).size())),
      q_a_(needs.q_a.has_value() ? std::optional<CpuLinear>(loader.LoadLinear(*needs.q_a))
                                 : std::nullopt),
      q_b_(loader.LoadLinear(needs.q_b)),
      kv_a_(loader.LoadLinear(needs.kv_a)) {
  if (loader.IsStoredByHead(needs)) {
    LoadMaps(needs, loader);
  } else {
    LoadTurned(needs, loader);
  }
  if (needs.index.has_value()) index_.emplace(config, *needs.index, loader);
  if (q_a_.has_value()) q_a_norm_ = LoadNorm(loader, needs.q_a_norm);
  kv_a_norm_ = LoadNorm(loader, needs.kv_a_norm);
}

void CpuLatentAttention::LoadMaps(const LatentNeeds& needs, WeightLoader& loader) {
  loaded_.push_back(loader.LoadLinear(needs.embed_q));
  loaded_.push_back(loader.LoadLinear(needs.unembed_out));
  const auto rank = static_cast<size_t>(traits_.kv_rank),
             value = static_cast<size_t>(traits_.value);
  for (size_t head = 0; head < heads_; ++head) {
    maps_.push_back({RowsOf(loaded_[0].view(), head * rank, rank),
                     RowsOf(loaded_[1].view(), head * value, value)});
  }
}

void CpuLatentAttention::LoadTurned(const LatentNeeds& needs, WeightLoader& loader) {
  loaded_.push_back(loader.LoadLinear(needs.kv_b));
  const kernels::MatrixView whole = loaded_[0].view();
  const auto rank = static_cast<size_t>(traits_.kv_rank),
             value = static_cast<size_t>(traits_.value);
  const auto nope = static_cast<size_t>(traits_.nope);
  const bool packed = whole.bits > 0;
  // In 16 bits a packed map's numbers would lose more than the activations' rounding does.
  const kernels::Scalar type = packed ? kernels::Scalar::kFloat32 : whole.type;
  const size_t size = kernels::ScalarBytes(type), head_bytes = rank * nope * size;
  turned_ = std::make_unique<std::byte[]>(heads_ * head_bytes);
  for (size_t head = 0; head < heads_; ++head) {
    const kernels::MatrixView keys = RowsOf(whole, head * (nope + value), nope);
    std::byte* to = turned_.get() + head * head_bytes;
    if (packed) {
      const std::vector<float> floats = Unpacked(keys);
      Turn(reinterpret_cast<const std::byte*>(floats.data()), nope, rank, size, to);
    } else {
      Turn(static_cast<const std::byte*>(keys.weights), nope, rank, size, to);
    }
    kernels::MatrixView embed_q;
    embed_q.rows = rank;
    embed_q.columns = nope;
    embed_q.type = type;
    embed_q.weights = to;
    maps_.push_back({embed_q, RowsOf(whole, head * (nope + value) + nope, value)});
  }
}

void CpuLatentAttention::Project(const float* x, const LatentStep& step, LatentWork& work) const {
  const size_t hidden = kv_a_.columns();
  float* keys = work.keys_.Reserve(step.rows * kv_a_.rows());
  float* queries = work.queries_.Reserve(step.rows * q_b_.rows());
  work.products_.SetInput(x, step.rows, hidden);
  work.products_.Apply(kv_a_, keys);
  if (!q_a_.has_value()) return work.products_.Apply(q_b_, queries);
  const size_t width = q_a_->rows();
  float* latent = work.query_latent_.Reserve(step.rows * width);
  work.products_.Apply(*q_a_, latent);
  ForRows(work.pool_, step.rows, width, [&](size_t row) {
    float* own = latent + row * width;
    kernels::RmsNorm(own, q_a_norm_->data(), traits_.norm_eps, width, own);
  });
  work.products_.SetInput(latent, step.rows, width);
  work.products_.Apply(q_b_, queries);
  if (!index_.has_value()) return;
  const size_t wide = step.view.shape.row_dim(), narrow = step.view.shape.head_dim;
  float* stored = work.rows_.Reserve(step.rows * wide);
  index_->MakeKeys(x, step.rows, step.rotation, work.products_, work.pool_, work.index_,
                   stored + narrow, wide);
  const bool chooses = std::any_of(step.segments.begin(), step.segments.end(),
                                   [&](const kernels::AttentionSegment& segment) {
                                     return segment.position + segment.count > index_->top();
                                   });
  if (chooses) {
    index_->MakeQueries(x, latent, step.rows, step.rotation, work.products_, work.pool_,
                        work.index_);
  }
}

// Keys and queries turned to their positions, and keys stored.
void CpuLatentAttention::StoreKeys(const LatentStep& step, LatentWork& work) const {
  const auto rank = static_cast<size_t>(traits_.kv_rank), rope = static_cast<size_t>(traits_.rope);
  const auto nope = static_cast<size_t>(traits_.nope);
  for (const kernels::AttentionSegment& segment : step.segments) {
    ForRows(work.pool_, segment.count, heads_ * (nope + rope), [&](size_t i) {
      const size_t row = segment.row + i;
      kernels::Rotation rotation = step.rotation;
      rotation.cosines += row * rotation.dims / 2;
      rotation.sines += row * rotation.dims / 2;
      float* key = work.keys_.data() + row * (rank + rope);
      kernels::RmsNorm(key, kv_a_norm_.data(), traits_.norm_eps, rank, key);
      kernels::Rotate(key + rank, 1, rope, rotation);
      kernels::Rotate(work.queries_.data() + row * heads_ * (nope + rope) + nope, heads_,
                      nope + rope, rotation);
      if (index_.has_value()) {
        float* stored = work.rows_.data() + row * step.view.shape.row_dim();
        std::copy_n(key, rank + rope, stored);
        key = stored;
      }
      kernels::StoreKv(step.view, segment.blocks, segment.position + i, key, nullptr);
    });
  }
}

void CpuLatentAttention::Embed(size_t begin, size_t count, LatentWork& work) const {
  const auto rank = static_cast<size_t>(traits_.kv_rank), rope = static_cast<size_t>(traits_.rope);
  const auto nope = static_cast<size_t>(traits_.nope);
  const size_t width = nope + rope, wide = rank + rope;
  const float* queries = work.queries_.data() + begin * heads_ * width;
  float* embedded = work.embedded_.Reserve(count * heads_ * wide);
  for (const auto& worker : work.workers_) {
    worker->from.Reserve(count * std::max(nope, rank));
    worker->to.Reserve(count * std::max(rank, static_cast<size_t>(traits_.value)));
  }
  ForHeads(work.pool_, heads_, work.workers_, [&](size_t head, auto& worker) {
    for (size_t row = 0; row < count; ++row) {
      std::copy_n(queries + (row * heads_ + head) * width, nope, worker.from.data() + row * nope);
    }
    Multiply(maps_[head].embed_q, count, worker);
    for (size_t row = 0; row < count; ++row) {
      float* to = embedded + (row * heads_ + head) * wide;
      std::copy_n(worker.to.data() + row * rank, rank, to);
      std::copy_n(queries + (row * heads_ + head) * width + nope, rope, to + rank);
    }
  });
}

void CpuLatentAttention::Unembed(size_t begin, size_t count, LatentWork& work, float* out) const {
  const auto rank = static_cast<size_t>(traits_.kv_rank),
             value = static_cast<size_t>(traits_.value);
  const float* mixed = work.mixed_.data();
  ForHeads(work.pool_, heads_, work.workers_, [&](size_t head, auto& worker) {
    for (size_t row = 0; row < count; ++row) {
      std::copy_n(mixed + (row * heads_ + head) * rank, rank, worker.from.data() + row * rank);
    }
    Multiply(maps_[head].unembed_out, count, worker);
    for (size_t row = 0; row < count; ++row) {
      std::copy_n(worker.to.data() + row * value, value,
                  out + ((begin + row) * heads_ + head) * value);
    }
  });
}

void CpuLatentAttention::Apply(const float* x, const LatentStep& step, LatentWork& work,
                               float* out) const {
  MACRAME_CHECK(heads_ > 0) << "a rank without heads attends to nothing";
  Project(x, step, work);
  StoreKeys(step, work);
  const auto rank = static_cast<size_t>(traits_.kv_rank);
  for (size_t begin = 0; begin < step.rows; begin += kLatentRowsAtOnce) {
    const size_t end = std::min(step.rows, begin + kLatentRowsAtOnce);
    Embed(begin, end - begin, work);
    work.mixed_.Reserve((end - begin) * heads_ * rank);
    Mix(step, begin, end, work);
    Unembed(begin, end - begin, work, out);
  }
}

void CpuLatentAttention::Mix(const LatentStep& step, size_t begin, size_t end,
                             LatentWork& work) const {
  work.segments_.clear();
  for (const kernels::AttentionSegment& segment : step.segments) {
    const size_t first = std::max(begin, segment.row);
    const size_t last = std::min(end, segment.row + segment.count);
    if (first >= last) continue;
    const size_t position = segment.position + (first - segment.row);
    size_t dense = last - first;
    if (index_.has_value()) {
      dense = std::min(dense, position < index_->top() ? index_->top() - position : 0);
    }
    if (dense > 0) work.segments_.push_back({first - begin, dense, position, segment.blocks});
    for (size_t i = dense; i < last - first; i += kSparseRowsAtOnce) {
      const size_t count = std::min(kSparseRowsAtOnce, last - first - i);
      MixChosen(step, {first + i, count, position + i, segment.blocks}, begin, work);
    }
  }
  kernels::Attend(work.pool_, step.view, {heads_, 0, traits_.scale}, work.segments_,
                  work.embedded_.data(), work.mixed_.data(), work.scratch_);
}

// The chosen positions are copied side by side, and attended to like a sequence that ends there.
void CpuLatentAttention::MixChosen(const LatentStep& step, const kernels::AttentionSegment& segment,
                                   size_t begin, LatentWork& work) const {
  const size_t top = index_->top();
  work.chosen_.resize(segment.count * top);
  index_->Choose(step.view, segment, work.pool_, work.index_, work.chosen_.data());
  kernels::KvView cache = step.view;
  cache.shape.index_dim = 0;
  const size_t blocks = (top + kernels::kBlockTokens - 1) / kernels::kBlockTokens;
  const size_t row_bytes = blocks * kernels::BlockBytes(cache.shape);
  std::byte* data = reinterpret_cast<std::byte*>(
      work.chosen_cache_.Reserve(segment.count * row_bytes / sizeof(float)));
  ForRows(work.pool_, segment.count, row_bytes / sizeof(float), [&](size_t row) {
    const kernels::KvView own{cache.shape, data + row * row_bytes};
    const int32_t* chosen = work.chosen_.data() + row * top;
    if (top % kernels::kBlockTokens != 0) std::memset(own.data, 0, row_bytes);  // its last block
    for (size_t i = 0; i < top; ++i) {
      kernels::CopyLatent(step.view, segment.blocks, static_cast<size_t>(chosen[i]), own, i);
    }
  });
  work.chosen_blocks_.resize(segment.count * blocks);
  std::iota(work.chosen_blocks_.begin(), work.chosen_blocks_.end(), 0);
  std::vector<kernels::AttentionSegment> rows;
  for (size_t row = 0; row < segment.count; ++row) {
    rows.push_back(
        {segment.row + row - begin, 1, top - 1, work.chosen_blocks_.data() + row * blocks});
  }
  cache.data = data;
  kernels::Attend(work.pool_, cache, {heads_, 0, traits_.scale}, rows, work.embedded_.data(),
                  work.mixed_.data(), work.scratch_);
}

}  // namespace macrame::runtime::engine
