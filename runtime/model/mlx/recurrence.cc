#include "runtime/model/mlx/recurrence.h"

#include <algorithm>
#include <functional>
#include <string_view>
#include <vector>

#include "mlx/primitives.h"

namespace macrame::runtime::engine {

namespace mx = mlx::core;

namespace {

using Arrays = Fused::Arrays;

// exp of a difference that counts only where it is not above 0.
mx::array ExpDown(const mx::array& from, const mx::array& to) {
  return mx::exp(mx::minimum(mx::subtract(from, to), mx::array(0.0F)));
}

// state, log fade, share, value, key, and what the state holds for the key -> the state behind a
// token of the delta rule.
Arrays DeltaStep(const Arrays& in) {
  const mx::array fade = mx::exp(in[1]);
  const mx::array learnt = mx::multiply(in[2], mx::subtract(in[3], mx::multiply(fade, in[5])));
  return {mx::add(mx::multiply(in[0], fade), mx::multiply(learnt, in[4]))};
}

Arrays SpaceStep(const Arrays& in) {
  const mx::array learnt = mx::multiply(mx::multiply(in[2], in[3]), in[4]);
  return {mx::add(mx::multiply(in[0], mx::exp(in[1])), learnt)};
}

// products, faded by row and by column, share, mask -> how much each token (a row) has of each
// token (a column) before it.
Arrays Weigh(const Arrays& in) {
  const mx::array masked = mx::multiply(mx::multiply(in[0], in[4]), in[3]);
  return {mx::multiply(masked, ExpDown(in[1], in[2]))};
}

// values, share, faded at the last token and at each.
Arrays LearnSpace(const Arrays& in) {
  return {mx::multiply(mx::multiply(in[0], in[1]), ExpDown(in[2], in[3]))};
}

// values, keys, share, faded -> values and faded keys, by what is learnt of them.
Arrays LearnDelta(const Arrays& in) {
  return {mx::multiply(in[0], in[2]), mx::multiply(mx::multiply(in[1], in[2]), mx::exp(in[3]))};
}

// anything, faded from and to.
Arrays Decay(const Arrays& in) { return {mx::multiply(in[0], ExpDown(in[1], in[2]))}; }

// what is faded, the logarithm of its fade, what is added.
Arrays Carry(const Arrays& in) { return {mx::add(mx::multiply(in[0], mx::exp(in[1])), in[2])}; }

mx::array Turned(const mx::array& x) { return mx::swapaxes(x, -1, -2); }

// Whether MLX computes the delta rule of these heads as one primitive on this device: it is asked
// for the graph of one token, which is not evaluated.
bool HasKernel(const RecurrentCut& cut, EngineDevice device) {
  if (device != EngineDevice::kGpu || cut.value_heads == 0) return false;
  const auto size = [](size_t value) { return static_cast<int>(value); };
  const mx::array keys = mx::zeros({1, 1, size(cut.key_heads), size(cut.key_dim)});
  const mx::array values = mx::zeros({1, 1, size(cut.value_heads), size(cut.value_dim)});
  const mx::array gates = mx::zeros({1, 1, size(cut.value_heads)});
  const mx::array given = mx::fast::gated_delta_update(keys, keys, values, gates, gates)[0];
  return given.has_primitive() && std::string_view(given.primitive().name()) == "GatedDeltaUpdate";
}

mx::array PaddedTo(const mx::array& x, int tokens) {
  if (x.shape(1) == tokens) return x;
  return mx::pad(x, std::vector<int>{1}, mx::Shape{0}, mx::Shape{tokens - x.shape(1)},
                 mx::array(0.0F));
}

mx::array BlockAt(const mx::array& x, int block) {
  mx::Shape from(x.ndim(), 0), to = x.shape();
  from[1] = block;
  to[1] = block + 1;
  return mx::squeeze(mx::slice(x, from, to), 1);
}

// [size, size], 1 where `is_one` says so of a row and a column, else 0.
mx::array MaskOf(int size, const std::function<bool(int, int)>& is_one) {
  std::vector<float> numbers;
  for (int i = 0; i < size * size; ++i) numbers.push_back(is_one(i / size, i % size) ? 1.0F : 0.0F);
  return mx::array(numbers.data(), {size, size});
}

// The first rows and columns.
mx::array Cut(const mx::array& mask, int size) {
  return mask.shape(0) == size ? mask : mx::slice(mask, {0, 0}, {size, size});
}

}  // namespace

MlxRecurrence::MlxRecurrence(RecurrenceRule rule, const RecurrentCut& cut, EngineDevice device)
    : is_delta_(rule == RecurrenceRule::kGatedDelta),
      key_heads_(static_cast<int>(cut.key_heads)),
      group_(cut.key_heads == 0 ? 0 : static_cast<int>(cut.value_heads / cut.key_heads)),
      key_dim_(static_cast<int>(cut.key_dim)),
      value_dim_(static_cast<int>(cut.value_dim)),
      has_kernel_(is_delta_ && HasKernel(cut, device)),
      step_(is_delta_ ? DeltaStep : SpaceStep, device),
      weigh_(Weigh, device),
      learn_(is_delta_ ? LearnDelta : LearnSpace, device),
      decay_(Decay, device),
      carry_(Carry, device) {
  if (has_kernel_) return;
  const auto add = [&](int size, const std::function<bool(int, int)>& is_one) {
    masks_.push_back(MaskOf(size, is_one));
  };
  add(kBlockLength + 1, [](int row, int column) { return column <= row; });
  if (!is_delta_) return;
  add(kBlockLength, [](int row, int column) { return column < row; });
  add(kBlockLength, [](int row, int column) { return column == row; });
  for (int size = 1; size < kBlockLength; size *= 2) {
    add(kBlockLength, [size](int row, int column) {
      return row / size % 2 == 1 && column / size == row / size - 1;
    });
  }
}

// [sequences, value heads, ...] by key head.
mx::array MlxRecurrence::Grouped(const mx::array& state) const {
  return mx::reshape(state, {state.shape(0), key_heads_, group_, value_dim_, key_dim_});
}

mx::array MlxRecurrence::UpToDiagonal(int size) const {
  return size <= kBlockLength + 1 ? Cut(masks_[kLower], size) : mx::tri(size, size, 0, mx::float32);
}

MlxRecurrence::Result MlxRecurrence::Run(const Tokens& tokens, const mx::array& state) const {
  if (has_kernel_) {
    const auto halves = mx::split(tokens.keyed, 2, 2);
    const auto both = mx::fast::gated_delta_update(halves[0], halves[1], tokens.values,
                                                   tokens.fades, tokens.shares, state);
    return {both[0], both[1]};
  }
  if (tokens.values.shape(1) == 1) return RunOne(tokens, state);
  const Blocks blocks = BlocksOf(tokens);
  const Result result = is_delta_ ? RunDelta(blocks, state) : RunSpace(blocks, state);
  // [sequences, blocks, key heads, group, length, value_dim] -> as values.
  const int sequences = tokens.values.shape(0), count = tokens.values.shape(1);
  const int heads = key_heads_ * group_;
  mx::array given = mx::reshape(mx::transpose(result.given, {0, 1, 4, 2, 3, 5}),
                                {sequences, -1, heads, value_dim_});
  if (given.shape(1) != count) {
    given = mx::slice(given, {0, 0, 0, 0}, {sequences, count, heads, value_dim_});
  }
  return {given, mx::reshape(result.state, state.shape())};
}

MlxRecurrence::Result MlxRecurrence::RunOne(const Tokens& tokens, const mx::array& state) const {
  const int n = state.shape(0), rows = group_ * value_dim_;
  const auto halves = mx::split(tokens.keyed, 2, 2);
  const auto column = [&](const mx::array& keyed) {
    return mx::reshape(keyed, {n, key_heads_, key_dim_, 1});
  };
  const auto answer = [&](const mx::array& matrices, const mx::array& to) {
    return mx::matmul(mx::reshape(matrices, {n, key_heads_, rows, key_dim_}), column(to));
  };
  const auto each = [&](const mx::array& x, int width) {
    return mx::reshape(x, {n, key_heads_, group_, width, 1});
  };
  std::vector<mx::array> in{Grouped(state), each(tokens.fades, 1), each(tokens.shares, 1),
                            each(tokens.values, value_dim_),
                            mx::reshape(halves[1], {n, key_heads_, 1, 1, key_dim_})};
  if (is_delta_) in.push_back(each(answer(state, halves[1]), value_dim_));
  const mx::array behind = step_(in)[0];
  return {mx::reshape(answer(behind, halves[0]), tokens.values.shape()),
          mx::reshape(behind, state.shape())};
}

MlxRecurrence::Blocks MlxRecurrence::BlocksOf(const Tokens& tokens) const {
  const int n = tokens.values.shape(0), count = tokens.values.shape(1);
  const int length = std::min(count, kBlockLength), blocks = (count + length - 1) / length;
  const int whole = blocks * length;  // what is added fades nothing and learns nothing
  const auto by_key =
      mx::split(mx::transpose(mx::reshape(PaddedTo(tokens.keyed, whole),
                                          {n, blocks, length, 2 * key_heads_, 1, key_dim_}),
                              {0, 1, 3, 4, 2, 5}),
                2, 2);
  const auto by_value = [&](const mx::array& x, int width) {
    return mx::transpose(
        mx::reshape(PaddedTo(x, whole), {n, blocks, length, key_heads_, group_, width}),
        {0, 1, 3, 4, 2, 5});
  };
  const mx::array faded = mx::cumsum(by_value(tokens.fades, 1), 4);
  const mx::array last =
      mx::slice(faded, {0, 0, 0, 0, length - 1, 0}, {n, blocks, key_heads_, group_, length, 1});
  return {
      length, by_key[0], by_key[1], by_value(tokens.values, value_dim_), by_value(tokens.shares, 1),
      faded,  last};
}

// Block b's state is the one before the run and what each block before b has learnt, all faded: a
// product with the fades from block to block.
MlxRecurrence::Result MlxRecurrence::RunSpace(const Blocks& blocks, const mx::array& state) const {
  const int n = state.shape(0), count = blocks.values.shape(1), width = value_dim_ * key_dim_;
  const mx::array weights =
      weigh_({mx::matmul(blocks.queries, Turned(blocks.keys)), blocks.faded, Turned(blocks.faded),
              Turned(blocks.shares), UpToDiagonal(blocks.length)})[0];
  const mx::array within = mx::matmul(weights, blocks.values);
  const mx::array learnt = mx::matmul(
      Turned(learn_({blocks.values, blocks.shares, blocks.last, blocks.faded})[0]), blocks.keys);
  const mx::array sources =
      mx::reshape(mx::concatenate({mx::expand_dims(Grouped(state), 1), learnt}, 1),
                  {n, count + 1, key_heads_, group_, width});
  // [sequences, key heads, group, blocks + 1, 1]
  const mx::array between =
      mx::cumsum(mx::pad(mx::transpose(mx::squeeze(blocks.last, -1), {0, 2, 3, 1, 4}),
                         std::vector<int>{3}, mx::Shape{1}, mx::Shape{0}),
                 3);
  const mx::array fades = decay_({UpToDiagonal(count + 1), between, Turned(between)})[0];
  const mx::array states = mx::matmul(fades, mx::transpose(sources, {0, 2, 3, 1, 4}));
  const mx::array before = mx::transpose(
      mx::reshape(mx::slice(states, {0, 0, 0, 0, 0}, {n, key_heads_, group_, count, width}),
                  {n, key_heads_, group_, count, value_dim_, key_dim_}),
      {0, 3, 1, 2, 5, 4});
  const mx::array after = mx::contiguous(
      mx::slice(states, {0, 0, 0, count, 0}, {n, key_heads_, group_, count + 1, width}));
  return {carry_({mx::matmul(blocks.queries, before), blocks.faded, within})[0], after};
}

// Two blocks of a lower triangular matrix, each with its inverse, make the inverse of both: what
// is below them goes between the two inverses. From single rows on, twice as many each time, which
// is stable whatever the keys.
mx::array MlxRecurrence::Inverse(const mx::array& a) const {
  const int length = a.shape(-1);
  mx::array inverse = Cut(masks_[kUnit], length);
  for (int size = 1, level = kLevels; size < length; size *= 2, ++level) {
    const mx::array below = mx::multiply(a, Cut(masks_[static_cast<size_t>(level)], length));
    inverse = size == 1 ? mx::subtract(inverse, below)
                        : mx::addmm(inverse, mx::matmul(inverse, below), inverse, -1.0F);
  }
  return inverse;
}

MlxRecurrence::Result MlxRecurrence::RunDelta(const Blocks& blocks, const mx::array& state) const {
  const int count = blocks.values.shape(1);
  const mx::array keys = Turned(blocks.keys), columns = Turned(blocks.faded);
  const mx::array inverse =
      Inverse(weigh_({mx::matmul(blocks.keys, keys), blocks.faded, columns, blocks.shares,
                      Cut(masks_[kStrictlyLower], blocks.length)})[0]);
  const std::vector<mx::array> learnt =
      learn_({blocks.values, blocks.keys, blocks.shares, blocks.faded});
  const mx::array fresh = mx::matmul(inverse, learnt[0]), known = mx::matmul(inverse, learnt[1]);
  const mx::array kept = decay_({blocks.keys, blocks.last, blocks.faded})[0];
  mx::array matrices = Grouped(state);
  std::vector<mx::array> before, added;
  for (int block = 0; block < count; ++block) {
    before.push_back(matrices);
    added.push_back(
        mx::addmm(BlockAt(fresh, block), BlockAt(known, block), Turned(matrices), -1.0F));
    const mx::array more = mx::matmul(Turned(added.back()), BlockAt(kept, block));
    matrices = carry_({matrices, BlockAt(blocks.last, block), more})[0];
  }
  const mx::array weights = weigh_({mx::matmul(blocks.queries, keys), blocks.faded, columns,
                                    mx::array(1.0F), UpToDiagonal(blocks.length)})[0];
  const mx::array within = mx::matmul(weights, mx::stack(added, 1));
  const mx::array from_before = mx::matmul(blocks.queries, Turned(mx::stack(before, 1)));
  return {carry_({from_before, blocks.faded, within})[0], matrices};
}

}  // namespace macrame::runtime::engine
