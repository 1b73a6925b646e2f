#include "runtime/model/cpu/compressed_attention.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <numeric>
#include <utility>

#include "runtime/kernels/float_rounding.h"
#include "runtime/model/cpu/feed.h"
#include "runtime/model/cpu/latent_attention.h"
#include "runtime/model/cpu/open_groups.h"
#include "runtime/model/cuts/tensor_cut.h"

namespace macrame::runtime::engine {
namespace {

namespace mx = mlx::core;

std::vector<float> Numbers(WeightLoader& loader, const VectorNeed& need) {
  const std::optional<mx::array> stored = loader.LoadVector(need);
  if (!stored.has_value()) return {};
  mx::array plain = mx::contiguous(mx::astype(*stored, mx::float32));
  plain.eval();
  return {plain.data<float>(), plain.data<float>() + plain.size()};
}

std::optional<CpuLinear> LoadIfNeeded(WeightLoader& loader, const LinearNeed& need) {
  if (need.module.empty()) return std::nullopt;
  return CpuLinear(loader.LoadLinear(need));
}

// The output maps of single groups: views of the one that holds them all.
std::vector<CpuLinear> LoadGroups(WeightLoader& loader, const LinearNeed& need, size_t groups) {
  const auto all = std::make_shared<Linear>(loader.LoadLinear(need));
  std::vector<CpuLinear> maps;
  const size_t rows = groups == 0 ? 0 : all->view().rows / groups;
  for (size_t group = 0; group < groups; ++group) {
    maps.emplace_back(Linear(RowsOf(all->view(), group * rows, rows), all, std::nullopt));
  }
  return maps;
}

kernels::Rotation RotationOf(const kernels::Rotation& first, size_t row) {
  kernels::Rotation rotation = first;
  rotation.cosines += row * rotation.dims / 2;
  rotation.sines += row * rotation.dims / 2;
  return rotation;
}

// The last dimensions of `heads` vectors.
void TurnTail(float* x, size_t heads, size_t dim, const kernels::Rotation& rotation) {
  kernels::Rotate(x + dim - rotation.dims, heads, dim, rotation);
}

// The cosines and sines of a position, then the position's rotation.
struct Angles {
  Angles(const RopeTable& rope, size_t position) {
    for (const float frequency : rope.frequencies) {
      const double angle = static_cast<float>(position) * rope.position_scale * frequency;
      cosines.push_back(static_cast<float>(std::cos(angle) * double{rope.magnitude}));
      sines.push_back(static_cast<float>(std::sin(angle) * double{rope.magnitude}));
    }
  }
  kernels::Rotation Of(bool interleaved) const {
    return {2 * cosines.size(), interleaved, cosines.data(), sines.data()};
  }
  std::vector<float> cosines, sines;
};

}  // namespace

CompressedWork::CompressedWork(const ModelConfig& config, kernels::ThreadPool& pool,
                               CpuProducts& products, kernels::AttentionScratch& scratch)
    : pool_(pool),
      products_(products),
      scratch_(scratch),
      entry_width_(static_cast<size_t>(config.head_dim + config.compress.index_dim)) {
  choice_.chosen.width = static_cast<size_t>(config.compress.index_top);
  choice_.candidates.width = static_cast<size_t>(config.compress.candidate_blocks);
}

void CompressedWork::Take(const float* carried, const CarriedRow& layout, size_t rows) {
  rows_ = rows;
  entries_.Reserve(rows * entry_width_);
  choice_.chosen.Reset(rows);
  choice_.candidates.Reset(rows);
  for (size_t row = 0; row < rows; ++row, carried += layout.width) {
    std::copy_n(carried + layout.entry.begin, layout.entry.size,
                entries_.data() + row * entry_width_);
    if (layout.chosen.size > 0) choice_.chosen.Read(row, carried + layout.chosen.begin);
    if (layout.candidates.size > 0) choice_.candidates.Read(row, carried + layout.candidates.begin);
  }
}

void CompressedWork::Put(float* carried, const CarriedRow& layout) const {
  for (size_t row = 0; row < rows_; ++row, carried += layout.width) {
    std::copy_n(entries_.data() + row * entry_width_, layout.entry.size,
                carried + layout.entry.begin);
    if (layout.chosen.size > 0) choice_.chosen.Write(row, carried + layout.chosen.begin);
    if (layout.candidates.size > 0) {
      choice_.candidates.Write(row, carried + layout.candidates.begin);
    }
  }
}

size_t CompressedWork::memory_bytes() const {
  size_t bytes = index_.memory_bytes() + choice_.chosen.memory_bytes() +
                 choice_.candidates.memory_bytes() + seen_blocks_.capacity() * sizeof(int32_t);
  for (const FloatBuffer* buffer :
       {&entries_, &query_latent_, &keys_, &pooled_, &gates_, &latents_, &index_keys_, &queries_,
        &mixed_, &group_in_, &group_out_, &inverse_sines_, &seen_}) {
    bytes += buffer->bytes();
  }
  return bytes;
}

CpuCompressedAttention::CpuCompressedAttention(const ModelConfig& config, const ShardPlace& place,
                                               int layer, const CompressedNeeds& needs,
                                               WeightLoader& loader)
    : traits_(config.compress),
      ratio_(static_cast<size_t>(traits_.ratios[static_cast<size_t>(layer)])),
      dim_(static_cast<size_t>(config.head_dim)),
      groups_(static_cast<size_t>(KvHeadsOf(config, place.slices()).size())),
      heads_(groups_ * static_cast<size_t>(config.attention_heads / traits_.groups)),
      norm_eps_(config.rms_norm_eps),
      q_a_(loader.LoadLinear(needs.q_a)),
      q_b_(loader.LoadLinear(needs.q_b)),
      kv_(loader.LoadLinear(needs.kv)),
      q_a_norm_(Numbers(loader, needs.q_a_norm)),
      kv_norm_(Numbers(loader, needs.kv_norm)) {
  entry_ = LoadIfNeeded(loader, needs.entry);
  entry_gate_ = LoadIfNeeded(loader, needs.entry_gate);
  index_key_ = LoadIfNeeded(loader, needs.index_key);
  entry_norm_ = Numbers(loader, needs.entry_norm);
  index_key_norm_ = Numbers(loader, needs.index_key_norm);
  if (!needs.index_q.module.empty()) index_.emplace(config, layer, needs, loader);
  group_out_ = LoadGroups(loader, needs.group_out, groups_);
}

void CpuCompressedAttention::Project(const float* x, const CompressedStep& step,
                                     CompressedWork& work) const {
  const size_t rows = step.rows;
  float* latent = work.query_latent_.Reserve(rows * q_a_.rows());
  float* keys = work.keys_.Reserve(rows * dim_);
  work.products_.SetInput(x, rows, q_a_.columns());
  work.products_.Apply(q_a_, latent);
  work.products_.Apply(kv_, keys);
  if (entry_.has_value()) work.products_.Apply(*entry_, work.pooled_.Reserve(rows * dim_));
  if (entry_gate_.has_value()) work.products_.Apply(*entry_gate_, work.gates_.Reserve(rows * dim_));
  ForRows(work.pool_, rows, q_a_.rows() + dim_, [&](size_t row) {
    float* own = latent + row * q_a_.rows();
    kernels::RmsNorm(own, q_a_norm_.data(), norm_eps_, q_a_.rows(), own);
    float* key = keys + row * dim_;
    kernels::RmsNorm(key, kv_norm_.data(), norm_eps_, dim_, key);
    TurnTail(key, 1, dim_, RotationOf(step.rotation, row));
    kernels::RoundToFp8(key, dim_);
  });
}

void CpuCompressedAttention::StoreKeys(const CompressedStep& step, CompressedWork& work) const {
  for (const kernels::AttentionSegment& segment : step.segments) {
    ForRows(work.pool_, segment.count, dim_, [&](size_t i) {
      kernels::StoreKv(step.window, segment.blocks, segment.position + i,
                       work.keys_.data() + (segment.row + i) * dim_, nullptr);
    });
  }
}

// The vectors of the group that ends at a row, by the softmax of their gates in each dimension.
void CpuCompressedAttention::Pool(const CompressedStep& step, size_t segment, size_t row,
                                  const CompressedWork& work, float* out) const {
  const kernels::AttentionSegment& own = step.segments[segment];
  const size_t first = own.position + (row - own.row) + 1 - ratio_;
  std::vector<const float*> vectors(ratio_), gates(ratio_);
  for (size_t i = 0; i < ratio_; ++i) {
    const size_t position = first + i;
    if (position >= own.position) {
      const size_t at = (own.row + position - own.position) * dim_;
      vectors[i] = work.pooled_.data() + at;
      gates[i] = work.gates_.data() + at;
    } else {
      vectors[i] = step.open[segment] + position % OpenGroups::kPositions * 2 * dim_;
      gates[i] = vectors[i] + dim_;
    }
  }
  for (size_t at = 0; at < dim_; ++at) {
    float most = gates[0][at];
    for (size_t i = 1; i < ratio_; ++i) most = std::max(most, gates[i][at]);
    double sum = 0, pooled = 0;
    for (size_t i = 0; i < ratio_; ++i) {
      const double weight = std::exp(double{gates[i][at]} - most);
      sum += weight;
      pooled += weight * double{vectors[i][at]};
    }
    out[at] = static_cast<float>(pooled / sum);
  }
}

// A segment's last positions, for its next tokens.
void CpuCompressedAttention::KeepOpen(const CompressedStep& step, size_t segment,
                                      const CompressedWork& work) const {
  const kernels::AttentionSegment& own = step.segments[segment];
  const size_t count = std::min(own.count, OpenGroups::kPositions);
  for (size_t i = own.count - count; i < own.count; ++i) {
    float* to = step.open[segment] + (own.position + i) % OpenGroups::kPositions * 2 * dim_;
    std::copy_n(work.pooled_.data() + (own.row + i) * dim_, dim_, to);
    std::copy_n(work.gates_.data() + (own.row + i) * dim_, dim_, to + dim_);
  }
}

void CpuCompressedAttention::MakeEntries(const CompressedStep& step, CompressedWork& work) const {
  struct Ended {
    size_t segment, row, position;
  };
  std::vector<Ended> ended;
  for (size_t i = 0; i < step.segments.size(); ++i) {
    const kernels::AttentionSegment& segment = step.segments[i];
    for (size_t k = 0; k < segment.count; ++k) {
      const size_t position = segment.position + k;
      if ((position + 1) % ratio_ == 0) ended.push_back({i, segment.row + k, position});
    }
  }
  float* latents = work.latents_.Reserve(ended.size() * dim_);
  ForRows(work.pool_, ended.size(), ratio_ * dim_, [&](size_t i) {
    float* own = latents + i * dim_;
    if (pools()) {
      Pool(step, ended[i].segment, ended[i].row, work, own);
    } else {
      std::copy_n(work.pooled_.data() + ended[i].row * dim_, dim_, own);
    }
    kernels::RmsNorm(own, entry_norm_.data(), norm_eps_, dim_, own);
  });
  const size_t index_dim = index_key_->rows();
  float* keys = work.index_keys_.Reserve(ended.size() * index_dim);
  if (!ended.empty()) {
    work.products_.SetInput(latents, ended.size(), dim_);
    work.products_.Apply(*index_key_, keys);
  }
  std::fill_n(work.entries_.data(), step.rows * work.entry_width_, 0.0F);
  ForRows(work.pool_, ended.size(), dim_ + index_dim, [&](size_t i) {
    const Angles angles(*step.rope, ended[i].position + 1 - ratio_);
    const kernels::Rotation turn = angles.Of(step.rotation.interleaved);
    float* entry = work.entries_.data() + ended[i].row * work.entry_width_;
    std::copy_n(latents + i * dim_, dim_, entry);
    TurnTail(entry, 1, dim_, turn);
    kernels::RoundToFp4(entry, dim_, 16, kernels::Fp4Scale::kE4m3);
    float* key = entry + dim_;
    kernels::RmsNorm(keys + i * index_dim, index_key_norm_.data(), norm_eps_, index_dim, key);
    TurnTail(key, 1, index_dim, turn);
    kernels::RoundToFp4(key, index_dim, 32, kernels::Fp4Scale::kPowerOfTwo);
    kernels::StoreKv(*step.entries, step.segments[ended[i].segment].blocks, ended[i].position,
                     entry, nullptr);
  });
  for (size_t i = 0; pools() && i < step.segments.size(); ++i) KeepOpen(step, i, work);
}

void CpuCompressedAttention::Apply(const float* x, const CompressedStep& step, CompressedWork& work,
                                   float* out) const {
  Project(x, step, work);
  StoreKeys(step, work);
  if (entry_.has_value()) MakeEntries(step, work);
  if (index_.has_value()) {
    index_->MakeQueries(x, work.query_latent_.data(), step.rows, step.rotation, work.products_,
                        work.pool_, work.index_);
    for (const kernels::AttentionSegment& segment : step.segments) {
      index_->Choose(*step.entries, segment, work.pool_, work.index_, work.choice_);
    }
  }
  if (heads_ == 0) return;
  const size_t half = step.rotation.dims / 2;
  float* inverse = work.inverse_sines_.Reserve(step.rows * half);
  for (size_t i = 0; i < step.rows * half; ++i) inverse[i] = -step.rotation.sines[i];
  for (size_t begin = 0; begin < step.rows; begin += kLatentRowsAtOnce) {
    const size_t end = std::min(step.rows, begin + kLatentRowsAtOnce);
    Mix(step, begin, end, work);
    GroupOut(step, begin, end, work, out);
  }
}

// work.mixed_ [end - begin, heads * dim]: what the heads give for these rows.
void CpuCompressedAttention::Mix(const CompressedStep& step, size_t begin, size_t end,
                                 CompressedWork& work) const {
  const size_t width = heads_ * dim_;
  float* queries = work.queries_.Reserve((end - begin) * width);
  work.mixed_.Reserve((end - begin) * width);
  work.products_.SetInput(work.query_latent_.data() + begin * q_b_.columns(), end - begin,
                          q_b_.columns());
  work.products_.Apply(q_b_, queries);
  ForRows(work.pool_, end - begin, width, [&](size_t i) {
    TurnTail(queries + i * width, heads_, dim_, RotationOf(step.rotation, begin + i));
  });
  for (const kernels::AttentionSegment& segment : step.segments) {
    const size_t first = std::max(begin, segment.row);
    const size_t last = std::min(end, segment.row + segment.count);
    for (size_t row = first; row < last; row += kSparseRowsAtOnce) {
      const size_t count = std::min(kSparseRowsAtOnce, last - row);
      MixRows(step, {row, count, segment.position + (row - segment.row), segment.blocks}, begin,
              work);
    }
  }
}

void CpuCompressedAttention::MixRows(const CompressedStep& step,
                                     const kernels::AttentionSegment& rows, size_t begin,
                                     CompressedWork& work) const {
  const auto window = static_cast<size_t>(traits_.window);
  const size_t most = window + (step.entries.has_value() ? work.choice_.chosen.width : 0);
  const size_t blocks = (most + kernels::kBlockTokens - 1) / kernels::kBlockTokens;
  kernels::KvView seen = step.window;
  const size_t block_bytes = kernels::BlockBytes(seen.shape), row_bytes = blocks * block_bytes;
  std::byte* data =
      reinterpret_cast<std::byte*>(work.seen_.Reserve(rows.count * row_bytes / sizeof(float)));
  std::vector<kernels::AttentionSegment> own(rows.count);
  work.seen_blocks_.resize(rows.count * blocks);
  std::iota(work.seen_blocks_.begin(), work.seen_blocks_.end(), 0);
  ForRows(work.pool_, rows.count, row_bytes / sizeof(float), [&](size_t i) {
    const size_t position = rows.position + i,
                 first = position + 1 - std::min(position + 1, window);
    std::span<const int32_t> chosen;
    if (step.entries.has_value()) chosen = work.choice_.chosen.Of(rows.row + i);
    const size_t count = position + 1 - first + chosen.size();
    const kernels::KvView to{seen.shape, data + i * row_bytes};
    // What the last block has behind them must be numbers.
    std::memset(to.data + (count - 1) / kernels::kBlockTokens * block_bytes, 0, block_bytes);
    size_t at = 0;
    for (size_t p = first; p <= position; ++p) {
      kernels::CopyLatent(step.window, rows.blocks, p, to, at++);
    }
    for (const int32_t entry : chosen) {
      const size_t last = (static_cast<size_t>(entry) + 1) * ratio_ - 1;
      kernels::CopyLatent(*step.entries, rows.blocks, last, to, at++);
    }
    own[i] = {rows.row + i - begin, 1, count - 1, work.seen_blocks_.data() + i * blocks};
  });
  seen.data = data;
  const kernels::AttentionShape shape{heads_, 0, 0, step.sinks};
  kernels::Attend(work.pool_, seen, shape, own, work.queries_.data(), work.mixed_.data(),
                  work.scratch_);
}

void CpuCompressedAttention::GroupOut(const CompressedStep& step, size_t begin, size_t end,
                                      CompressedWork& work, float* out) const {
  const size_t count = end - begin, width = heads_ * dim_, own = width / groups_;
  float* mixed = work.mixed_.data();
  ForRows(work.pool_, count, width, [&](size_t i) {
    kernels::Rotation turn = RotationOf(step.rotation, begin + i);
    turn.sines = work.inverse_sines_.data() + (begin + i) * turn.dims / 2;
    TurnTail(mixed + i * width, heads_, dim_, turn);
  });
  const auto rank = static_cast<size_t>(traits_.group_rank);
  float* in = work.group_in_.Reserve(count * own);
  float* given = work.group_out_.Reserve(count * rank);
  for (size_t group = 0; group < groups_; ++group) {
    for (size_t i = 0; i < count; ++i) {
      std::copy_n(mixed + i * width + group * own, own, in + i * own);
    }
    work.products_.SetInput(in, count, own);
    work.products_.Apply(group_out_[group], given);
    for (size_t i = 0; i < count; ++i) {
      std::copy_n(given + i * rank, rank, out + ((begin + i) * groups_ + group) * rank);
    }
  }
}

}  // namespace macrame::runtime::engine
