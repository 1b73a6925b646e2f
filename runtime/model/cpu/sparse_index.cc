#include "runtime/model/cpu/sparse_index.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>

#include "proto/check.h"
#include "runtime/kernels/matmul.h"
#include "runtime/model/cpu/feed.h"

namespace macrame::runtime::engine {
namespace {

namespace mx = mlx::core;

std::vector<float> LoadFloats(WeightLoader& loader, const VectorNeed& need) {
  mx::array floats = mx::contiguous(mx::astype(*loader.LoadVector(need), mx::float32));
  floats.eval();
  return {floats.data<float>(), floats.data<float>() + floats.size()};
}

kernels::Rotation RotationOf(const kernels::Rotation& first, size_t row, bool interleaved) {
  kernels::Rotation rotation = first;
  rotation.interleaved = interleaved;
  rotation.cosines += row * rotation.dims / 2;
  rotation.sines += row * rotation.dims / 2;
  return rotation;
}

// out = (x - mean) / sqrt(variance + epsilon) * weight + bias, in place.
void LayerNorm(float* x, const std::vector<float>& weight, const std::vector<float>& bias,
               float epsilon) {
  const size_t size = weight.size();
  double sum = 0, squares = 0;
  for (size_t i = 0; i < size; ++i) sum += x[i];
  const double mean = sum / static_cast<double>(size);
  for (size_t i = 0; i < size; ++i) squares += (x[i] - mean) * (x[i] - mean);
  const double scale = 1.0 / std::sqrt(squares / static_cast<double>(size) + double{epsilon});
  for (size_t i = 0; i < size; ++i) {
    x[i] = static_cast<float>((x[i] - mean) * scale) * weight[i] + bias[i];
  }
}

}  // namespace

CpuSparseIndex::CpuSparseIndex(const ModelConfig& config, const IndexNeeds& needs,
                               WeightLoader& loader)
    : traits_(config.index),
      wq_b_(loader.LoadLinear(needs.wq_b)),
      wk_(loader.LoadLinear(needs.wk)),
      weights_(loader.LoadLinear(needs.weights)),
      key_norm_(LoadFloats(loader, needs.key_norm)),
      key_norm_bias_(LoadFloats(loader, needs.key_norm_bias)) {}

void CpuSparseIndex::MakeKeys(const float* x, size_t rows, const kernels::Rotation& rotation,
                              CpuProducts& products, kernels::ThreadPool& pool, IndexWork& work,
                              float* out, size_t stride) const {
  float* keys = work.keys.Reserve(rows * dim());
  products.SetInput(x, rows, wk_.columns());
  products.Apply(wk_, keys);
  ForRows(pool, rows, dim(), [&](size_t row) {
    float* key = keys + row * dim();
    LayerNorm(key, key_norm_, key_norm_bias_, traits_.norm_eps);
    kernels::Rotate(key, 1, dim(), RotationOf(rotation, row, traits_.interleaved));
    std::copy_n(key, dim(), out + row * stride);
  });
}

void CpuSparseIndex::MakeQueries(const float* x, const float* latent, size_t rows,
                                 const kernels::Rotation& rotation, CpuProducts& products,
                                 kernels::ThreadPool& pool, IndexWork& work) const {
  const auto heads = static_cast<size_t>(traits_.heads);
  float* queries = work.queries.Reserve(rows * heads * dim());
  float* weights = work.weights.Reserve(rows * heads);
  products.SetInput(latent, rows, wq_b_.columns());
  products.Apply(wq_b_, queries);
  products.SetInput(x, rows, weights_.columns());
  products.Apply(weights_, weights);
  const float scale = 1.0F / std::sqrt(static_cast<float>(heads * dim()));
  ForRows(pool, rows, heads * dim(), [&](size_t row) {
    kernels::Rotate(queries + row * heads * dim(), heads, dim(),
                    RotationOf(rotation, row, traits_.interleaved));
    for (size_t head = 0; head < heads; ++head) weights[row * heads + head] *= scale;
  });
}

void CpuSparseIndex::AddScores(const kernels::AttentionSegment& segment, size_t begin, size_t count,
                               kernels::ThreadPool& pool, IndexWork& work) const {
  const auto heads = static_cast<size_t>(traits_.heads);
  kernels::MatrixView keys;
  keys.rows = count;
  keys.columns = dim();
  keys.weights = work.keys.data();
  float* products = work.products.Reserve(segment.count * heads * kIndexKeysAtOnce);
  kernels::MultiplyTransposed(pool, keys, work.input, products, work.scratch);
  const size_t positions = segment.position + segment.count;
  ForRows(pool, segment.count, heads * count, [&](size_t row) {
    float* scores = work.scores.data() + row * positions + begin;
    std::fill_n(scores, count, 0.0F);
    for (size_t head = 0; head < heads; ++head) {
      const float* given = products + (row * heads + head) * count;
      const float weight = work.weights.data()[(segment.row + row) * heads + head];
      for (size_t k = 0; k < count; ++k) scores[k] += std::max(given[k], 0.0F) * weight;
    }
  });
}

void CpuSparseIndex::Choose(const kernels::KvView& view, const kernels::AttentionSegment& segment,
                            kernels::ThreadPool& pool, IndexWork& work, int32_t* out) const {
  const auto heads = static_cast<size_t>(traits_.heads);
  MACRAME_CHECK(segment.position >= top() && segment.count <= kSparseRowsAtOnce)
      << segment.count << " rows at " << segment.position;
  const size_t positions = segment.position + segment.count;
  work.scores.Reserve(segment.count * positions);
  work.input.Set(work.queries.data() + segment.row * heads * dim(), segment.count * heads, dim());
  float* keys = work.keys.Reserve(kIndexKeysAtOnce * dim());
  for (size_t begin = 0; begin < positions; begin += kIndexKeysAtOnce) {
    const size_t count = std::min(kIndexKeysAtOnce, positions - begin);
    pool.Run([&](int worker, int workers) {
      const auto part = kernels::RowsOfWorker(count, 1, worker, workers);
      kernels::ReadIndex(view, segment.blocks, begin + part.begin, part.end - part.begin,
                         keys + part.begin * dim());
    });
    AddScores(segment, begin, count, pool, work);
  }
  work.order.resize(segment.count * positions);
  ForRows(pool, segment.count, positions, [&](size_t row) {
    float* scores = work.scores.data() + row * positions;
    const auto seen = static_cast<ptrdiff_t>(segment.position + row + 1);
    const auto order = work.order.begin() + static_cast<ptrdiff_t>(row * positions);
    std::iota(order, order + seen, 0);
    for (ptrdiff_t i = 0; i < seen; ++i) {
      if (std::isnan(scores[i])) scores[i] = -std::numeric_limits<float>::infinity();
    }
    const auto last = order + static_cast<ptrdiff_t>(top());
    std::nth_element(order, last - 1, order + seen, [&](int32_t a, int32_t b) {
      return scores[a] != scores[b] ? scores[a] > scores[b] : a < b;
    });
    std::sort(order, last);
    std::copy(order, last, out + row * top());
  });
}

}  // namespace macrame::runtime::engine
