#include "runtime/model/mlx/feed.h"

#include <cmath>
#include <utility>
#include <vector>

namespace macrame::runtime::engine {
namespace {

namespace mx = mlx::core;
using Arrays = Fused::Arrays;

Arrays SiluGated(const Arrays& in) { return {MlxGated(Activation::kSilu, in[0], in[1])}; }

Arrays GeluGated(const Arrays& in) { return {MlxGated(Activation::kGeluTanh, in[0], in[1])}; }

Arrays SquaredRelu(const Arrays& in) {
  return {mx::square(mx::maximum(in[0], mx::array(0.0F, in[0].dtype())))};
}

// gate, up, limit, alpha.
Arrays ClampedSwiglu(const Arrays& in) {
  const mx::array gate = mx::minimum(in[0], in[2]);
  const mx::array up = mx::maximum(mx::minimum(in[1], in[2]), mx::negative(in[2]));
  return {mx::multiply(mx::multiply(gate, mx::sigmoid(mx::multiply(in[3], gate))),
                       mx::add(up, mx::array(1.0F, up.dtype())))};
}

// gate, up, limit: in float32 between the products, as mlx-lm has it.
Arrays LimitedSiluGated(const Arrays& in) {
  const mx::array limit = mx::astype(in[2], mx::float32);
  const mx::array gate = mx::minimum(mx::astype(in[0], mx::float32), limit);
  const mx::array up =
      mx::maximum(mx::minimum(mx::astype(in[1], mx::float32), limit), mx::negative(limit));
  return {mx::astype(MlxGated(Activation::kSilu, gate, up), in[1].dtype())};
}

Fused::Function FunctionOf(const ModelConfig& config, const ExpertTraits* clamped) {
  if (!config.gated_feeds) return SquaredRelu;
  if (clamped != nullptr) return clamped->gate_limit > 0.0F ? LimitedSiluGated : ClampedSwiglu;
  return config.activation == Activation::kGeluTanh ? GeluGated : SiluGated;
}

std::optional<Linear> LoadApart(const LinearNeed& need, bool is_joined, WeightLoader& loader) {
  if (is_joined || need.module.empty()) return std::nullopt;
  return loader.LoadLinear(need);
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

MlxActivation::MlxActivation(const ModelConfig& config, const ExpertTraits* clamped,
                             const WeightLoader& loader)
    : gated_(config.gated_feeds), function_(FunctionOf(config, clamped), loader.device()) {
  if (clamped == nullptr || !gated_) return;
  if (clamped->gate_limit > 0.0F) {
    constants_.emplace_back(clamped->gate_limit);
    return;
  }
  for (const float number : {clamped->swiglu_limit, clamped->swiglu_alpha}) {
    constants_.emplace_back(number, loader.activation_type());
  }
}

mx::array MlxActivation::Apply(const mx::array& gate, const mx::array& up) const {
  Arrays inputs{gate, up};
  inputs.insert(inputs.end(), constants_.begin(), constants_.end());
  return function_(inputs)[0];
}

mx::array MlxActivation::Apply(const mx::array& product) const {
  if (!gated_) return function_({product})[0];
  const std::vector<mx::array> halves = mx::split(product, 2, -1);
  return Apply(halves[0], halves[1]);
}

MlxFeed::MlxFeed(const FeedNeeds& needs, const ModelConfig& config, WeightLoader& loader,
                 const ExpertTraits* clamped)
    : joined_(loader.LoadJoined({&needs.gate, &needs.up})),
      gate_(LoadApart(needs.gate, joined_.has_value(), loader)),
      up_(LoadApart(needs.up, joined_.has_value(), loader)),
      down_(loader.LoadLinear(needs.down)),
      activation_(config, clamped, loader) {}

mx::array MlxFeed::Apply(const mx::array& x) const {
  if (joined_.has_value()) return down_.Apply(activation_.Apply(joined_->Apply(x)));
  if (up_->rows() == 0) return down_.Apply(ZerosBehind(x, 0));
  if (!gate_.has_value()) return down_.Apply(activation_.Apply(up_->Apply(x)));
  return down_.Apply(activation_.Apply(gate_->Apply(x), up_->Apply(x)));
}

}  // namespace macrame::runtime::engine
