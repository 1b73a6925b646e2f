#include "runtime/model/cpu/block_attention.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>

#include "proto/check.h"
#include "runtime/kernels/matmul.h"
#include "runtime/model/cpu/feed.h"
#include "runtime/model/weights/block_needs.h"

namespace macrame::runtime::engine {
namespace {

namespace mx = mlx::core;

static_assert(BlockIndexTraits::kSizeUnit == static_cast<int>(kernels::kBlockTokens));

// Keys that are compared with queries at once.
constexpr size_t kKeysAtOnce = 1024;
constexpr float kLowest = -std::numeric_limits<float>::infinity();

std::vector<float> LoadNorm(WeightLoader& loader, const VectorNeed& need) {
  mx::array floats = mx::contiguous(mx::astype(*loader.LoadVector(need), mx::float32));
  floats.eval();
  return {floats.data<float>(), floats.data<float>() + floats.size()};
}

}  // namespace

size_t BlockAttentionWork::memory_bytes() const {
  size_t bytes = input_.memory_bytes() + product_scratch_.memory_bytes() +
                 (order_.capacity() + tables_.capacity()) * sizeof(int32_t) +
                 (dense_.capacity() + chosen_.capacity()) * sizeof(kernels::AttentionSegment);
  for (const FloatBuffer* buffer : {&queries_, &keys_, &read_, &products_out_, &scores_}) {
    bytes += buffer->bytes();
  }
  return bytes;
}

CpuBlockAttention::CpuBlockAttention(const ModelConfig& config, const ShardPlace& place,
                                     const BlockIndexNeeds& needs, WeightLoader& loader)
    : top_(static_cast<size_t>(config.block_index.top)),
      size_(static_cast<size_t>(config.block_index.size)),
      local_(static_cast<size_t>(config.block_index.local)),
      dim_(static_cast<size_t>(config.block_index.dim)),
      heads_(static_cast<size_t>(config.attention_heads / config.kv_heads)),
      kv_heads_(static_cast<size_t>(KvHeadsOf(config, place.slices()).size())),
      index_heads_(
          static_cast<size_t>(IndexHeadsOf(config, KvHeadsOf(config, place.slices())).size())),
      norm_eps_(config.rms_norm_eps),
      query_(loader.LoadLinear(needs.query)),
      key_(loader.LoadLinear(needs.key)),
      query_norm_(LoadNorm(loader, needs.query_norm)),
      key_norm_(LoadNorm(loader, needs.key_norm)) {
  const Range own = KvHeadsOf(config, place.slices());
  const int first = IndexHeadsOf(config, own).begin;
  const int each = config.kv_heads / config.block_index.heads;
  for (int head = own.begin; head < own.end; ++head) {
    index_head_.push_back(static_cast<size_t>(head / each - first));
  }
}

void CpuBlockAttention::Project(const BlockStep& step, BlockAttentionWork& work) const {
  float* keys = work.keys_.Reserve(step.rows * dim_);
  float* queries = work.queries_.Reserve(step.rows * index_heads_ * dim_);
  work.products_.Apply(key_, keys);
  const bool chooses = std::any_of(step.segments.begin(), step.segments.end(),
                                   [&](const kernels::AttentionSegment& segment) {
                                     return segment.position + segment.count > top_ * size_;
                                   });
  if (chooses) work.products_.Apply(query_, queries);
  const size_t turned = chooses ? index_heads_ : 0;
  for (const kernels::AttentionSegment& segment : step.segments) {
    ForRows(work.pool_, segment.count, (turned + 1) * dim_, [&](size_t i) {
      const size_t row = segment.row + i;
      kernels::Rotation rotation = step.rotation;
      rotation.cosines += row * rotation.dims / 2;
      rotation.sines += row * rotation.dims / 2;
      float* key = keys + row * dim_;
      kernels::RmsNorm(key, key_norm_.data(), norm_eps_, dim_, key);
      kernels::Rotate(key, 1, dim_, rotation);
      kernels::StoreKv(step.keys, segment.blocks, segment.position + i, key, nullptr);
      float* own = queries + row * index_heads_ * dim_;
      for (size_t head = 0; head < turned; ++head) {
        kernels::RmsNorm(own + head * dim_, query_norm_.data(), norm_eps_, dim_, own + head * dim_);
      }
      kernels::Rotate(own, turned, dim_, rotation);
    });
  }
}

void CpuBlockAttention::Attend(const BlockStep& step, const float* queries, float* out,
                               BlockAttentionWork& work) const {
  work.dense_.clear();
  for (const kernels::AttentionSegment& segment : step.segments) {
    const size_t seen = top_ * size_;
    const size_t dense =
        std::min(segment.count, segment.position < seen ? seen - segment.position : 0);
    if (dense > 0) work.dense_.push_back({segment.row, dense, segment.position, segment.blocks});
    for (size_t i = dense; i < segment.count; i += kBlockRowsAtOnce) {
      const size_t count = std::min(kBlockRowsAtOnce, segment.count - i);
      AttendChosen(step, {segment.row + i, count, segment.position + i, segment.blocks}, queries,
                   out, work);
    }
  }
  kernels::Attend(work.pool_, step.kv, {kv_heads_ * heads_}, work.dense_, queries, out,
                  work.scratch_);
}

void CpuBlockAttention::Score(const BlockStep& step, const kernels::AttentionSegment& rows,
                              BlockAttentionWork& work) const {
  const size_t positions = rows.position + rows.count, blocks = BlocksAt(positions - 1);
  const size_t lines = rows.count * index_heads_;
  float* scores = work.scores_.Reserve(lines * blocks);
  std::fill_n(scores, lines * blocks, kLowest);
  work.input_.Set(work.queries_.data() + rows.row * index_heads_ * dim_, lines, dim_);
  float* keys = work.read_.Reserve(kKeysAtOnce * dim_);
  float* products = work.products_out_.Reserve(lines * kKeysAtOnce);
  for (size_t begin = 0; begin < positions; begin += kKeysAtOnce) {
    const size_t count = std::min(kKeysAtOnce, positions - begin);
    work.pool_.Run([&](int worker, int workers) {
      const auto part = kernels::RowsOfWorker(count, 1, worker, workers);
      kernels::ReadIndex(step.keys, rows.blocks, begin + part.begin, part.end - part.begin,
                         keys + part.begin * dim_);
    });
    kernels::MatrixView view;
    view.rows = count;
    view.columns = dim_;
    view.weights = keys;
    kernels::MultiplyTransposed(work.pool_, view, work.input_, products, work.product_scratch_);
    ForRows(work.pool_, lines, count, [&](size_t line) {
      const size_t seen = std::min(begin + count, rows.position + line / index_heads_ + 1);
      for (size_t position = begin; position < seen; ++position) {
        // What is no number counts as the lowest.
        float& score = scores[line * blocks + position / size_];
        if (products[line * count + position - begin] > score) {
          score = products[line * count + position - begin];
        }
      }
    });
  }
}

void CpuBlockAttention::Choose(const kernels::AttentionSegment& rows,
                               BlockAttentionWork& work) const {
  const size_t blocks = BlocksAt(rows.position + rows.count - 1);
  work.order_.resize(rows.count * index_heads_ * blocks);
  ForRows(work.pool_, rows.count * index_heads_, blocks, [&](size_t line) {
    float* scores = work.scores_.data() + line * blocks;
    const size_t seen = BlocksAt(rows.position + line / index_heads_);
    for (size_t block = seen - local_; block < seen; ++block) {
      scores[block] = std::numeric_limits<float>::infinity();
    }
    int32_t* order = work.order_.data() + line * blocks;
    std::iota(order, order + seen, 0);
    std::nth_element(order, order + top_ - 1, order + seen, [&](int32_t a, int32_t b) {
      return scores[a] != scores[b] ? scores[a] > scores[b] : a < b;
    });
    std::sort(order, order + top_);
  });
}

void CpuBlockAttention::AttendChosen(const BlockStep& step, const kernels::AttentionSegment& rows,
                                     const float* queries, float* out,
                                     BlockAttentionWork& work) const {
  MACRAME_CHECK(rows.position >= top_ * size_ && rows.count <= kBlockRowsAtOnce)
      << rows.count << " rows at " << rows.position;
  Score(step, rows, work);
  Choose(rows, work);
  const size_t blocks = BlocksAt(rows.position + rows.count - 1);
  const size_t pieces = size_ / kernels::kBlockTokens;  // KV blocks of a block
  work.tables_.resize(rows.count * kv_heads_ * top_ * pieces);
  work.chosen_.clear();
  for (size_t row = 0; row < rows.count; ++row) {
    const size_t last = rows.position + row;
    for (size_t head = 0; head < kv_heads_; ++head) {
      const size_t line = row * kv_heads_ + head;
      const int32_t* chosen =
          work.order_.data() + (row * index_heads_ + index_head_[head]) * blocks;
      int32_t* table = work.tables_.data() + line * top_ * pieces;
      int32_t* next = table;
      size_t seen = 0;
      for (size_t i = 0; i < top_; ++i) {
        const size_t begin = static_cast<size_t>(chosen[i]) * size_;
        const size_t end = std::min(begin + size_, last + 1);  // only the last block's is less
        for (size_t at = begin; at < end; at += kernels::kBlockTokens) {
          // A block of all heads is one of each head, side by side.
          *next++ = rows.blocks[at / kernels::kBlockTokens] * static_cast<int32_t>(kv_heads_) +
                    static_cast<int32_t>(head);
        }
        seen += end - begin;
      }
      work.chosen_.push_back({(rows.row + row) * kv_heads_ + head, 1, seen - 1, table});
    }
  }
  kernels::KvView alone = step.kv;
  alone.shape.kv_heads = 1;
  kernels::Attend(work.pool_, alone, {heads_}, work.chosen_, queries, out, work.scratch_);
}

}  // namespace macrame::runtime::engine
