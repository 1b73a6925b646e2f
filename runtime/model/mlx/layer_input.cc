#include "runtime/model/mlx/layer_input.h"

#include <cmath>

#include "runtime/model/mlx/experts.h"

namespace macrame::runtime::engine {

namespace mx = mlx::core;

MlxLayerInputs::MlxLayerInputs(const InputNeeds& needs, const ModelConfig& config,
                               WeightLoader& loader)
    : width_(config.layer_input_width),
      epsilon_(config.rms_norm_eps),
      table_(loader.LoadLinear(needs.embedding)),
      projection_(loader.LoadLinear(needs.projection)),
      norm_(*loader.LoadVector(needs.norm)) {}

mx::array MlxLayerInputs::Make(const mx::array& looked_up, const mx::array& hidden) const {
  const auto number = [&](double value) { return mx::array(value, hidden.dtype()); };
  const int rows = hidden.shape(0), all = looked_up.shape(1);
  const double root = 1.0 / std::sqrt(static_cast<double>(hidden.shape(1)));
  const mx::array projected = mx::multiply(projection_.Apply(hidden), number(root));
  const mx::array normed =
      mx::fast::rms_norm(mx::reshape(projected, {rows, all / width_, width_}), norm_, epsilon_);
  const mx::array table = mx::multiply(looked_up, number(std::sqrt(static_cast<double>(width_))));
  return mx::multiply(mx::add(mx::reshape(normed, {rows, all}), table), number(M_SQRT1_2));
}

MlxLayerInput::MlxLayerInput(const LayerInputNeeds& needs, const ModelConfig& config,
                             WeightLoader& loader)
    : epsilon_(config.rms_norm_eps),
      gate_(loader.LoadLinear(needs.gate)),
      projection_(loader.LoadLinear(needs.projection)),
      norm_(*loader.LoadVector(needs.norm)) {}

mx::array MlxLayerInput::Apply(const mx::array& hidden, const mx::array& input) const {
  const mx::array gated = MlxGated(Activation::kGeluTanh, gate_.Apply(hidden), input);
  return mx::fast::rms_norm(projection_.Apply(gated), norm_, epsilon_);
}

}  // namespace macrame::runtime::engine
