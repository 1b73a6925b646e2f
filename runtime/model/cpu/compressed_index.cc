#include "runtime/model/cpu/compressed_index.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>

#include "runtime/kernels/float_rounding.h"
#include "runtime/kernels/matmul.h"
#include "runtime/model/cpu/feed.h"

namespace macrame::runtime::engine {
namespace {

// The `most` numbers of `order` with the highest scores, of equal ones the first; ascending.
void KeepHighest(const float* scores, size_t most, std::vector<int32_t>& order) {
  if (order.size() <= most) return;
  const auto end = order.begin() + static_cast<ptrdiff_t>(most);
  std::nth_element(order.begin(), end - 1, order.end(), [&](int32_t a, int32_t b) {
    return scores[a] != scores[b] ? scores[a] > scores[b] : a < b;
  });
  order.erase(end, order.end());
  std::sort(order.begin(), order.end());
}

std::vector<int32_t> FirstNumbers(size_t count) {
  std::vector<int32_t> all(count);
  std::iota(all.begin(), all.end(), 0);
  return all;
}

}  // namespace

void EntryChoice::Lists::Reset(size_t rows) {
  numbers.resize(rows * width);
  counts.assign(rows, 0);
}

void EntryChoice::Lists::Set(size_t row, std::span<const int32_t> from) {
  counts[row] = std::min(from.size(), width);
  std::copy_n(from.begin(), counts[row], numbers.begin() + static_cast<ptrdiff_t>(row * width));
}

void EntryChoice::Lists::Read(size_t row, const float* from) {
  // Numbers that don't rise end it.
  int32_t last = -1;
  size_t& count = counts[row] = 0;
  while (count < width && from[count] > static_cast<float>(last)) {
    const auto next = static_cast<int32_t>(from[count]);
    if (next <= last) break;
    numbers[row * width + count++] = last = next;
  }
}

void EntryChoice::Lists::Write(size_t row, float* to) const {
  const auto own = Of(row);
  for (size_t i = 0; i < width; ++i) to[i] = i < own.size() ? static_cast<float>(own[i]) : -1.0F;
}

CpuCompressedIndex::CpuCompressedIndex(const ModelConfig& config, int layer,
                                       const CompressedNeeds& needs, WeightLoader& loader)
    : traits_(config.compress),
      ratio_(static_cast<size_t>(traits_.ratios[static_cast<size_t>(layer)])),
      heads_(static_cast<size_t>(traits_.index_heads)),
      dim_(static_cast<size_t>(traits_.index_dim)),
      top_(static_cast<size_t>(traits_.index_top)),
      makes_candidates_(layer == traits_.candidate_layer),
      takes_candidates_(traits_.candidate_layer >= 0 && layer > traits_.candidate_layer),
      query_(loader.LoadLinear(needs.index_q)),
      weights_(loader.LoadLinear(needs.index_weights)) {}

void CpuCompressedIndex::MakeQueries(const float* x, const float* latent, size_t rows,
                                     const kernels::Rotation& rotation, CpuProducts& products,
                                     kernels::ThreadPool& pool, IndexWork& work) const {
  float* queries = work.queries.Reserve(rows * heads_ * dim_);
  float* weights = work.weights.Reserve(rows * heads_);
  products.SetInput(latent, rows, query_.columns());
  products.Apply(query_, queries);
  products.SetInput(x, rows, weights_.columns());
  products.Apply(weights_, weights);
  const float scale = 1.0F / std::sqrt(static_cast<float>(heads_ * dim_));
  ForRows(pool, rows, heads_ * dim_, [&](size_t row) {
    kernels::Rotation turn = rotation;
    turn.cosines += row * turn.dims / 2;
    turn.sines += row * turn.dims / 2;
    float* own = queries + row * heads_ * dim_;
    kernels::Rotate(own + dim_ - turn.dims, heads_, dim_, turn);
    for (size_t head = 0; head < heads_; ++head) {
      kernels::RoundToFp4(own + head * dim_, dim_, 32, kernels::Fp4Scale::kPowerOfTwo);
      weights[row * heads_ + head] *= scale;
    }
  });
}

// Candidates are no fewer than what is chosen of them: the config sees to it.
bool CpuCompressedIndex::SeesAll(size_t count) const { return count <= top_; }

void CpuCompressedIndex::Choose(const kernels::KvView& entries,
                                const kernels::AttentionSegment& segment, kernels::ThreadPool& pool,
                                IndexWork& work, EntryChoice& choice) const {
  for (size_t i = 0; i < segment.count; i += kSparseRowsAtOnce) {
    const size_t count = std::min(kSparseRowsAtOnce, segment.count - i);
    ChooseRows(entries, {segment.row + i, count, segment.position + i, segment.blocks}, pool, work,
               choice);
  }
}

// work.scores [rows.count][count]: of the first `count` entries.
void CpuCompressedIndex::Score(const kernels::KvView& entries,
                               const kernels::AttentionSegment& rows, size_t count,
                               kernels::ThreadPool& pool, IndexWork& work) const {
  const size_t at_once = kIndexKeysAtOnce / ratio_;
  float* scores = work.scores.Reserve(rows.count * count);
  float* keys = work.keys.Reserve(kIndexKeysAtOnce * dim_);
  float* products = work.products.Reserve(rows.count * heads_ * at_once);
  work.input.Set(work.queries.data() + rows.row * heads_ * dim_, rows.count * heads_, dim_);
  for (size_t begin = 0; begin < count; begin += at_once) {
    const size_t now = std::min(at_once, count - begin);
    kernels::ReadIndex(entries, rows.blocks, begin * ratio_, now * ratio_, keys);
    // Of a group's positions the last one has the key.
    for (size_t k = 0; ratio_ > 1 && k < now; ++k) {
      std::copy_n(keys + ((k + 1) * ratio_ - 1) * dim_, dim_, keys + k * dim_);
    }
    kernels::MatrixView view;
    view.rows = now;
    view.columns = dim_;
    view.weights = keys;
    kernels::MultiplyTransposed(pool, view, work.input, products, work.scratch);
    ForRows(pool, rows.count, heads_ * now, [&](size_t row) {
      float* own = scores + row * count + begin;
      std::fill_n(own, now, 0.0F);
      for (size_t head = 0; head < heads_; ++head) {
        const float* given = products + (row * heads_ + head) * now;
        const float weight = work.weights.data()[(rows.row + row) * heads_ + head];
        for (size_t k = 0; k < now; ++k) own[k] += std::max(given[k], 0.0F) * weight;
      }
    });
  }
  for (size_t i = 0; i < rows.count * count; ++i) {
    if (std::isnan(scores[i])) scores[i] = -std::numeric_limits<float>::infinity();
  }
}

// Blocks by their best entry; the newest one always, since it may be partly full.
void CpuCompressedIndex::ChooseBlocks(const float* scores, size_t count, size_t row,
                                      EntryChoice& choice) const {
  const auto block = static_cast<size_t>(traits_.candidate_block);
  const size_t blocks = (count + block - 1) / block;
  std::vector<int32_t> order = FirstNumbers(blocks);
  if (blocks > choice.candidates.width) {
    std::vector<float> best(blocks);
    for (size_t i = 0; i < blocks; ++i) {
      best[i] = *std::max_element(scores + i * block, scores + std::min(count, (i + 1) * block));
    }
    best.back() = std::numeric_limits<float>::infinity();
    KeepHighest(best.data(), choice.candidates.width, order);
  }
  choice.candidates.Set(row, order);
}

void CpuCompressedIndex::ChooseRows(const kernels::KvView& entries,
                                    const kernels::AttentionSegment& rows,
                                    kernels::ThreadPool& pool, IndexWork& work,
                                    EntryChoice& choice) const {
  const size_t most = EntriesAt(rows.position + rows.count - 1);
  const bool needs_scores = !SeesAll(most);
  if (needs_scores) Score(entries, rows, most, pool, work);
  ForRows(pool, rows.count, most, [&](size_t i) {
    const size_t row = rows.row + i, count = EntriesAt(rows.position + i);
    const float* scores = needs_scores ? work.scores.data() + i * most : nullptr;
    if (makes_candidates_) ChooseBlocks(scores, count, row, choice);
    std::vector<int32_t> order;
    if (takes_candidates_) {
      const auto block = static_cast<size_t>(traits_.candidate_block);
      for (const int32_t one : choice.candidates.Of(row)) {
        const size_t first = static_cast<size_t>(one) * block;
        for (size_t k = first; k < std::min(count, first + block); ++k) {
          order.push_back(static_cast<int32_t>(k));
        }
      }
    } else {
      order = FirstNumbers(count);
    }
    KeepHighest(scores, top_, order);
    choice.chosen.Set(row, order);
  });
}

}  // namespace macrame::runtime::engine
