#include "runtime/model/mlx/row_chooser.h"

#include <algorithm>
#include <bit>
#include <vector>

#include "proto/check.h"
#include "runtime/kernels/token_weights.h"

namespace macrame::runtime::engine {

namespace mx = mlx::core;

// What a step's rows need, all of them together.
struct RowChooser::Need {
  bool cuts = false;         // top-k or top-p leaves tokens out
  bool cuts_all = true;      // in each row that is not greedy
  bool cuts_shares = false;  // top-p does
  bool leaves_out = false;   // min-p does, or a greedy row leaves all but one
  uint32_t first = 0;        // as many of the likeliest tokens are enough; 0: all are needed
};

// Of all rows, each [rows, 1].
struct RowChooser::Parameters {
  mx::array scale;     // float32
  mx::array farthest;  // the last place that min-p leaves; a distance where places don't count
  mx::array draw, top_p, top_k;
  mx::array uncut;  // above any place where top-k and top-p leave all, else 0
};

namespace {

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

bool IsCut(const RowChoice& how, uint32_t vocabulary) {
  return (how.top_k > 0 && how.top_k < vocabulary) || how.top_p < 1.0;
}

}  // namespace

RowChooser::Need RowChooser::NeedOf(std::span<const RowChoice> rows, uint32_t vocabulary) {
  Need need{.first = 1};
  for (const RowChoice& how : rows) {
    need.leaves_out = need.leaves_out || how.temperature <= 0.0 || how.min_p > 0.0;
    if (how.temperature <= 0.0) continue;
    if (!IsCut(how, vocabulary)) {
      need.cuts_all = false;
      continue;
    }
    need.cuts = true;
    need.cuts_shares = need.cuts_shares || how.top_p < 1.0;
    const bool is_few = how.top_k > 0 && how.top_k <= kFewTokens;
    need.first = is_few && need.first > 0 ? std::max(need.first, how.top_k) : 0;
  }
  return need;
}

RowChooser::Parameters RowChooser::ParametersOf(std::span<const RowChoice> rows,
                                                uint32_t vocabulary, uint32_t in_order,
                                                const Need& need) {
  constexpr size_t kFields = 6;
  const size_t count = rows.size();
  std::vector<uint64_t> packed(kFields * count);
  for (size_t row = 0; row < count; ++row) {
    const RowChoice& how = rows[row];
    const DrawNumbers numbers =
        kernels::NumbersOf(how.temperature, how.top_p, how.min_p, how.seed, how.position);
    const bool is_cut = how.temperature <= 0.0 || IsCut(how, vocabulary);
    const uint64_t farthest = numbers.farthest;
    const uint32_t kept = how.temperature <= 0.0 ? 1 : how.top_k > 0 ? how.top_k : in_order;
    const uint64_t fields[kFields] = {std::bit_cast<uint32_t>(numbers.scale),
                                      need.cuts ? farthest << kTokenBits | kLastToken : farthest,
                                      numbers.draw,
                                      numbers.top_p,
                                      std::min(kept, in_order) - 1,
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

RowChooser::Constants::Constants()
    : fractions(FractionWeights()),
      fraction_mask(Number((uint64_t{1} << kDistanceBits) - 1)),
      fraction_bits(Number(kDistanceBits)),
      token_bits(Number(kTokenBits)),
      half_bits(Number(32)),
      lower_half(Number(0xffffffff)),
      last_token(Number(kLastToken)),
      zero(Number(0)),
      behind_all(Number(kBehindAll)),
      farthest(static_cast<float>(kFarthest), mx::float32),
      no_token(kNoToken, mx::int32) {}

mx::array RowChooser::Choose(const mx::array& logits, std::span<const RowChoice> how) {
  MACRAME_CHECK(logits.ndim() == 2 && logits.dtype() == mx::float32) << "no rows of logits";
  MACRAME_CHECK(static_cast<size_t>(logits.shape(0)) == how.size()) << "a choice for each row";
  MACRAME_CHECK(static_cast<size_t>(logits.shape(1)) <= kernels::kVocabularyMax)
      << logits.shape(1) << " tokens";
  const bool is_greedy = std::all_of(how.begin(), how.end(),
                                     [](const RowChoice& row) { return row.temperature <= 0; });
  const mx::array highest = mx::max(logits, -1, /*keepdims=*/true);
  return WhereFinite(
      highest, is_greedy ? mx::argmax(logits, -1, /*keepdims=*/true) : Draw(logits, highest, how));
}

mx::array RowChooser::WhereFinite(const mx::array& highest, const mx::array& tokens) const {
  // What is not finite differs from itself when it is taken from itself.
  const mx::array zero = mx::subtract(highest, highest);
  return mx::squeeze(
      mx::where(mx::not_equal(zero, zero), constants_.no_token, mx::astype(tokens, mx::int32)), -1);
}

mx::array RowChooser::DistancesOf(const mx::array& logits, const mx::array& highest,
                                  const mx::array& scale) const {
  const mx::array below = mx::multiply(mx::subtract(highest, logits), scale);
  return mx::astype(mx::minimum(below, constants_.farthest), mx::uint64);
}

mx::array RowChooser::Draw(const mx::array& logits, const mx::array& highest,
                           std::span<const RowChoice> how) {
  const auto vocabulary = static_cast<uint32_t>(logits.shape(1));
  const Need need = NeedOf(how, vocabulary);
  const uint32_t first =
      need.cuts && need.first > 0 ? std::min(need.first, vocabulary) : vocabulary;
  const Parameters parameters = ParametersOf(how, vocabulary, first, need);
  const mx::array distances = DistancesOf(logits, highest, parameters.scale);
  if (!need.cuts) {
    const mx::array weights = WeightsOf(distances);
    return TokenAt(need.leaves_out ? mx::where(mx::less_equal(distances, parameters.farthest),
                                               weights, constants_.zero)
                                   : weights,
                   parameters.draw);
  }
  const mx::array places = PlacesOf(distances, 0);
  const mx::array in_order = FirstPlaces(places, static_cast<int>(first));
  const mx::array weights = WeightsOf(mx::right_shift(in_order, constants_.token_bits));
  const mx::array last = LastOf(in_order, weights, parameters, need);
  if (first < vocabulary && need.cuts_all) {
    return TokenAmong(in_order, mx::where(mx::less_equal(in_order, last), weights, constants_.zero),
                      parameters.draw);
  }
  return TokenAt(mx::where(mx::less_equal(places, last), WeightsOf(distances), constants_.zero),
                 parameters.draw);
}

uint32_t RowChooser::FirstThatDecide(std::span<const RowChoice> how) {
  uint32_t first = 1;
  for (const RowChoice& row : how) {
    if (row.temperature <= 0.0) continue;
    if (row.top_k == 0 || row.top_k > kFewTokens) return 0;
    first = std::max(first, row.top_k);
  }
  return first;
}

mx::array RowChooser::FirstOfPart(const mx::array& logits, const mx::array& highest,
                                  std::span<const RowChoice> how, int first_token) {
  const uint32_t first = FirstThatDecide(how);
  MACRAME_CHECK(first > 0) << "the first tokens of a part don't decide";
  const mx::Shape shape{logits.shape(0), static_cast<int>(first)};
  if (logits.shape(1) == 0) {
    return mx::depends({mx::full(shape, constants_.behind_all)}, {highest})[0];
  }
  const Parameters parameters = ParametersOf(how, kernels::kVocabularyMax, first, Need{});
  return FirstPlaces(PlacesOf(DistancesOf(logits, highest, parameters.scale), first_token),
                     static_cast<int>(first));
}

mx::array RowChooser::ChooseAmong(const mx::array& places, const mx::array& highest,
                                  std::span<const RowChoice> how) const {
  const Need need = NeedOf(how, kernels::kVocabularyMax);
  const Parameters parameters = ParametersOf(
      how, kernels::kVocabularyMax, static_cast<uint32_t>(places.shape(1)), Need{.cuts = true});
  const mx::array in_order = mx::sort(places, -1);
  const mx::array weights = WeightsOf(mx::right_shift(in_order, constants_.token_bits));
  const mx::array last = LastOf(in_order, weights, parameters, need);
  const mx::array kept = mx::where(mx::less_equal(in_order, last), weights, constants_.zero);
  return WhereFinite(highest, TokenAmong(in_order, kept, parameters.draw));
}

mx::array RowChooser::TokenAt(const mx::array& weights, const mx::array& draw) const {
  const mx::array sums = mx::cumsum(weights, -1);
  const mx::array target = ShareOf(LastColumn(sums), draw);
  return mx::sum(mx::less_equal(sums, target), -1, /*keepdims=*/true);
}

mx::array RowChooser::TokenAmong(const mx::array& places, const mx::array& weights,
                                 const mx::array& draw) const {
  const mx::array tokens = mx::bitwise_and(places, constants_.last_token);
  const mx::array by_id = mx::argsort(tokens, -1);
  const mx::array at = TokenAt(mx::take_along_axis(weights, by_id, -1), draw);
  return mx::take_along_axis(tokens, mx::take_along_axis(by_id, at, -1), -1);
}

mx::array RowChooser::WeightsOf(const mx::array& distances) const {
  const mx::array fraction = mx::bitwise_and(distances, constants_.fraction_mask);
  return mx::right_shift(mx::take(constants_.fractions, fraction),
                         mx::right_shift(distances, constants_.fraction_bits));
}

mx::array RowChooser::ShareOf(const mx::array& total, const mx::array& share) const {
  const mx::array upper = mx::right_shift(total, constants_.half_bits);
  const mx::array lower = mx::bitwise_and(total, constants_.lower_half);
  return mx::add(mx::multiply(upper, share),
                 mx::right_shift(mx::multiply(lower, share), constants_.half_bits));
}

mx::array RowChooser::PlacesOf(const mx::array& distances, int first_token) {
  const int end = first_token + distances.shape(1);
  if (!ids_.has_value() || ids_->shape(0) != distances.shape(1) || ids_end_ != end) {
    ids_ = mx::arange(first_token, end, 1, mx::uint64);
    ids_end_ = end;
  }
  return mx::add(mx::left_shift(distances, constants_.token_bits), *ids_);
}

mx::array RowChooser::FirstPlaces(const mx::array& all, int count) const {
  const int rows = all.shape(0), size = all.shape(1), blocks = (size + kBlock - 1) / kBlock;
  const auto padded = [&](const mx::array& places, int lacking) {
    return lacking == 0 ? places : mx::pad(places, {{0, 0}, {0, lacking}}, constants_.behind_all);
  };
  if (count >= blocks) {
    const mx::array in_order = mx::sort(all, -1);
    return size <= count ? padded(in_order, count - size)
                         : mx::slice(in_order, {0, 0}, {rows, count});
  }
  // Each of the first stands in a block whose first is among the `count` first of all blocks.
  const mx::array places = mx::reshape(padded(all, blocks * kBlock - size), {rows, blocks, kBlock});
  const mx::array order = mx::argpartition(mx::min(places, -1), count - 1, -1);
  const mx::array chosen = mx::reshape(mx::slice(order, {0, 0}, {rows, count}), {rows, count, 1});
  const mx::array found = mx::take_along_axis(places, chosen, 1);
  return mx::slice(mx::sort(mx::reshape(found, {rows, count * kBlock}), -1), {0, 0}, {rows, count});
}

mx::array RowChooser::LastOf(const mx::array& places, const mx::array& weights,
                             const Parameters& parameters, const Need& need) const {
  mx::array index = parameters.top_k;
  if (need.cuts_shares) {
    const mx::array sums = mx::cumsum(weights, -1);
    const mx::array wanted = ShareOf(mx::take_along_axis(sums, index, -1), parameters.top_p);
    index = mx::sum(mx::less(sums, wanted), -1, /*keepdims=*/true);
  }
  mx::array last = mx::take_along_axis(places, index, -1);
  if (!need.cuts_all) last = mx::maximum(last, parameters.uncut);
  return need.leaves_out ? mx::minimum(last, parameters.farthest) : last;
}

}  // namespace macrame::runtime::engine
