#include "runtime/model/cpu/streams.h"

#include <algorithm>
#include <array>
#include <cmath>

#include "runtime/kernels/elementwise.h"
#include "runtime/model/cpu/feed.h"

namespace macrame::runtime::engine {
namespace {

namespace mx = mlx::core;

std::vector<float> Numbers(WeightLoader& loader, const VectorNeed& need) {
  mx::array plain = mx::contiguous(mx::astype(*loader.LoadVector(need), mx::float32));
  plain.eval();
  return {plain.data<float>(), plain.data<float>() + plain.size()};
}

float Sigmoid(float x) { return static_cast<float>(1.0 / (1.0 + std::exp(-double{x}))); }

// out = the sum of `count` vectors, each times its weight.
void WeighedSum(const float* vectors, const float* weights, size_t count, size_t size,
                size_t weight_stride, float* out) {
  for (size_t i = 0; i < size; ++i) out[i] = weights[0] * vectors[i];
  for (size_t k = 1; k < count; ++k) {
    const float weight = weights[k * weight_stride];
    const float* vector = vectors + k * size;
    for (size_t i = 0; i < size; ++i) out[i] += weight * vector[i];
  }
}

}  // namespace

CpuStreamMix::CpuStreamMix(const StreamNeeds& needs, WeightLoader& loader)
    : map_(loader.LoadLinear(needs.map)),
      base_(Numbers(loader, needs.base)),
      scale_(Numbers(loader, needs.scale)) {}

CpuStreams::CpuStreams(const ModelConfig& config, kernels::ThreadPool& pool, CpuProducts& products)
    : traits_(config.streams),
      count_(static_cast<size_t>(config.streams.count)),
      hidden_(static_cast<size_t>(config.hidden_size)),
      norm_eps_(config.rms_norm_eps),
      pool_(pool),
      products_(products),
      ones_(count_ * hidden_, 1.0F) {}

void CpuStreams::Take(const float* carried, const CarriedRow& layout, size_t rows) {
  rows_ = rows;
  const size_t width = count_ * hidden_;
  float* streams = streams_.Reserve(rows * width);
  float* weights = weights_.Reserve(rows * count_);
  for (size_t row = 0; row < rows; ++row, carried += layout.width) {
    std::copy_n(carried, width, streams + row * width);
    std::copy_n(carried + width, count_, weights + row * count_);
  }
}

void CpuStreams::Put(float* carried, const CarriedRow& layout) const {
  const size_t width = count_ * hidden_;
  for (size_t row = 0; row < rows_; ++row, carried += layout.width) {
    std::copy_n(streams_.data() + row * width, width, carried);
    std::copy_n(weights_.data() + row * count_, count_, carried + width);
  }
}

// Columns of the matrix add up to one, then rows and columns in turn.
void CpuStreams::Balance(float* matrix) const {
  const auto divide = [&](size_t stride, size_t step) {
    for (size_t line = 0; line < count_; ++line) {
      float* first = matrix + line * stride;
      float sum = 0.0F;
      for (size_t i = 0; i < count_; ++i) sum += first[i * step];
      for (size_t i = 0; i < count_; ++i) first[i * step] /= sum + traits_.eps;
    }
  };
  divide(1, count_);
  for (int round = 1; round < traits_.rounds; ++round) {
    divide(count_, 1);
    divide(1, count_);
  }
}

// A row's mixes, made of what the map gave: weights to read by, weights to add by, the matrix.
void CpuStreams::Weigh(const CpuStreamMix& mix, size_t row) {
  float* all = mixes_.data() + row * mix.base_.size();
  for (size_t i = 0; i < mix.base_.size(); ++i) {
    all[i] = all[i] * mix.scale_[std::min<size_t>(i / count_, 2)] + mix.base_[i];
  }
  for (size_t i = 0; i < count_; ++i) {
    all[i] = Sigmoid(all[i]) + traits_.eps;
    all[count_ + i] = 2.0F * Sigmoid(all[count_ + i]);
  }
  float* matrix = all + 2 * count_;
  for (size_t line = 0; line < count_; ++line) {
    float* own = matrix + line * count_;
    const float most = *std::max_element(own, own + count_);
    double sum = 0;
    std::array<double, StreamTraits::kStreamsMax> powers{};
    for (size_t i = 0; i < count_; ++i) sum += powers[i] = std::exp(double{own[i]} - most);
    for (size_t i = 0; i < count_; ++i) {
      own[i] = static_cast<float>(powers[i] / sum) + traits_.eps;
    }
  }
  Balance(matrix);
}

void CpuStreams::Begin(const CpuStreamMix& mix, float* hidden) {
  const size_t width = count_ * hidden_;
  float* normed = normed_.Reserve(rows_ * width);
  float* mixes = mixes_.Reserve(rows_ * mix.base_.size());
  ForRows(pool_, rows_, width, [&](size_t row) {
    const float* streams = streams_.data() + row * width;
    kernels::RmsNorm(streams, ones_.data(), norm_eps_, width, normed + row * width);
    WeighedSum(streams, weights_.data() + row * count_, count_, hidden_, 1, hidden + row * hidden_);
  });
  products_.SetInput(normed, rows_, width);
  products_.Apply(mix.map_, mixes);
  ForRows(pool_, rows_, width, [&](size_t row) { Weigh(mix, row); });
}

void CpuStreams::End(const float* given) {
  const size_t width = count_ * hidden_, mixes = static_cast<size_t>(traits_.mixes());
  ForRows(pool_, rows_, width, [&](size_t row) {
    const float* own = mixes_.data() + row * mixes;
    const float* matrix = own + 2 * count_;
    float* streams = streams_.data() + row * width;
    float* mixed = normed_.data() + row * width;  // free by now
    for (size_t to = 0; to < count_; ++to) {
      float* out = mixed + to * hidden_;
      WeighedSum(streams, matrix + to, count_, hidden_, count_, out);
      for (size_t i = 0; i < hidden_; ++i) out[i] += own[count_ + to] * given[row * hidden_ + i];
    }
    std::copy_n(mixed, width, streams);
    std::copy_n(own, count_, weights_.data() + row * count_);
  });
}

void CpuStreams::Collapse(const float* carried, float* hidden) const {
  WeighedSum(carried, carried + count_ * hidden_, count_, hidden_, 1, hidden);
}

size_t CpuStreams::memory_bytes() const {
  return streams_.bytes() + weights_.bytes() + normed_.bytes() + mixes_.bytes();
}

}  // namespace macrame::runtime::engine
