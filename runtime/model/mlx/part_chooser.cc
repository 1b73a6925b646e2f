#include "runtime/model/mlx/part_chooser.h"

#include <algorithm>
#include <limits>
#include <utility>

#include "proto/check.h"
#include "runtime/kernels/token_weights.h"

namespace macrame::runtime::engine {

namespace mx = mlx::core;

namespace {

// Of a part without tokens: no logit is lower. It still waits for what was exchanged before.
mx::array NoLogits(const mx::array& part) {
  const mx::array lowest =
      mx::full({part.shape(0), 1}, -std::numeric_limits<float>::infinity(), mx::float32);
  return mx::depends({lowest}, {part})[0];
}

}  // namespace

PartChooser::PartChooser(std::vector<Range> parts, int own, RankSums& sums)
    : parts_(std::move(parts)), own_(static_cast<size_t>(own)), sums_(sums) {
  MACRAME_CHECK(own_ < parts_.size()) << "part " << own << " of " << parts_.size();
}

mx::array PartChooser::OfAll(const mx::array& own) {
  const int ranks = static_cast<int>(parts_.size());
  const mx::array all = sums_.GatherOverRanks(own);
  return mx::swapaxes(mx::reshape(all, {ranks, own.shape(0), own.shape(1)}), 0, 1);
}

mx::array PartChooser::HighestOf(const mx::array& part) {
  const mx::array own = part.shape(1) > 0 ? mx::max(part, -1, /*keepdims=*/true) : NoLogits(part);
  return mx::max(OfAll(own), 1);
}

// Of several with the same logit the first, as argmax does. An id is exact as a float.
mx::array PartChooser::ChooseLikeliest(const mx::array& part) {
  static_assert(kernels::kVocabularyMax <= size_t{1} << 24);
  const bool is_empty = part.shape(1) == 0;
  const mx::array highest = is_empty ? NoLogits(part) : mx::max(part, -1, /*keepdims=*/true);
  const mx::array token =
      is_empty ? mx::zeros({part.shape(0), 1})
               : mx::add(mx::astype(mx::argmax(part, -1, /*keepdims=*/true), mx::float32),
                         mx::array(static_cast<float>(parts_[own_].begin)));
  const mx::array all = OfAll(mx::concatenate({highest, token}, 1));
  const auto column = [&](int i) {
    return mx::slice(all, {0, 0, i}, {all.shape(0), all.shape(1), i + 1});
  };
  const mx::array best = mx::argmax(column(0), 1, /*keepdims=*/true);
  return chooser_.WhereFinite(mx::max(mx::squeeze(column(0), 2), 1, /*keepdims=*/true),
                              mx::squeeze(mx::take_along_axis(column(1), best, 1), 2));
}

mx::array PartChooser::Choose(const mx::array& part, std::span<const RowChoice> how) {
  if (parts_.size() == 1) return chooser_.Choose(part, how);
  if (std::all_of(how.begin(), how.end(),
                  [](const RowChoice& row) { return row.temperature <= 0.0; })) {
    return ChooseLikeliest(part);
  }
  if (RowChooser::FirstThatDecide(how) == 0) return chooser_.Choose(Whole(part), how);
  const mx::array highest = HighestOf(part);
  const mx::array places = OfAll(chooser_.FirstOfPart(part, highest, how, parts_[own_].begin));
  return chooser_.ChooseAmong(mx::flatten(places, 1, 2), highest, how);
}

mx::array PartChooser::Whole(const mx::array& part) {
  if (parts_.size() == 1) return part;
  const int rows = part.shape(0);
  int widest = 0;
  for (const Range& range : parts_) widest = std::max(widest, range.size());
  const mx::array filled =
      part.shape(1) == widest
          ? part
          : mx::pad(part, std::vector<int>{1}, {0}, {widest - part.shape(1)}, mx::array(0.0F));
  const mx::array all = sums_.GatherOverRanks(filled);
  std::vector<mx::array> columns;
  for (size_t rank = 0; rank < parts_.size(); ++rank) {
    const int begin = static_cast<int>(rank) * rows;
    if (parts_[rank].size() == 0) continue;
    columns.push_back(mx::slice(all, {begin, 0}, {begin + rows, parts_[rank].size()}));
  }
  return mx::concatenate(columns, 1);
}

}  // namespace macrame::runtime::engine
