#include "runtime/model/mlx/experts.h"

#include <algorithm>
#include <functional>
#include <numeric>
#include <utility>
#include <vector>

namespace macrame::runtime::engine {
namespace {

namespace mx = mlx::core;
using Arrays = Fused::Arrays;

// Logits [rows, experts] -> scores in float32.
Arrays SigmoidScores(const Arrays& in) { return {mx::sigmoid(mx::astype(in[0], mx::float32))}; }

// Logits, bias -> scores, and those by which experts are chosen.
Arrays BiasedSigmoidScores(const Arrays& in) {
  const mx::array scores = SigmoidScores(in)[0];
  return {scores, mx::add(scores, in[1])};
}

// The roots of ln(1 + e^logit).
Arrays RootScores(const Arrays& in) {
  return {mx::sqrt(mx::logaddexp(mx::astype(in[0], mx::float32), mx::array(0.0F)))};
}

Arrays BiasedRootScores(const Arrays& in) {
  const mx::array scores = RootScores(in)[0];
  return {scores, mx::add(scores, in[1])};
}

Fused::Function ScoreFunctionOf(const ExpertTraits& traits, bool has_bias) {
  if (traits.scores == RouterScores::kRootSoftplus) return has_bias ? BiasedRootScores : RootScores;
  return has_bias ? BiasedSigmoidScores : SigmoidScores;
}

// What clamps the activation of experts, and of the one that every token takes.
const ExpertTraits* ClampOf(const ExpertTraits& traits) {
  return traits.swiglu_limit > 0.0F || traits.gate_limit > 0.0F ? &traits : nullptr;
}

const ExpertTraits* SharedClampOf(const ModelConfig& config) {
  return config.clamped_feeds || config.experts.gate_limit > 0.0F ? &config.experts : nullptr;
}

// Scores of the chosen experts, a number like the result, scale; and their sum, which makes them
// shares of one whole.
Arrays ScaledWeights(const Arrays& in) {
  const mx::array whole =
      in.size() < 4 ? in[0] : mx::divide(in[0], mx::add(in[3], mx::array(1e-20F)));
  return {mx::astype(mx::multiply(whole, in[2]), in[1].dtype())};
}

// Choices among all experts, this rank's first expert, its last among its own -> choices among its
// own. Those before the first become large; those of other ranks fall on the last.
Arrays ToOwn(const Arrays& in) { return {mx::minimum(mx::subtract(in[0], in[1]), in[2])}; }

// The same, what each choice gives, zero -> what each choice gives that is this rank's.
Arrays OnlyOwn(const Arrays& in) {
  return {mx::where(mx::less_equal(mx::subtract(in[0], in[1]), in[2]), in[3], in[4])};
}

// A gate's logit, what it weighs, what that is added to.
Arrays AddGated(const Arrays& in) {
  return {mx::add(in[2], mx::multiply(mx::sigmoid(in[0]), in[1]))};
}

// Those of all groups but the best become zero.
mx::array InBestGroups(const mx::array& scores, const ExpertTraits& traits, const mx::array& zero) {
  const int rows = scores.shape(0), dropped = traits.groups - traits.groups_active;
  if (dropped == 0) return scores;
  const int size = traits.count / traits.groups;
  const mx::array grouped = mx::reshape(scores, {rows, traits.groups, size});
  const mx::array best =
      mx::sum(mx::topk(grouped, std::min(traits.group_best, size), -1), -1);  // [rows, groups]
  const mx::array worst =
      mx::slice(mx::argpartition(best, dropped - 1, -1), {0, 0}, {rows, dropped});
  const mx::array kept = mx::put_along_axis(grouped, mx::expand_dims(worst, -1), zero, -2);
  return mx::reshape(kept, scores.shape());
}

std::vector<const LinearNeed*> All(const std::vector<FeedNeeds>& experts,
                                   LinearNeed FeedNeeds::*map) {
  std::vector<const LinearNeed*> needs;
  for (const FeedNeeds& expert : experts) needs.push_back(&(expert.*map));
  return needs;
}

mx::array Number(int number) { return mx::array(static_cast<uint32_t>(number)); }

mx::array Counting() {
  std::vector<uint32_t> numbers(kSortedChoices);
  std::iota(numbers.begin(), numbers.end(), 0U);
  return mx::array(numbers.data(), {kSortedChoices}, mx::uint32);
}

}  // namespace

MlxExperts::MlxExperts(const LayerNeeds& needs, const ModelConfig& config, WeightLoader& loader)
    : traits_(config.experts),
      router_(loader.LoadLinear(*needs.router)),
      score_bias_(loader.LoadVector(needs.score_bias)),
      activation_(config, ClampOf(config.experts), loader),
      scores_(ScoreFunctionOf(config.experts, score_bias_.has_value()), loader.device()),
      weights_(ScaledWeights, loader.device()),
      add_shared_(AddGated, loader.device()),
      zero_(0.0F, loader.activation_type()),
      group_zero_(0.0F),
      weight_scale_(static_cast<float>(config.experts.weight_scale)),
      active_(Number(config.experts.active)),
      counting_(Counting()) {
  if (!needs.experts.empty()) {
    const auto gates = All(needs.experts, &FeedNeeds::gate);
    const auto ups = All(needs.experts, &FeedNeeds::up);
    if (config.gated_feeds) joined_ = loader.LoadStackedJoined({gates, ups});
    if (!joined_.has_value()) {
      if (config.gated_feeds) gate_ = loader.LoadStacked(gates);
      up_ = loader.LoadStacked(ups);
    }
    down_ = loader.LoadStacked(All(needs.experts, &FeedNeeds::down));
    has_width_ = joined_.has_value() || up_->weight.shape(1) > 0;
  }
  if (own_experts() > 0 && own_experts() < traits_.count) {
    dealt_.emplace(Dealt{Number(needs.first_expert), Number(own_experts() - 1),
                         Fused(ToOwn, loader.device()), Fused(OnlyOwn, loader.device())});
  }
  if (needs.beside.has_value()) expert_scales_ = loader.LoadVector(needs.beside->expert_scales);
  if (expert_scales_.has_value()) {
    expert_scales_ = mx::astype(*expert_scales_, loader.activation_type());
  }
  if (!needs.shared.has_value()) return;
  shared_.emplace(
      Shared{MlxFeed(*needs.shared, config, loader, SharedClampOf(config)), std::nullopt});
  if (needs.shared_router.has_value()) {
    shared_->router.emplace(loader.LoadLinear(*needs.shared_router));
  }
}

MlxExperts::Scores MlxExperts::ScoresOf(const mx::array& seen) const {
  mx::array logits = router_.Apply(traits_.exact_router ? mx::astype(seen, mx::float32) : seen);
  if (traits_.score_divisor != 1.0) {
    logits = mx::divide(logits, mx::array(traits_.score_divisor, logits.dtype()));
  }
  if (traits_.scores != RouterScores::kSoftmax) {
    const Arrays scores =
        score_bias_.has_value() ? scores_({logits, *score_bias_}) : scores_({logits});
    return {scores.back(), scores.front()};
  }
  // Where the chosen ones' weights are shares of one whole, they are the softmax of their logits.
  const mx::array scores = traits_.normalized ? logits : mx::softmax(logits, -1, /*precise=*/true);
  return {score_bias_.has_value() ? mx::add(scores, *score_bias_) : scores, scores};
}

mx::array MlxExperts::WeightsOf(const mx::array& scores, const mx::array& experts) const {
  const bool softmax = traits_.scores == RouterScores::kSoftmax;
  mx::array chosen = mx::take_along_axis(scores, experts, -1);
  if (softmax && traits_.normalized) chosen = mx::softmax(chosen, -1, /*precise=*/true);
  if (softmax && traits_.weight_scale == 1.0) return mx::astype(chosen, zero_.dtype());
  Arrays inputs{chosen, zero_, weight_scale_};
  if (!softmax && traits_.normalized) inputs.push_back(mx::sum(chosen, -1, /*keepdims=*/true));
  return weights_(inputs)[0];
}

MlxExperts::Choice MlxExperts::Choose(const mx::array& seen) const {
  const int rows = seen.shape(0), count = traits_.count, first = count - traits_.active;
  const Scores scores = ScoresOf(seen);
  const mx::array by =
      traits_.groups > 1 ? InBestGroups(scores.by, traits_, group_zero_) : scores.by;
  const mx::array experts = mx::slice(mx::argpartition(by, first, -1), {0, first}, {rows, count});
  const mx::array weights = WeightsOf(scores.weighed, experts);
  if (!expert_scales_.has_value()) return {experts, weights};
  return {experts, mx::multiply(weights, mx::take(*expert_scales_, experts, 0))};
}

mx::array MlxExperts::Product(const StackedLinear& map, const mx::array& x,
                              const mx::array& experts, bool sorted) const {
  // Which matrix of x each product takes: one for all choices of a row, or each its own.
  std::optional<mx::array> taken;
  if (!sorted) {
    const mx::Shape from(x.shape().begin(), x.shape().end() - 2);
    const int count = std::accumulate(from.begin(), from.end(), 1, std::multiplies<>());
    taken = mx::reshape(mx::slice(counting_, {0}, {count}), from);
  }
  mx::Shape none = experts.shape();
  none.insert(none.end(), {1, map.weight.shape(1)});
  const mx::array product =
      x.shape(-1) == 0 ? mx::zeros(none, x.dtype())
      : map.scales.has_value()
          ? mx::gather_qmm(x, map.weight, *map.scales, map.biases, taken, experts,
                           /*transpose=*/true, map.traits.group_size, map.traits.bits,
                           MlxModeOf(map.traits), /*global_scale=*/std::nullopt, sorted)
          : mx::gather_mm(x, mx::swapaxes(map.weight, -1, -2), taken, experts, sorted);
  if (!map.bias.has_value()) return product;
  return mx::add(product, mx::expand_dims(mx::take(*map.bias, experts, 0), -2));
}

mx::array MlxExperts::Down(const mx::array& x, const mx::array& experts, bool sorted) const {
  const auto inner = [&]() -> mx::array {
    if (!has_width_) {
      mx::Shape none = experts.shape();
      none.insert(none.end(), {1, 0});
      return mx::zeros(none, x.dtype());
    }
    if (joined_.has_value()) return activation_.Apply(Product(*joined_, x, experts, sorted));
    const mx::array up = Product(*up_, x, experts, sorted);
    if (!gate_.has_value()) return activation_.Apply(up);
    return activation_.Apply(Product(*gate_, x, experts, sorted), up);
  };
  return mx::squeeze(Product(*down_, inner(), experts, sorted), -2);
}

mx::array MlxExperts::EachSorted(const mx::array& x, const mx::array& experts) const {
  const mx::array order = mx::argsort(mx::flatten(experts));
  const mx::array rows = mx::floor_divide(order, active_);
  const mx::array taken = mx::expand_dims(mx::take(x, rows, 0), -2);
  const mx::array given =
      Down(taken, mx::take(mx::flatten(experts), order), /*sorted=*/true);  // [choices, hidden]
  return mx::unflatten(mx::take(given, mx::argsort(order), 0), 0, experts.shape());
}

mx::array MlxExperts::Each(const mx::array& x, const mx::array& experts) const {
  if (static_cast<int>(experts.size()) >= kSortedChoices) return EachSorted(x, experts);
  return Down(mx::expand_dims(x, {-2, -3}), experts, /*sorted=*/false);
}

mx::array MlxExperts::Given(const mx::array& x, const Choice& choice) const {
  const auto weighed = [&](const mx::array& given) {
    const mx::array sum = mx::matmul(mx::expand_dims(choice.weights, -2), given);
    return mx::astype(mx::squeeze(sum, -2), x.dtype());
  };
  if (!dealt_.has_value()) return weighed(Each(x, choice.experts));
  const Dealt& dealt = *dealt_;
  const mx::array own = dealt.to_own({choice.experts, dealt.first, dealt.last})[0];
  return weighed(dealt.only_own(
      {mx::expand_dims(choice.experts, -1), dealt.first, dealt.last, Each(x, own), zero_})[0]);
}

mx::array MlxExperts::Apply(const mx::array& x, const mx::array& seen) const {
  std::optional<mx::array> given;
  if (has_experts()) given = Given(x, Choose(seen));
  if (!shared_.has_value()) return given.has_value() ? *given : ZerosBehind(x, x.shape(-1));
  const mx::array shared = shared_->feed.Apply(x);
  if (!shared_->router.has_value()) return given.has_value() ? mx::add(*given, shared) : shared;
  const mx::array gate = shared_->router->Apply(x);
  if (!given.has_value()) return mx::multiply(mx::sigmoid(gate), shared);
  return add_shared_({gate, shared, *given})[0];
}

}  // namespace macrame::runtime::engine
