#include "runtime/model/mlx/recurrent.h"

#include <cmath>

namespace macrame::runtime::engine {

namespace mx = mlx::core;

namespace {

mx::array IndexOf(const std::vector<int>& numbers) {
  return mx::array(numbers.data(), {static_cast<int>(numbers.size())}, mx::int32);
}

// [channels of all * taps] as stored -> [taps, this rank's channels].
mx::array TapsOf(const mx::array& stored, const ModelConfig& config, const RecurrentCut& cut) {
  const int taps = static_cast<int>(cut.taps);
  const mx::array by_channel = mx::reshape(stored, {-1, taps});
  return mx::transpose(mx::take(by_channel, IndexOf(ChannelsOf(config, cut)), 0));
}

// Those of this rank's value heads, which have `each` numbers.
mx::array OfHeads(const mx::array& all, const RecurrentCut& cut, size_t each = 1) {
  const size_t group = cut.key_heads == 0 ? 0 : cut.value_heads / cut.key_heads;
  const int by = static_cast<int>(group * each);
  return mx::slice(all, {cut.heads.begin * by}, {cut.heads.end * by});
}

mx::array Silu(const mx::array& x) { return mx::multiply(x, mx::sigmoid(x)); }

mx::array Columns(const mx::array& x, size_t begin, size_t count) {
  const int from = static_cast<int>(begin);
  return mx::slice(x, {0, from}, {x.shape(0), from + static_cast<int>(count)});
}

}  // namespace

MlxRecurrent::MlxRecurrent(const ModelConfig& config, const ShardPlace& place,
                           const RecurrentNeeds& needs, WeightLoader& loader)
    : cut_(RecurrentCutOf(config, place.slices())),
      traits_(config.recurrent),
      norm_eps_(config.rms_norm_eps),
      taps_(mx::array(0.0F)),
      rates_(mx::array(0.0F)),
      step_bias_(mx::array(0.0F)),
      norm_(mx::array(0.0F)) {
  for (const LinearNeed& need : needs.in) maps_.push_back(loader.LoadLinear(need));
  const bool is_delta = traits_.rule == RecurrenceRule::kGatedDelta;
  if (traits_.by_key_head || !is_delta) order_ = IndexOf(ProjectedOrder(config, cut_));
  taps_ = TapsOf(*loader.LoadVector(needs.taps), config, cut_);
  if (const auto bias = loader.LoadVector(needs.taps_bias); bias.has_value()) {
    taps_bias_ = mx::take(*bias, IndexOf(ChannelsOf(config, cut_)), 0);
  }
  rates_ = mx::exp(OfHeads(*loader.LoadVector(needs.decay), cut_));
  step_bias_ = OfHeads(*loader.LoadVector(needs.step_bias), cut_);
  if (!is_delta) skip_ = OfHeads(*loader.LoadVector(needs.skip), cut_);
  norm_ = *loader.LoadVector(needs.norm);
  if (!is_delta) norm_ = OfHeads(norm_, cut_, cut_.value_dim);
}

MlxState MlxRecurrent::ZeroState() const {
  const auto size = [](size_t value) { return static_cast<int>(value); };
  return {mx::zeros({size(cut_.taps) - 1, size(cut_.channels())}),
          mx::zeros({size(cut_.value_heads), size(cut_.value_dim), size(cut_.key_dim)})};
}

// A segment's channels through the convolution, whose last inputs are kept.
mx::array MlxRecurrent::Convolved(const mx::array& channels, MlxState& state) const {
  const int tokens = channels.shape(0), taps = static_cast<int>(cut_.taps);
  const int all = static_cast<int>(cut_.channels());
  const mx::array inputs = mx::concatenate({state.inputs, channels}, 0);
  state.inputs = mx::contiguous(mx::slice(inputs, {tokens, 0}, {tokens + taps - 1, all}));
  mx::array sum = taps_bias_.has_value() ? *taps_bias_ : mx::zeros({1});
  for (int tap = 0; tap < taps; ++tap) {
    const mx::array weight = mx::slice(taps_, {tap, 0}, {tap + 1, all});
    sum = mx::add(sum, mx::multiply(weight, mx::slice(inputs, {tap, 0}, {tap + tokens, all})));
  }
  return Silu(sum);
}

mx::array MlxRecurrent::Run(const mx::array& channels, const Gates& gates, MlxState& state) const {
  const bool is_delta = traits_.rule == RecurrenceRule::kGatedDelta;
  const int tokens = channels.shape(0);
  const int heads = static_cast<int>(cut_.value_heads), keys = static_cast<int>(cut_.key_heads);
  const int key_dim = static_cast<int>(cut_.key_dim), value_dim = static_cast<int>(cut_.value_dim);
  const mx::array convolved = Convolved(channels, state);
  const auto keyed = [&](size_t begin, float scale) {
    mx::array part =
        mx::reshape(Columns(convolved, begin, cut_.key_width()), {tokens, keys, key_dim});
    if (is_delta) {
      const float eps = 1e-6F / static_cast<float>(key_dim);
      part = mx::multiply(mx::fast::rms_norm(part, std::nullopt, eps), mx::array(scale));
    }
    return mx::repeat(part, heads / keys, 1);
  };
  const float root = 1.0F / std::sqrt(static_cast<float>(key_dim));
  const mx::array query = keyed(0, root * root), key = keyed(cut_.key_width(), root);
  const mx::array value = mx::reshape(Columns(convolved, 2 * cut_.key_width(), cut_.value_width()),
                                      {tokens, heads, value_dim});
  const auto at = [&](const mx::array& x, int token, mx::Shape shape) {
    mx::Shape from(x.ndim(), 0), to = x.shape();
    from[0] = token;
    to[0] = token + 1;
    return mx::reshape(mx::slice(x, from, to), std::move(shape));
  };
  std::vector<mx::array> out;
  for (int token = 0; token < tokens; ++token) {
    const mx::array k = at(key, token, {heads, 1, key_dim});
    const mx::array faded = mx::multiply(state.matrices, at(gates.fades, token, {heads, 1, 1}));
    mx::array part = at(value, token, {heads, value_dim, 1});
    if (is_delta) part = mx::subtract(part, mx::sum(mx::multiply(faded, k), -1, true));
    part = mx::multiply(part, at(gates.shares, token, {heads, 1, 1}));
    state.matrices = mx::add(faded, mx::multiply(part, k));
    out.push_back(mx::sum(mx::multiply(state.matrices, at(query, token, {heads, 1, key_dim})), -1));
  }
  const mx::array given = mx::stack(out);
  if (!skip_.has_value()) return given;
  return mx::add(given, mx::multiply(mx::reshape(*skip_, {heads, 1}), value));
}

MlxRecurrent::Gates MlxRecurrent::GatesOf(const mx::array& projected) const {
  const size_t heads = cut_.value_heads, begin = cut_.channels() + cut_.value_width();
  const bool is_delta = traits_.rule == RecurrenceRule::kGatedDelta;
  const mx::array a = Columns(projected, is_delta ? begin + heads : begin, heads);
  mx::array steps = mx::logaddexp(mx::add(a, step_bias_), mx::array(0.0F));
  if (!is_delta) steps = mx::clip(steps, mx::array(traits_.step_min), mx::array(traits_.step_max));
  const mx::array fades = mx::exp(mx::negative(mx::multiply(rates_, steps)));
  return {fades, is_delta ? mx::sigmoid(Columns(projected, begin, heads)) : steps};
}

// [rows, value heads, value_dim] -> [rows, all of them].
mx::array MlxRecurrent::NormedOut(const mx::array& given, const mx::array& z) const {
  const int rows = given.shape(0), width = static_cast<int>(cut_.value_width());
  if (traits_.rule == RecurrenceRule::kGatedDelta) {
    const mx::array normed = mx::fast::rms_norm(given, norm_, norm_eps_);
    return mx::multiply(mx::reshape(normed, {rows, width}), Silu(z));
  }
  const int keys = static_cast<int>(cut_.key_heads);
  const mx::array gated = mx::multiply(mx::reshape(given, {rows, width}), Silu(z));
  const mx::array normed =
      mx::fast::rms_norm(mx::reshape(gated, {rows, keys, width / keys}), std::nullopt, norm_eps_);
  return mx::multiply(mx::reshape(normed, {rows, width}), norm_);
}

mx::array MlxRecurrent::Apply(const mx::array& x, const ForwardStep& step,
                              std::span<MlxState* const> states) const {
  std::vector<mx::array> given;
  for (const Linear& map : maps_) given.push_back(map.Apply(x));
  mx::array all = mx::astype(mx::concatenate(given, 1), mx::float32);
  if (order_.has_value()) all = mx::take(all, *order_, 1);
  const Gates gates = GatesOf(all);
  std::vector<mx::array> mixed;
  int row = 0;
  for (size_t i = 0; i < step.segments.size(); ++i) {
    const int end = row + static_cast<int>(step.segments[i].tokens.size());
    const auto own = [&](const mx::array& whole, size_t width) {
      return mx::slice(whole, {row, 0}, {end, static_cast<int>(width)});
    };
    const size_t heads = cut_.value_heads;
    mixed.push_back(Run(own(all, cut_.channels()),
                        {own(gates.fades, heads), own(gates.shares, heads)}, *states[i]));
    row = end;
  }
  const mx::array together = mixed.size() == 1 ? mixed[0] : mx::concatenate(mixed, 0);
  const mx::array z = Columns(all, cut_.channels(), cut_.value_width());
  return mx::astype(NormedOut(together, z), x.dtype());
}

void MlxStates::Open(std::span<const SlotStates::Opened> opened,
                     std::span<const MlxRecurrent* const> layers) {
  for (const SlotStates::Opened& one : opened) {
    std::vector<MlxState>& state = states_[static_cast<size_t>(one.state)];
    state.clear();
    if (one.from != kNoSnapshot) {
      state = snapshots_[static_cast<size_t>(one.from)];
    } else {
      for (const MlxRecurrent* layer : layers) state.push_back(layer->ZeroState());
    }
  }
}

void MlxStates::Keep(std::span<const SlotStates::Kept> kept) {
  for (const SlotStates::Kept& one : kept) {
    snapshots_[static_cast<size_t>(one.to)] = states_[static_cast<size_t>(one.state)];
  }
}

void MlxStates::Append(std::vector<mx::array>& out) const {
  for (const std::vector<MlxState>& state : states_) {
    for (const MlxState& layer : state) out.insert(out.end(), {layer.inputs, layer.matrices});
  }
}

}  // namespace macrame::runtime::engine
