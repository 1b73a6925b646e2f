#include "runtime/model/mlx/experts.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <utility>
#include <vector>

namespace macrame::runtime::engine {
namespace {

namespace mx = mlx::core;

mx::array SquaredRelu(const mx::array& x) {
  return mx::square(mx::maximum(x, mx::array(0.0F, x.dtype())));
}

std::optional<Linear> LoadGate(const FeedNeeds& needs, WeightLoader& loader) {
  if (needs.gate.module.empty()) return std::nullopt;
  return loader.LoadLinear(needs.gate);
}

// Those of all groups but the best become zero.
mx::array InBestGroups(const mx::array& scores, const ExpertTraits& traits) {
  const int rows = scores.shape(0), dropped = traits.groups - traits.groups_active;
  if (dropped == 0) return scores;
  const int size = traits.count / traits.groups;
  const mx::array grouped = mx::reshape(scores, {rows, traits.groups, size});
  const mx::array best =
      mx::sum(mx::topk(grouped, std::min(traits.group_best, size), -1), -1);  // [rows, groups]
  const mx::array worst =
      mx::slice(mx::argpartition(best, dropped - 1, -1), {0, 0}, {rows, dropped});
  const mx::array kept = mx::put_along_axis(mx::ones_like(best), worst, mx::array(0.0F), -1);
  return mx::reshape(mx::multiply(grouped, mx::expand_dims(kept, -1)), scores.shape());
}

mx::array ClampedSwiglu(const mx::array& gate, const mx::array& up, const ExpertTraits& traits) {
  const auto number = [&](float value) { return mx::array(value, gate.dtype()); };
  const mx::array g = mx::minimum(gate, number(traits.swiglu_limit));
  const mx::array u = mx::clip(up, number(-traits.swiglu_limit), number(traits.swiglu_limit));
  return mx::multiply(mx::multiply(g, mx::sigmoid(mx::multiply(number(traits.swiglu_alpha), g))),
                      mx::add(u, number(1.0F)));
}

std::vector<const LinearNeed*> All(const std::vector<FeedNeeds>& experts,
                                   LinearNeed FeedNeeds::*map) {
  std::vector<const LinearNeed*> needs;
  for (const FeedNeeds& expert : experts) needs.push_back(&(expert.*map));
  return needs;
}

// x [rows, 1 or active, 1, columns of the map] -> [rows, active, 1, rows of the map].
mx::array Gathered(const StackedLinear& map, const mx::array& x, const mx::array& experts) {
  const mx::array product =
      x.shape(-1) == 0
          ? mx::zeros({experts.shape(0), experts.shape(1), 1, map.weight.shape(1)}, x.dtype())
      : map.scales.has_value()
          ? mx::gather_qmm(x, map.weight, *map.scales, map.biases, std::nullopt, experts,
                           /*transpose=*/true, map.traits.group_size, map.traits.bits,
                           MlxModeOf(map.traits))
          : mx::gather_mm(x, mx::swapaxes(map.weight, -1, -2), std::nullopt, experts);
  if (!map.bias.has_value()) return product;
  return mx::add(product, mx::expand_dims(mx::take(*map.bias, experts, 0), -2));
}

}  // namespace

mx::array MlxGated(Activation activation, const mx::array& gate, const mx::array& up) {
  mx::array inside = gate;
  if (activation == Activation::kGeluTanh) {  // x * sigmoid(2 y) is x * (1 + tanh(y)) / 2
    const auto number = [&](double value) { return mx::array(value, gate.dtype()); };
    const mx::array cube = mx::multiply(mx::square(gate), gate);
    inside = mx::multiply(number(2.0 * std::sqrt(2.0 / M_PI)),
                          mx::add(gate, mx::multiply(number(0.044715), cube)));
  }
  return mx::multiply(mx::multiply(gate, mx::sigmoid(inside)), up);
}

mx::array MlxFeed(const std::optional<Linear>& gate, const Linear& up, const Linear& down,
                  Activation activation, const ExpertTraits* clamped, const mx::array& x) {
  if (up.rows() == 0) return down.Apply(mx::zeros({x.shape(0), 0}, x.dtype()));
  if (!gate.has_value()) return down.Apply(SquaredRelu(up.Apply(x)));
  if (clamped != nullptr) {
    return down.Apply(ClampedSwiglu(gate->Apply(x), up.Apply(x), *clamped));
  }
  return down.Apply(MlxGated(activation, gate->Apply(x), up.Apply(x)));
}

MlxExperts::MlxExperts(const LayerNeeds& needs, const ModelConfig& config, WeightLoader& loader)
    : traits_(config.experts),
      activation_(config.activation),
      clamped_shared_(config.clamped_feeds),
      router_(loader.LoadLinear(*needs.router)),
      score_bias_(loader.LoadVector(needs.score_bias)),
      first_expert_(needs.first_expert) {
  if (!needs.experts.empty()) {
    if (config.gated_feeds) gate_ = loader.LoadStacked(All(needs.experts, &FeedNeeds::gate));
    up_ = loader.LoadStacked(All(needs.experts, &FeedNeeds::up));
    down_ = loader.LoadStacked(All(needs.experts, &FeedNeeds::down));
  }
  if (needs.beside.has_value()) expert_scales_ = loader.LoadVector(needs.beside->expert_scales);
  if (!needs.shared.has_value()) return;
  shared_.emplace(Shared{LoadGate(*needs.shared, loader), loader.LoadLinear(needs.shared->up),
                         loader.LoadLinear(needs.shared->down), std::nullopt});
  if (needs.shared_router.has_value()) {
    shared_->router.emplace(loader.LoadLinear(*needs.shared_router));
  }
}

MlxExperts::Choice MlxExperts::Choose(const mx::array& x) const {
  const int rows = x.shape(0), active = traits_.active;
  const bool softmax = traits_.scores == RouterScores::kSoftmax;
  mx::array scores = mx::astype(router_.Apply(x), mx::float32);
  if (!softmax) scores = mx::sigmoid(scores);
  if (softmax && !traits_.normalized) scores = mx::softmax(scores, -1, /*precise=*/true);
  mx::array by = score_bias_.has_value() ? mx::add(scores, *score_bias_) : scores;
  if (traits_.groups > 1) by = InBestGroups(by, traits_);
  const mx::array chosen = mx::astype(
      mx::slice(mx::argpartition(mx::negative(by), active - 1, -1), {0, 0}, {rows, active}),
      mx::uint32);
  mx::array weights = mx::take_along_axis(scores, chosen, -1);
  if (softmax && traits_.normalized) weights = mx::softmax(weights, -1, /*precise=*/true);
  if (!softmax && traits_.normalized) {
    weights = mx::divide(weights, mx::add(mx::sum(weights, -1, true), mx::array(1e-20F)));
  }
  if (traits_.weight_scale != 1.0) {
    weights = mx::multiply(weights, mx::array(static_cast<float>(traits_.weight_scale)));
  }
  if (expert_scales_.has_value()) {
    weights = mx::multiply(weights, mx::take(*expert_scales_, chosen, 0));
  }
  return {chosen, weights};
}

mx::array MlxExperts::Inner(const mx::array& x, const mx::array& experts) const {
  const mx::array up = Gathered(*up_, x, experts);
  if (!gate_.has_value()) return SquaredRelu(up);
  const mx::array gate = Gathered(*gate_, x, experts);
  return traits_.swiglu_limit > 0.0F ? ClampedSwiglu(gate, up, traits_)
                                     : MlxGated(activation_, gate, up);
}

mx::array MlxExperts::Given(const mx::array& x, const mx::array& experts) const {
  const mx::array each = mx::expand_dims(x, {-2, -3});  // [rows, 1, 1, hidden]
  const bool has_width = up_->weight.shape(1) > 0;
  const mx::array inner =
      has_width ? Inner(each, experts) : mx::zeros({x.shape(0), experts.shape(1), 1, 0}, x.dtype());
  return mx::squeeze(Gathered(*down_, inner, experts), -2);
}

mx::array MlxExperts::GivenByOwn(const mx::array& x, const mx::array& chosen) const {
  if (chosen.shape(0) * chosen.shape(1) >= kPickedChoices) return GivenByPicked(x, chosen);
  // Those before the first become large.
  const mx::array local = mx::subtract(chosen, mx::array(static_cast<uint32_t>(first_expert_)));
  const mx::array is_own = mx::less(local, mx::array(static_cast<uint32_t>(own_experts())));
  const mx::array given = Given(x, mx::where(is_own, local, mx::zeros_like(local)));
  return mx::where(mx::expand_dims(is_own, -1), given, mx::zeros_like(given));
}

// The choices that fall on own experts, by these, as rows of one choice each; each of all choices
// takes its row of what they give, or the row of zeros behind.
mx::array MlxExperts::GivenByPicked(const mx::array& x, const mx::array& chosen) const {
  mx::array seen = mx::contiguous(chosen);
  seen.eval();
  const int active = chosen.shape(1), own = own_experts();
  std::vector<std::vector<int>> by_expert(static_cast<size_t>(own));
  for (int choice = 0; choice < static_cast<int>(seen.size()); ++choice) {
    const int local = static_cast<int>(seen.data<uint32_t>()[choice]) - first_expert_;
    if (local >= 0 && local < own) by_expert[static_cast<size_t>(local)].push_back(choice);
  }
  std::vector<uint32_t> experts, rows;
  std::vector<int> places(seen.size(), -1);
  for (size_t local = 0; local < by_expert.size(); ++local) {
    for (const int choice : by_expert[local]) {
      places[static_cast<size_t>(choice)] = static_cast<int>(experts.size());
      experts.push_back(static_cast<uint32_t>(local));
      rows.push_back(static_cast<uint32_t>(choice / active));
    }
  }
  const int count = static_cast<int>(experts.size());
  std::replace(places.begin(), places.end(), -1, count);
  const mx::array zero = mx::zeros({1, x.shape(1)}, x.dtype());
  mx::array all = zero;
  if (count > 0) {
    const mx::array taken = mx::take(x, mx::array(rows.begin(), {count}, mx::uint32), 0);
    const mx::array given = Given(taken, mx::array(experts.begin(), {count, 1}, mx::uint32));
    all = mx::concatenate({mx::squeeze(given, 1), mx::astype(zero, given.dtype())}, 0);
  }
  return mx::take(all, mx::array(places.begin(), chosen.shape(), mx::int32), 0);
}

mx::array MlxExperts::Apply(const mx::array& x, const mx::array& seen) const {
  const auto [chosen, weights] = Choose(seen);
  mx::array out = mx::zeros_like(x);
  if (own_experts() > 0 && (up_->weight.shape(1) > 0 || down_->bias.has_value())) {
    const mx::array given =
        own_experts() == traits_.count ? Given(x, chosen) : GivenByOwn(x, chosen);
    const mx::array weighed = mx::multiply(given, mx::expand_dims(weights, -1));
    out = mx::astype(mx::sum(weighed, -2), x.dtype());
  }
  if (!shared_.has_value()) return out;
  mx::array shared = MlxFeed(shared_->gate, shared_->up, shared_->down, activation_,
                             clamped_shared_ ? &traits_ : nullptr, x);
  if (shared_->router.has_value()) {
    shared = mx::multiply(mx::sigmoid(shared_->router->Apply(x)), shared);
  }
  return mx::add(out, shared);
}

}  // namespace macrame::runtime::engine
