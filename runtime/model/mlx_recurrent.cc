#include "runtime/model/mlx_recurrent.h"

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

mx::array OfHeads(const mx::array& all, const RecurrentCut& cut) {
  const int group = cut.key_heads == 0 ? 0 : static_cast<int>(cut.value_heads / cut.key_heads);
  return mx::slice(all, {cut.heads.begin * group}, {cut.heads.end * group});
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
      norm_eps_(config.rms_norm_eps),
      taps_(mx::array(0.0F)),
      rates_(mx::array(0.0F)),
      step_bias_(mx::array(0.0F)),
      norm_(mx::array(0.0F)) {
  for (const MatrixNeed& need : needs.in) maps_.push_back(loader.LoadMatrix(need));
  if (config.recurrent.by_key_head) order_ = IndexOf(ProjectedOrder(config, cut_));
  taps_ = TapsOf(*loader.LoadVector(needs.taps), config, cut_);
  rates_ = mx::exp(OfHeads(*loader.LoadVector(needs.decay), cut_));
  step_bias_ = OfHeads(*loader.LoadVector(needs.step_bias), cut_);
  norm_ = *loader.LoadVector(needs.norm);
}

MlxState MlxRecurrent::ZeroState() const {
  const auto size = [](size_t value) { return static_cast<int>(value); };
  return {mx::zeros({size(cut_.taps) - 1, size(cut_.channels())}),
          mx::zeros({size(cut_.value_heads), size(cut_.value_dim), size(cut_.key_dim)})};
}

mx::array MlxRecurrent::Run(const mx::array& channels, const mx::array& fades,
                            const mx::array& shares, MlxState& state) const {
  const int tokens = channels.shape(0), taps = static_cast<int>(cut_.taps);
  const int all = static_cast<int>(cut_.channels());
  const int heads = static_cast<int>(cut_.value_heads), keys = static_cast<int>(cut_.key_heads);
  const int key_dim = static_cast<int>(cut_.key_dim), value_dim = static_cast<int>(cut_.value_dim);
  const mx::array inputs = mx::concatenate({state.inputs, channels}, 0);
  state.inputs = mx::contiguous(mx::slice(inputs, {tokens, 0}, {tokens + taps - 1, all}));
  mx::array sum = mx::zeros({tokens, all});
  for (int tap = 0; tap < taps; ++tap) {
    const mx::array weight = mx::slice(taps_, {tap, 0}, {tap + 1, all});
    sum = mx::add(sum, mx::multiply(weight, mx::slice(inputs, {tap, 0}, {tap + tokens, all})));
  }
  const mx::array convolved = Silu(sum);
  const auto keyed = [&](size_t begin, float scale) {
    const mx::array part =
        mx::reshape(Columns(convolved, begin, cut_.key_width()), {tokens, keys, key_dim});
    const mx::array normed =
        mx::fast::rms_norm(part, std::nullopt, 1e-6F / static_cast<float>(key_dim));
    return mx::repeat(mx::multiply(normed, mx::array(scale)), heads / keys, 1);
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
    const mx::array faded = mx::multiply(state.matrices, at(fades, token, {heads, 1, 1}));
    const mx::array known = mx::sum(mx::multiply(faded, k), -1, /*keepdims=*/true);
    const mx::array part =
        mx::multiply(mx::subtract(at(value, token, {heads, value_dim, 1}), known),
                     at(shares, token, {heads, 1, 1}));
    state.matrices = mx::add(faded, mx::multiply(part, k));
    out.push_back(mx::sum(mx::multiply(state.matrices, at(query, token, {heads, 1, key_dim})), -1));
  }
  return mx::stack(out);
}

mx::array MlxRecurrent::Apply(const mx::array& x, const ForwardStep& step,
                              std::span<MlxState* const> states) const {
  const int rows = x.shape(0);
  std::vector<mx::array> given;
  for (const Matrix& map : maps_) given.push_back(map.Apply(x));
  mx::array all = mx::astype(mx::concatenate(given, 1), mx::float32);
  if (order_.has_value()) all = mx::take(all, *order_, 1);
  const size_t channels = cut_.channels(), heads = cut_.value_heads;
  const mx::array z = Columns(all, channels, cut_.value_width());
  const mx::array b = Columns(all, channels + cut_.value_width(), heads);
  const mx::array a = Columns(all, channels + cut_.value_width() + heads, heads);
  const mx::array pace =
      mx::multiply(rates_, mx::logaddexp(mx::add(a, step_bias_), mx::array(0.0F)));
  const mx::array fades = mx::exp(mx::negative(pace)), shares = mx::sigmoid(b);
  std::vector<mx::array> mixed;
  int row = 0;
  for (size_t i = 0; i < step.segments.size(); ++i) {
    const int end = row + static_cast<int>(step.segments[i].tokens.size());
    const auto own = [&](const mx::array& whole, size_t width) {
      return mx::slice(whole, {row, 0}, {end, static_cast<int>(width)});
    };
    mixed.push_back(Run(own(all, channels), own(fades, heads), own(shares, heads), *states[i]));
    row = end;
  }
  const mx::array together = mixed.size() == 1 ? mixed[0] : mx::concatenate(mixed, 0);
  const mx::array normed = mx::fast::rms_norm(together, norm_, norm_eps_);
  const mx::array gated =
      mx::multiply(mx::reshape(normed, {rows, static_cast<int>(cut_.value_width())}), Silu(z));
  return mx::astype(gated, x.dtype());
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
