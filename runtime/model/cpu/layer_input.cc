#include "runtime/model/cpu/layer_input.h"

#include <algorithm>
#include <cmath>

#include "runtime/kernels/elementwise.h"
#include "runtime/kernels/matmul.h"
#include "runtime/model/cpu/feed.h"

namespace macrame::runtime::engine {
namespace {

namespace mx = mlx::core;

std::vector<float> LoadNorm(const VectorNeed& need, WeightLoader& loader) {
  mx::array plain = mx::contiguous(mx::astype(*loader.LoadVector(need), mx::float32));
  plain.eval();
  return {plain.data<float>(), plain.data<float>() + plain.size()};
}

}  // namespace

CpuLayerInputs::CpuLayerInputs(const InputNeeds& needs, const ModelConfig& config,
                               WeightLoader& loader)
    : scale_(std::sqrt(static_cast<float>(config.layer_input_width))),
      projection_scale_(1.0F / std::sqrt(static_cast<float>(config.hidden_size))),
      epsilon_(config.rms_norm_eps),
      table_(loader.LoadLinear(needs.embedding)),
      projection_(loader.LoadLinear(needs.projection)),
      norm_(LoadNorm(needs.norm, loader)) {}

void CpuLayerInputs::Make(std::span<const int32_t> ids, const float* hidden, const Range& own,
                          RankSums& sums, LayerInputWork& work,
                          const StridedRows<float>& out) const {
  const size_t all = projection_.rows(), width = norm_.size();
  float* looked_up = work.first.Reserve(ids.size() * all);
  std::fill_n(looked_up, ids.size() * all, 0.0F);
  for (size_t i = 0; i < ids.size(); ++i) {
    if (ids[i] < own.begin || ids[i] >= own.end) continue;
    const int32_t row = ids[i] - own.begin;
    kernels::GatherRows(table_.view(), &row, 1, looked_up + i * all);
  }
  sums.AddExactlyOverRanks(looked_up, ids.size() * all);
  float* projected = work.second.Reserve(ids.size() * all);
  work.products.SetInput(hidden, ids.size(), projection_.columns());
  work.products.Apply(projection_, projected);
  ForRows(work.pool, ids.size(), all, [&](size_t row) {
    float* from = projected + row * all;
    const float* table = looked_up + row * all;
    float* to = out.data + row * out.stride;
    for (size_t i = 0; i < all; ++i) from[i] *= projection_scale_;
    for (size_t begin = 0; begin < all; begin += width) {
      kernels::RmsNorm(from + begin, norm_.data(), epsilon_, width, from + begin);
    }
    for (size_t i = 0; i < all; ++i) {
      to[i] = (from[i] + scale_ * table[i]) * static_cast<float>(M_SQRT1_2);
    }
  });
}

CpuLayerInput::CpuLayerInput(const LayerInputNeeds& needs, const ModelConfig& config,
                             WeightLoader& loader)
    : epsilon_(config.rms_norm_eps),
      gate_(loader.LoadLinear(needs.gate)),
      projection_(loader.LoadLinear(needs.projection)),
      norm_(LoadNorm(needs.norm, loader)) {}

void CpuLayerInput::Apply(const float* hidden, size_t count, const StridedRows<const float>& inputs,
                          LayerInputWork& work, float* out) const {
  const size_t width = gate_.rows(), size = projection_.rows();
  float* gate = work.first.Reserve(count * width);
  work.products.SetInput(hidden, count, gate_.columns());
  work.products.Apply(gate_, gate);
  ForRows(work.pool, count, width, [&](size_t row) {
    float* own = gate + row * width;
    kernels::GeluMultiply(own, inputs.data + row * inputs.stride, width, own);
  });
  work.products.SetInput(gate, count, width);
  work.products.Apply(projection_, out);
  ForRows(work.pool, count, size, [&](size_t row) {
    kernels::RmsNorm(out + row * size, norm_.data(), epsilon_, size, out + row * size);
  });
}

}  // namespace macrame::runtime::engine
