#include "runtime/model/mlx/row_chooser.h"

#include <algorithm>
#include <bit>
#include <vector>

#include "proto/check.h"
#include "runtime/kernels/token_weights.h"

namespace macrame::runtime::engine {
namespace {

namespace mx = mlx::core;
using kernels::DrawNumbers;
using kernels::kDistanceBits;
using kernels::kFarthest;

// Of a place; above them stands the distance.
constexpr int kTokenBits = 20;
static_assert(kernels::kVocabularyMax == size_t{1} << kTokenBits);
constexpr uint64_t kLastToken = kernels::kVocabularyMax - 1;
// No token's: it weighs nothing, and stands behind all others.
constexpr uint64_t kBehindAll = uint64_t{kFarthest} << kTokenBits | kLastToken;
// Tokens that are looked at together for the likeliest ones.
constexpr int kBlock = 64;

mx::array Number(uint64_t value) { return mx::array(value, mx::uint64); }

// As kernels::ShareOf.
mx::array ShareOf(const mx::array& total, const mx::array& share) {
  const mx::array upper = mx::right_shift(total, Number(32));
  const mx::array lower = mx::bitwise_and(total, Number(0xffffffff));
  return mx::add(mx::multiply(upper, share),
                 mx::right_shift(mx::multiply(lower, share), Number(32)));
}

mx::array LastColumn(const mx::array& x) {
  return mx::slice(x, {0, x.shape(1) - 1}, {x.shape(0), x.shape(1)});
}

mx::array FractionWeights() {
  std::vector<uint64_t> weights(size_t{1} << kDistanceBits);
  for (size_t i = 0; i < weights.size(); ++i) {
    weights[i] = kernels::WeightAt(static_cast<uint32_t>(i));
  }
  return mx::array(weights.begin(), {static_cast<int>(weights.size())}, mx::uint64);
}

// What a step's rows need, all of them together.
struct Need {
  bool draws = false;       // a row is not greedy
  bool cuts = false;        // top-k or top-p leaves tokens out
  bool cuts_all = true;     // in each row that is not greedy
  bool leaves_out = false;  // min-p does, or a greedy row leaves all but one
  uint32_t first = 0;       // as many of the likeliest tokens are enough; 0: all are needed
};

bool IsCut(const RowChoice& how, uint32_t vocabulary) {
  return (how.top_k > 0 && how.top_k < vocabulary) || how.top_p < 1.0;
}

Need NeedOf(std::span<const RowChoice> rows, uint32_t vocabulary) {
  Need need{.first = 1};
  for (const RowChoice& how : rows) {
    need.leaves_out = need.leaves_out || how.temperature <= 0.0 || how.min_p > 0.0;
    if (how.temperature <= 0.0) continue;
    need.draws = true;
    if (!IsCut(how, vocabulary)) {
      need.cuts_all = false;
      continue;
    }
    need.cuts = true;
    const bool is_few = how.top_k > 0 && how.top_k <= kFewTokens;
    need.first = is_few && need.first > 0 ? std::max(need.first, how.top_k) : 0;
  }
  if (need.first * kBlock >= vocabulary) need.first = 0;
  return need;
}

// Of all rows, each [rows, 1].
struct Parameters {
  mx::array scale;     // float32
  mx::array farthest;  // the last place that min-p leaves; a distance where places don't count
  mx::array draw, top_p, top_k;
  mx::array uncut;  // above any place where top-k and top-p leave all, else 0
};

Parameters ParametersOf(std::span<const RowChoice> rows, uint32_t vocabulary, bool with_places) {
  constexpr size_t kFields = 6;
  const size_t count = rows.size();
  std::vector<uint64_t> packed(kFields * count);
  for (size_t row = 0; row < count; ++row) {
    const RowChoice& how = rows[row];
    const DrawNumbers numbers =
        kernels::NumbersOf(how.temperature, how.top_p, how.min_p, how.seed, how.position);
    const bool is_cut = how.temperature <= 0.0 || IsCut(how, vocabulary);
    const uint64_t farthest = numbers.farthest;
    const uint64_t fields[kFields] = {
        std::bit_cast<uint32_t>(numbers.scale),
        with_places ? farthest << kTokenBits | kLastToken : farthest,
        numbers.draw,
        numbers.top_p,
        how.temperature <= 0.0 ? 0 : std::min(how.top_k - 1, vocabulary - 1),  // 0: all
        is_cut ? 0 : kBehindAll};
    for (size_t i = 0; i < kFields; ++i) packed[i * count + row] = fields[i];
  }
  const int height = static_cast<int>(count);
  const mx::array all(packed.begin(), {static_cast<int>(kFields), height, 1}, mx::uint64);
  const auto field = [&](int i) {
    return mx::reshape(mx::slice(all, {i, 0, 0}, {i + 1, height, 1}), {height, 1});
  };
  static_assert(std::endian::native == std::endian::little);
  return {mx::slice(mx::view(field(0), mx::float32), {0, 0}, {height, 1}),
          field(1),
          field(2),
          field(3),
          field(4),
          field(5)};
}

// The `count` first places, in order, and more behind them: each of the first stands in a block
// whose first is among the `count` first of all blocks.
mx::array FirstPlaces(const mx::array& all, int count) {
  const int rows = all.shape(0), blocks = (all.shape(1) + kBlock - 1) / kBlock;
  const int lacking = blocks * kBlock - all.shape(1);
  const mx::array whole =
      lacking == 0 ? all : mx::pad(all, {{0, 0}, {0, lacking}}, Number(kBehindAll));
  const mx::array places = mx::reshape(whole, {rows, blocks, kBlock});
  const mx::array order = mx::argpartition(mx::min(places, -1), count - 1, -1);
  const mx::array chosen = mx::reshape(mx::slice(order, {0, 0}, {rows, count}), {rows, count, 1});
  const mx::array found = mx::take_along_axis(places, chosen, 1);
  return mx::sort(mx::reshape(found, {rows, count * kBlock}), -1);
}

}  // namespace

RowChooser::RowChooser() : fractions_(FractionWeights()) {}

mx::array RowChooser::Choose(const mx::array& logits, std::span<const RowChoice> how) {
  MACRAME_CHECK(logits.ndim() == 2 && logits.dtype() == mx::float32) << "no rows of logits";
  MACRAME_CHECK(static_cast<size_t>(logits.shape(0)) == how.size()) << "a choice for each row";
  MACRAME_CHECK(static_cast<size_t>(logits.shape(1)) <= kernels::kVocabularyMax)
      << logits.shape(1) << " tokens";
  const bool is_greedy = std::all_of(how.begin(), how.end(),
                                     [](const RowChoice& row) { return row.temperature <= 0; });
  const mx::array highest = mx::max(logits, -1, /*keepdims=*/true);
  const mx::array tokens = is_greedy
                               ? mx::astype(mx::argmax(logits, -1, /*keepdims=*/true), mx::int32)
                               : Draw(logits, highest, how);
  // What is not finite differs from itself when it is taken from itself.
  const mx::array zero = mx::subtract(highest, highest);
  return mx::squeeze(mx::where(mx::not_equal(zero, zero), mx::array(kNoToken, mx::int32), tokens),
                     -1);
}

mx::array RowChooser::Draw(const mx::array& logits, const mx::array& highest,
                           std::span<const RowChoice> how) {
  const auto vocabulary = static_cast<uint32_t>(logits.shape(1));
  const Need need = NeedOf(how, vocabulary);
  const Parameters parameters = ParametersOf(how, vocabulary, need.cuts);
  const mx::array below = mx::multiply(mx::subtract(highest, logits), parameters.scale);
  const mx::array farthest(static_cast<float>(kFarthest), mx::float32);
  const mx::array distances = mx::astype(mx::minimum(below, farthest), mx::uint64);
  mx::array weights = WeightsOf(distances);
  if (need.cuts) {
    const mx::array places = PlacesOf(distances);
    const mx::array in_order =
        need.first > 0 ? FirstPlaces(places, static_cast<int>(need.first)) : mx::sort(places, -1);
    mx::array last = LastOf(in_order, parameters.top_k, parameters.top_p);
    if (!need.cuts_all) last = mx::maximum(last, parameters.uncut);
    last = mx::minimum(last, parameters.farthest);
    weights = mx::where(mx::less_equal(places, last), weights, Number(0));
  } else if (need.leaves_out) {
    weights = mx::where(mx::less_equal(distances, parameters.farthest), weights, Number(0));
  }
  const mx::array sums = mx::cumsum(weights, -1);
  const mx::array target = ShareOf(LastColumn(sums), parameters.draw);
  return mx::sum(mx::less_equal(sums, target), -1, /*keepdims=*/true);
}

mx::array RowChooser::WeightsOf(const mx::array& distances) const {
  const mx::array fraction = mx::bitwise_and(distances, Number((uint64_t{1} << kDistanceBits) - 1));
  return mx::right_shift(mx::take(fractions_, fraction),
                         mx::right_shift(distances, Number(kDistanceBits)));
}

mx::array RowChooser::PlacesOf(const mx::array& distances) {
  const int vocabulary = distances.shape(1);
  if (!ids_.has_value() || ids_->size() != static_cast<size_t>(vocabulary)) {
    ids_ = mx::arange(0, vocabulary, 1, mx::uint64);
  }
  return mx::add(mx::left_shift(distances, Number(kTokenBits)), *ids_);
}

mx::array RowChooser::LastOf(const mx::array& places, const mx::array& top_k,
                             const mx::array& top_p) const {
  const mx::array sums = mx::cumsum(WeightsOf(mx::right_shift(places, Number(kTokenBits))), -1);
  const mx::array index = mx::minimum(top_k, Number(static_cast<uint64_t>(places.shape(1)) - 1));
  const mx::array wanted = ShareOf(mx::take_along_axis(sums, index, -1), top_p);
  const mx::array kept = mx::sum(mx::less(sums, wanted), -1, /*keepdims=*/true);
  return mx::take_along_axis(places, kept, -1);
}

}  // namespace macrame::runtime::engine
