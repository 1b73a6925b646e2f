#include "runtime/model/mlx/recurrent.h"

#include <cmath>

namespace macrame::runtime::engine {

namespace mx = mlx::core;

namespace {

using Arrays = Fused::Arrays;

// Added to the sum of a query's or key's squares before its root divides it.
constexpr float kKeyEps = 1e-6F;

mx::array IndexOf(const std::vector<int>& numbers) {
  return mx::array(numbers.data(), {static_cast<int>(numbers.size())}, mx::int32);
}

// [channels of all * taps] as stored -> of each tap, this rank's channels.
std::vector<mx::array> TapsOf(const mx::array& stored, const ModelConfig& config,
                              const RecurrentCut& cut) {
  const int taps = static_cast<int>(cut.taps);
  const mx::array by_channel =
      mx::take(mx::reshape(stored, {-1, taps}), IndexOf(ChannelsOf(config, cut)), 0);
  std::vector<mx::array> each;
  for (mx::array& tap : mx::split(mx::astype(by_channel, mx::float32), taps, 1)) {
    each.push_back(mx::contiguous(mx::squeeze(tap, 1)));
  }
  return each;
}

// Those of this rank's value heads, which have `each` numbers.
mx::array OfHeads(const mx::array& all, const RecurrentCut& cut, size_t each = 1) {
  const size_t group = cut.key_heads == 0 ? 0 : cut.value_heads / cut.key_heads;
  const int by = static_cast<int>(group * each);
  return mx::slice(all, {cut.heads.begin * by}, {cut.heads.end * by});
}

mx::array AsFloat(const mx::array& x) { return mx::astype(x, mx::float32); }
mx::array Silu(const mx::array& x) { return mx::multiply(x, mx::sigmoid(x)); }

mx::array Columns(const mx::array& x, size_t begin, size_t count) {
  mx::Shape from(x.ndim(), 0), to = x.shape();
  from.back() = static_cast<int>(begin);
  to.back() = static_cast<int>(begin + count);
  return mx::slice(x, from, to);
}

// Each tap's inputs, its weights, and perhaps a bias.
Arrays ConvolveSilu(const Arrays& in) {
  const size_t taps = in.size() / 2;
  mx::array sum = mx::multiply(AsFloat(in[0]), in[taps]);
  for (size_t tap = 1; tap < taps; ++tap) {
    sum = mx::add(sum, mx::multiply(AsFloat(in[tap]), in[taps + tap]));
  }
  return {Silu(in.size() % 2 == 1 ? mx::add(sum, in.back()) : sum)};
}

// a, rates, biases -> logarithms of fades; steps too where limits of theirs follow.
mx::array StepsOf(const mx::array& a, const mx::array& bias) {
  return mx::logaddexp(mx::add(AsFloat(a), bias), mx::array(0.0F));
}

mx::array LogFades(const mx::array& rates, const mx::array& steps) {
  return mx::negative(mx::multiply(rates, steps));
}

// a, b, rates, biases.
Arrays DeltaLogGates(const Arrays& in) {
  return {LogFades(in[2], StepsOf(in[0], in[3])), mx::sigmoid(AsFloat(in[1]))};
}

Arrays DeltaGates(const Arrays& in) {
  return {mx::exp(LogFades(in[2], StepsOf(in[0], in[3]))), mx::sigmoid(AsFloat(in[1]))};
}

// a, rates, biases, the least and the greatest step.
Arrays SpaceLogGates(const Arrays& in) {
  const mx::array steps = mx::minimum(mx::maximum(StepsOf(in[0], in[2]), in[3]), in[4]);
  return {LogFades(in[1], steps), steps};
}

// What heads give, normed; z.
Arrays GateDelta(const Arrays& in) {
  return {mx::astype(mx::multiply(in[0], Silu(AsFloat(in[1]))), in[1].dtype())};
}

// What heads give, z, values, how much of a value each gives as it is.
Arrays GateSpace(const Arrays& in) {
  const mx::array whole = mx::add(in[0], mx::multiply(in[2], in[3]));
  return {mx::multiply(whole, Silu(AsFloat(in[1])))};
}

Arrays ScaleOut(const Arrays& in) {
  return {mx::astype(mx::multiply(in[0], AsFloat(in[1])), in[1].dtype())};
}

Fused::Function GatesFunction(bool is_delta, bool takes_fades) {
  if (!is_delta) return SpaceLogGates;
  return takes_fades ? DeltaGates : DeltaLogGates;
}

}  // namespace

MlxRecurrent::MlxRecurrent(const ModelConfig& config, const ShardPlace& place,
                           const RecurrentNeeds& needs, WeightLoader& loader)
    : cut_(RecurrentCutOf(config, place.slices())),
      traits_(config.recurrent),
      is_delta_(traits_.rule == RecurrenceRule::kGatedDelta),
      norm_eps_(config.rms_norm_eps),
      type_(loader.activation_type()),
      norm_(mx::array(0.0F)),
      key_scale_(mx::full({static_cast<int>(cut_.key_dim)},
                          1.0F / std::sqrt(static_cast<float>(cut_.key_dim)))),
      recurrence_(traits_.rule, cut_, loader.device()),
      convolve_(ConvolveSilu, loader.device()),
      gates_(GatesFunction(is_delta_, recurrence_.takes_fades()), loader.device()),
      gate_out_(is_delta_ ? GateDelta : GateSpace, loader.device()),
      scale_out_(ScaleOut, loader.device()) {
  for (const LinearNeed& need : needs.in) maps_.push_back(loader.LoadLinear(need));
  const std::vector<int> order = ProjectedOrder(config, cut_);
  const bool in_order = is_delta_ && !traits_.by_key_head;
  if (auto joined = Linear::Join(maps_, order); has_heads() && joined.has_value()) {
    maps_ = {std::move(*joined)};
  } else if (!in_order) {
    order_ = IndexOf(order);
  }
  taps_ = TapsOf(*loader.LoadVector(needs.taps), config, cut_);
  if (const auto bias = loader.LoadVector(needs.taps_bias); bias.has_value()) {
    taps_.push_back(mx::take(AsFloat(*bias), IndexOf(ChannelsOf(config, cut_)), 0));
  }
  gate_numbers_ = {mx::exp(AsFloat(OfHeads(*loader.LoadVector(needs.decay), cut_))),
                   AsFloat(OfHeads(*loader.LoadVector(needs.step_bias), cut_))};
  norm_ = *loader.LoadVector(needs.norm);
  if (is_delta_) return;
  gate_numbers_.insert(gate_numbers_.end(),
                       {mx::array(traits_.step_min), mx::array(traits_.step_max)});
  norm_ = mx::astype(OfHeads(norm_, cut_, cut_.value_dim), type_);
  skip_.push_back(mx::expand_dims(AsFloat(OfHeads(*loader.LoadVector(needs.skip), cut_)), 1));
}

MlxState MlxRecurrent::ZeroState() const {
  const auto size = [](size_t value) { return static_cast<int>(value); };
  return {mx::zeros({1, size(cut_.taps) - 1, size(cut_.channels())}, type_),
          mx::zeros({1, size(cut_.value_heads), size(cut_.value_dim), size(cut_.key_dim)})};
}

mx::array MlxRecurrent::Projected(const mx::array& x) const {
  if (maps_.size() == 1 && !order_.has_value()) return mx::astype(maps_[0].Apply(x), type_);
  std::vector<mx::array> given;
  for (const Linear& map : maps_) given.push_back(mx::astype(map.Apply(x), type_));
  const mx::array all = mx::concatenate(given, 1);
  return order_.has_value() ? mx::take(all, *order_, 1) : all;
}

// Channels [sequences, tokens, channels] through the convolution, whose last inputs are kept.
mx::array MlxRecurrent::Convolved(const mx::array& channels, MlxState& state) const {
  const int sequences = channels.shape(0), tokens = channels.shape(1), all = channels.shape(2);
  const int keeps = static_cast<int>(cut_.taps) - 1;
  const mx::array inputs = mx::concatenate({state.inputs, channels}, 1);
  const auto from = [&](int begin, int count) {
    return mx::slice(inputs, {0, begin, 0}, {sequences, begin + count, all});
  };
  // By itself: the rest of the inputs can go.
  state.inputs = mx::contiguous(from(tokens, keeps));
  std::vector<mx::array> in;
  for (int tap = 0; tap <= keeps; ++tap) in.push_back(from(tap, tokens));
  in.insert(in.end(), taps_.begin(), taps_.end());
  return convolve_(in)[0];
}

// Queries and keys of the delta rule are of the length 1; what a query is divided by besides,
// sqrt(key_dim), is left to the norm behind (NormedOut), so that one norm does for both.
MlxRecurrence::Tokens MlxRecurrent::TokensOf(const mx::array& convolved,
                                             const mx::array& projected) const {
  const int sequences = convolved.shape(0), tokens = convolved.shape(1);
  const int heads = static_cast<int>(cut_.value_heads);
  const int keys = static_cast<int>(cut_.key_heads), key_dim = static_cast<int>(cut_.key_dim);
  mx::array keyed = mx::reshape(Columns(convolved, 0, 2 * cut_.key_width()),
                                {sequences, tokens, 2 * keys, key_dim});
  if (is_delta_) {
    keyed = mx::fast::rms_norm(keyed, key_scale_, kKeyEps / static_cast<float>(key_dim));
  }
  const mx::array values =
      mx::reshape(Columns(convolved, 2 * cut_.key_width(), cut_.value_width()),
                  {sequences, tokens, heads, static_cast<int>(cut_.value_dim)});
  const size_t begin = cut_.channels() + cut_.value_width();
  std::vector<mx::array> in;
  if (is_delta_) in.push_back(Columns(projected, begin + cut_.value_heads, cut_.value_heads));
  in.push_back(Columns(projected, begin, cut_.value_heads));
  in.insert(in.end(), gate_numbers_.begin(), gate_numbers_.end());
  const std::vector<mx::array> gates = gates_(in);
  const auto by_sequence = [&](const mx::array& x) {
    return mx::reshape(x, {sequences, tokens, heads});
  };
  return {keyed, values, by_sequence(gates[0]), by_sequence(gates[1])};
}

mx::array MlxRecurrent::NormedOut(const mx::array& given, const mx::array& values,
                                  const mx::array& projected) const {
  const int rows = projected.shape(0), width = static_cast<int>(cut_.value_width());
  const mx::array z = mx::reshape(Columns(projected, cut_.channels(), cut_.value_width()),
                                  {rows, static_cast<int>(cut_.value_heads), -1});
  const mx::array by_head = mx::reshape(given, z.shape());
  if (is_delta_) {
    const float eps = norm_eps_ * static_cast<float>(cut_.key_dim);
    const mx::array normed = mx::fast::rms_norm(by_head, norm_, eps);
    return mx::reshape(gate_out_({normed, z})[0], {rows, width});
  }
  const int keys = static_cast<int>(cut_.key_heads);
  const mx::array gated = gate_out_({by_head, z, mx::reshape(values, z.shape()), skip_[0]})[0];
  const mx::array normed =
      mx::fast::rms_norm(mx::reshape(gated, {rows, keys, width / keys}), std::nullopt, norm_eps_);
  return scale_out_({mx::reshape(normed, {rows, width}), norm_})[0];
}

mx::array MlxRecurrent::Run(const mx::array& projected, MlxRun& run) const {
  const mx::array channels =
      mx::reshape(Columns(projected, 0, cut_.channels()),
                  {run.sequences, run.tokens, static_cast<int>(cut_.channels())});
  const MlxRecurrence::Tokens tokens = TokensOf(Convolved(channels, run.state), projected);
  const MlxRecurrence::Result result = recurrence_.Run(tokens, run.state.matrices);
  run.state.matrices = result.state;
  return NormedOut(result.given, tokens.values, projected);
}

mx::array MlxRecurrent::Apply(const mx::array& x, std::span<MlxRun> runs) const {
  const mx::array all = Projected(x);
  if (runs.size() == 1) return Run(all, runs[0]);
  std::vector<mx::array> given;
  for (MlxRun& run : runs) {
    const int end = run.row + run.sequences * run.tokens;
    given.push_back(Run(mx::slice(all, {run.row, 0}, {end, all.shape(1)}), run));
  }
  return mx::concatenate(given, 0);
}

}  // namespace macrame::runtime::engine
