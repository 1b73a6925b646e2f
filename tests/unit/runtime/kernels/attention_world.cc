#include "tests/unit/runtime/kernels/attention_world.h"

#include <algorithm>
#include <bit>
#include <cmath>

namespace macrame::runtime::kernels {
namespace {

class Numbers {
 public:
  explicit Numbers(uint32_t seed) : state_(seed) {}
  // In [-1, 1), exact in all storage types but kInt8.
  float Next() {
    state_ = state_ * 1664525U + 1013904223U;
    return (static_cast<float>(state_ >> 24) - 128.0F) / 128.0F;
  }

 private:
  uint32_t state_;
};

}  // namespace

std::vector<float> Quantized(const std::vector<float>& heads, size_t head_dim) {
  std::vector<float> kept = heads;
  for (size_t head = 0; head < heads.size(); head += head_dim) {
    for (size_t begin = 0; begin < head_dim; begin += kKvGroupDims) {
      const size_t end = std::min(begin + kKvGroupDims, head_dim);
      float scale = 0.0F;
      for (size_t i = begin; i < end; ++i) scale = std::max(scale, std::fabs(heads[head + i]));
      scale /= 127.0F;
      const uint32_t bits = std::bit_cast<uint32_t>(scale);
      scale = std::bit_cast<float>((bits + 0x7fff + (bits >> 16 & 1)) & 0xffff0000);
      for (size_t i = begin; i < end; ++i) {
        kept[head + i] = scale == 0.0F ? 0.0F : std::nearbyint(heads[head + i] / scale) * scale;
      }
    }
  }
  return kept;
}

World::World(KvShape shape, size_t heads, std::vector<size_t> lengths, bool sinks)
    : shape_(shape),
      heads_(heads),
      scale_(shape.latent_dim > 0 ? 0.15F : 0.0F),
      lengths_(std::move(lengths)) {
  size_t blocks = 0;
  for (const size_t length : lengths_) blocks += (length + kBlockTokens - 1) / kBlockTokens;
  pool_.reset(static_cast<std::byte*>(std::aligned_alloc(64, (blocks + 1) * BlockBytes(shape))));
  std::fill_n(pool_.get(), (blocks + 1) * BlockBytes(shape), std::byte{0});
  auto id = static_cast<int32_t>(blocks);  // block 0 stays unused
  Numbers numbers(7);
  for (const size_t length : lengths_) {
    Sequence& sequence = sequences_.emplace_back();
    for (size_t p = 0; p < length; p += kBlockTokens) sequence.blocks.push_back(id--);
    sequence.queries.resize(length * heads_ * shape_.head_dim);
    sequence.keys.resize(length * shape_.kv_heads * shape_.head_dim);
    sequence.values.resize(sequence.keys.size());
    for (float& number : sequence.queries) number = 4.0F * numbers.Next();
    for (float& number : sequence.keys) number = numbers.Next();
    for (float& number : sequence.values) number = numbers.Next();
    for (size_t p = 0; p < length; ++p) Store(sequence, p);
    if (shape_.type != KvType::kInt8) continue;
    sequence.keys = Quantized(sequence.keys, shape_.head_dim);
    sequence.values = Quantized(sequence.values, shape_.head_dim);
  }
  // From far below all scores to far above them.
  for (size_t head = 0; sinks && head < heads_; ++head) {
    sinks_.push_back(head == 1 ? -200.0F : head == 2 ? 60.0F : 4.0F * numbers.Next());
  }
}

std::vector<float> World::Attend(int threads, size_t window, const std::vector<Run>& runs) {
  std::vector<AttentionSegment> segments;
  std::vector<float> queries;
  const size_t width = heads_ * shape_.head_dim;
  for (const Run& run : runs) {
    const Sequence& sequence = sequences_[run.sequence];
    segments.push_back(
        {queries.size() / width, run.end - run.begin, run.begin, sequence.blocks.data()});
    const auto from = sequence.queries.begin();
    queries.insert(queries.end(), from + static_cast<int64_t>(run.begin * width),
                   from + static_cast<int64_t>(run.end * width));
  }
  std::vector<float> out(queries.size() / shape_.head_dim * ValueDim(shape_), -7.0F);
  ThreadPool pool(threads);
  const AttentionShape shape{heads_, window, scale_, sinks_.empty() ? nullptr : sinks_.data()};
  kernels::Attend(pool, {shape_, pool_.get()}, shape, segments, queries.data(), out.data(),
                  scratch_);
  return out;
}

std::vector<double> World::Exact(size_t index, size_t position, size_t window) const {
  const Sequence& sequence = sequences_[index];
  const size_t dim = shape_.head_dim, group = heads_ / shape_.kv_heads;
  const size_t value_dim = ValueDim(shape_);
  const auto& values = shape_.latent_dim > 0 ? sequence.keys : sequence.values;
  const double scale = scale_ > 0 ? double{scale_} : 1.0 / std::sqrt(static_cast<double>(dim));
  const size_t lowest = window > 0 && position + 1 > window ? position + 1 - window : 0;
  std::vector<double> out(heads_ * value_dim);
  for (size_t head = 0; head < heads_; ++head) {
    const float* query = sequence.queries.data() + (position * heads_ + head) * dim;
    std::vector<double> scores;
    for (size_t p = lowest; p <= position; ++p) {
      double score = 0.0;
      for (size_t i = 0; i < dim; ++i) {
        score += double{query[i]} * sequence.keys[KvIndex(p, head / group) + i];
      }
      scores.push_back(score * scale);
    }
    double largest = *std::max_element(scores.begin(), scores.end());
    if (!sinks_.empty()) largest = std::max(largest, double{sinks_[head]});
    double sum = sinks_.empty() ? 0.0 : std::exp(double{sinks_[head]} - largest);
    for (double& score : scores) sum += score = std::exp(score - largest);
    for (size_t p = lowest; p <= position; ++p) {
      for (size_t i = 0; i < value_dim; ++i) {
        out[head * value_dim + i] +=
            scores[p - lowest] / sum * double{values[KvIndex(p, head / group) + i]};
      }
    }
  }
  return out;
}

void World::Store(const Sequence& sequence, size_t p) {
  StoreKv({shape_, pool_.get()}, sequence.blocks.data(), p, sequence.keys.data() + KvIndex(p, 0),
          sequence.values.data() + KvIndex(p, 0));
}

}  // namespace macrame::runtime::kernels
