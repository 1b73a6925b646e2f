#include "runtime/model/cpu/feed.h"

#include <algorithm>
#include <cmath>
#include <span>
#include <utility>

#include "runtime/kernels/elementwise.h"

namespace macrame::runtime::engine {
namespace {

// In the order in which files hold them.
std::vector<CpuFeed> LoadExperts(const LayerNeeds& layer, const ModelConfig& config,
                                 WeightLoader& loader) {
  const std::vector<FeedNeeds>& needs = layer.experts;
  const bool together = loader.LoadsByExpert(layer);
  std::vector<CpuLinear> gates, ups;
  for (const FeedNeeds& expert : needs) {
    if (!config.gated_feeds || together) break;
    gates.emplace_back(loader.LoadLinear(expert.gate));
  }
  for (const FeedNeeds& expert : needs) {
    if (together) gates.emplace_back(loader.LoadLinear(expert.gate));
    ups.emplace_back(loader.LoadLinear(expert.up));
  }
  std::vector<CpuFeed> experts;
  for (size_t i = 0; i < needs.size(); ++i) {
    experts.emplace_back(config.gated_feeds ? std::optional(std::move(gates[i])) : std::nullopt,
                         std::move(ups[i]), CpuLinear(loader.LoadLinear(needs[i].down)), config);
  }
  return experts;
}

std::vector<float> LoadNumbers(const VectorNeed& need, WeightLoader& loader) {
  std::optional<mlx::core::array> stored = loader.LoadVector(need);
  if (!stored.has_value()) return {};
  mlx::core::array plain = mlx::core::contiguous(mlx::core::astype(*stored, mlx::core::float32));
  plain.eval();
  return {plain.data<float>(), plain.data<float>() + plain.size()};
}

// A gate stays below the limit, an up within it.
void Limit(float limit, size_t size, float* gate, float* up) {
  for (size_t i = 0; i < size; ++i) {
    gate[i] = std::min(gate[i], limit);
    up[i] = std::clamp(up[i], -limit, limit);
  }
}

}  // namespace

CpuFeed::CpuFeed(const FeedNeeds& needs, const ModelConfig& config, WeightLoader& loader,
                 float gate_limit)
    : gate_(needs.gate.module.empty() ? std::nullopt
                                      : std::optional<CpuLinear>(loader.LoadLinear(needs.gate))),
      up_(loader.LoadLinear(needs.up)),
      down_(loader.LoadLinear(needs.down)),
      activation_(config.activation),
      swiglu_limit_(config.clamped_feeds ? config.experts.swiglu_limit : 0.0F),
      swiglu_alpha_(config.experts.swiglu_alpha),
      gate_limit_(gate_limit) {}

CpuFeed::CpuFeed(std::optional<CpuLinear> gate, CpuLinear up, CpuLinear down,
                 const ModelConfig& config)
    : gate_(std::move(gate)),
      up_(std::move(up)),
      down_(std::move(down)),
      activation_(config.activation),
      swiglu_limit_(config.experts.swiglu_limit),
      swiglu_alpha_(config.experts.swiglu_alpha),
      gate_limit_(config.experts.gate_limit) {}

void CpuFeed::ApplyWithoutGate(const float* x, size_t count, FeedWork& work, float* out) const {
  const size_t inner = up_.rows();
  float* up = work.up.Reserve(count * inner);
  work.products.SetInput(x, count, up_.columns());
  work.products.Apply(up_, up);
  ForRows(work.pool, count, inner,
          [&](size_t row) { kernels::SquaredRelu(up + row * inner, inner); });
  work.products.SetInput(up, count, inner);
  work.products.Apply(down_, out);
}

void CpuFeed::Apply(const float* x, size_t count, FeedWork& work, float* out) const {
  if (!gate_.has_value()) return ApplyWithoutGate(x, count, work, out);
  const size_t inner = up_.rows();
  float* gate = work.gate.Reserve(count * inner);
  float* up = work.up.Reserve(count * inner);
  work.products.SetInput(x, count, up_.columns());
  work.products.Apply(*gate_, gate);
  work.products.Apply(up_, up);
  ForRows(work.pool, count, inner, [&](size_t row) {
    float* own = gate + row * inner;
    if (gate_limit_ > 0.0F) Limit(gate_limit_, inner, own, up + row * inner);
    if (swiglu_limit_ > 0.0F) {
      kernels::ClampedSwiglu(own, up + row * inner, swiglu_alpha_, swiglu_limit_, inner, own);
    } else if (activation_ == Activation::kGeluTanh) {
      kernels::GeluMultiply(own, up + row * inner, inner, own);
    } else {
      kernels::SiluMultiply(own, up + row * inner, inner, own);
    }
  });
  work.products.SetInput(gate, count, inner);
  work.products.Apply(down_, out);
}

CpuExperts::CpuExperts(const LayerNeeds& needs, const ModelConfig& config, WeightLoader& loader)
    : traits_(config.experts),
      router_(loader.LoadLinear(*needs.router)),
      score_bias_(LoadNumbers(needs.score_bias, loader)),
      first_expert_(needs.first_expert),
      experts_(LoadExperts(needs, config, loader)) {
  if (needs.beside.has_value()) expert_scales_ = LoadNumbers(needs.beside->expert_scales, loader);
  if (!needs.shared.has_value()) return;
  shared_.emplace(*needs.shared, config, loader, traits_.gate_limit);
  if (!needs.shared_router.has_value()) return;
  shared_router_.emplace(loader.LoadLinear(*needs.shared_router));
}

void CpuExperts::ApplyShared(const float* x, size_t count, FeedWork& work, float* out) const {
  const size_t hidden = router_.columns();
  if (!shared_.has_value()) {
    std::fill_n(out, count * hidden, 0.0F);
    return;
  }
  shared_->Apply(x, count, work, out);
  if (!shared_router_.has_value()) return;
  float* scores = work.scores.Reserve(count);
  work.products.SetInput(x, count, hidden);
  work.products.Apply(*shared_router_, scores);
  for (size_t row = 0; row < count; ++row) {
    const auto weight = static_cast<float>(1.0 / (1.0 + std::exp(-double{scores[row]})));
    for (size_t i = 0; i < hidden; ++i) out[row * hidden + i] *= weight;
  }
}

void CpuExperts::Choose(const float* x, size_t count, FeedWork& work) const {
  const auto all = static_cast<size_t>(traits_.count), active = static_cast<size_t>(traits_.active);
  float* scores = work.scores.Reserve(count * all);
  work.products.SetInput(x, count, router_.columns());
  work.products.Apply(router_, scores);
  if (traits_.score_divisor != 1.0) {
    const auto divisor = static_cast<float>(traits_.score_divisor);
    for (size_t i = 0; i < count * all; ++i) scores[i] /= divisor;
  }
  work.choices.resize(count * active);
  ForRows(work.pool, count, all, [&](size_t row) {
    ChooseExperts({scores + row * all, all}, score_bias_, traits_,
                  {work.choices.data() + row * active, active});
  });
  if (expert_scales_.empty()) return;
  for (ExpertChoice& choice : work.choices) {
    choice.weight *= expert_scales_[static_cast<size_t>(choice.expert)];
  }
}

void CpuExperts::SortByExpert(FeedWork& work) const {
  const int end = first_expert_ + static_cast<int>(experts_.size());
  const auto expert_of = [&](size_t choice) { return work.choices[choice].expert; };
  work.by_expert.clear();
  for (size_t choice = 0; choice < work.choices.size(); ++choice) {
    const int expert = expert_of(choice);
    if (expert >= first_expert_ && expert < end) work.by_expert.push_back(choice);
  }
  std::stable_sort(work.by_expert.begin(), work.by_expert.end(),
                   [&](size_t a, size_t b) { return expert_of(a) < expert_of(b); });
}

void CpuExperts::Apply(const float* x, const float* seen, size_t count, FeedWork& work,
                       float* out) const {
  const size_t hidden = router_.columns(), active = static_cast<size_t>(traits_.active);
  ApplyShared(x, count, work, out);
  Choose(seen, count, work);
  SortByExpert(work);
  const auto expert_of = [&](size_t choice) { return work.choices[choice].expert; };
  for (size_t begin = 0; begin < work.by_expert.size();) {
    const int expert = expert_of(work.by_expert[begin]);
    size_t end = begin + 1;
    while (end < work.by_expert.size() && expert_of(work.by_expert[end]) == expert) ++end;
    const std::span<const size_t> chosen(work.by_expert.data() + begin, end - begin);
    float* taken = work.taken.Reserve(chosen.size() * hidden);
    for (size_t i = 0; i < chosen.size(); ++i) {
      std::copy_n(x + chosen[i] / active * hidden, hidden, taken + i * hidden);
    }
    float* given = work.given.Reserve(chosen.size() * hidden);
    experts_[static_cast<size_t>(expert - first_expert_)].Apply(taken, chosen.size(), work, given);
    for (size_t i = 0; i < chosen.size(); ++i) {
      const float weight = work.choices[chosen[i]].weight;
      float* sum = out + chosen[i] / active * hidden;
      for (size_t at = 0; at < hidden; ++at) sum[at] += weight * given[i * hidden + at];
    }
    begin = end;
  }
}

}  // namespace macrame::runtime::engine
