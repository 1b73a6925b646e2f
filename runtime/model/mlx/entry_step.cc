#include "runtime/model/mlx/entry_step.h"

#include <algorithm>
#include <limits>

#include "proto/check.h"

namespace macrame::runtime::engine {

namespace mx = mlx::core;

namespace {

mx::array Numbers(const std::vector<int32_t>& numbers) {
  return mx::array(numbers.data(), {static_cast<int>(numbers.size())}, mx::int32);
}

mx::array Columns(const mx::array& x, int begin, int end) {
  return mx::slice(x, {0, begin}, {x.shape(0), end});
}

// Lists as they are handed on: `width` columns.
mx::array Widened(const mx::array& lists, int width) {
  const int columns = lists.shape(-1);
  const mx::array all = columns < width
                            ? mx::pad(lists, std::vector<int>{1}, mx::Shape{0},
                                      mx::Shape{width - columns}, mx::array(-1, mx::int32))
                            : Columns(lists, 0, width);
  return mx::astype(all, mx::float32);
}

// The first `seen` [rows, 1] numbers of each row.
mx::array FirstLists(const mx::array& seen, int width) {
  const mx::array numbers = mx::expand_dims(mx::arange(0, width), 0);
  return mx::astype(mx::where(mx::less(numbers, seen), numbers, mx::array(-1, mx::int32)),
                    mx::float32);
}

}  // namespace

EntryStep::EntryStep(const ModelConfig& config, const EntryPlaces& places, const StepRows& rows,
                     KvPools& pools, int first_entry, mx::Dtype type)
    : chosen(rows.sequences().size()),
      candidates(rows.sequences().size()),
      config_(config),
      places_(places),
      rows_(rows),
      pools_(pools),
      first_entry_(first_entry),
      type_(type) {}

mx::array EntryStep::Ascending(const mx::array& numbers, const mx::array& held) {
  const mx::array behind(std::numeric_limits<int32_t>::max(), mx::int32);
  const mx::array sorted = mx::sort(mx::where(held, numbers, behind), -1);
  return mx::where(mx::equal(sorted, behind), mx::array(-1, mx::int32), sorted);
}

mx::array EntryStep::SeenBy(int begin, int end, int ratio) {
  return mx::expand_dims(
      mx::floor_divide(mx::arange(begin + 1, end + 1), mx::array(ratio, mx::int32)), 1);
}

const EndedGroups& EntryStep::Ended(int ratio) {
  const auto found = ended_.find(ratio);
  if (found != ended_.end()) return found->second;
  EndedGroups ended;
  std::vector<int32_t> offsets, places, rows;
  for (const StepRows::Sequence& sequence : rows_.sequences()) {
    const int first = sequence.begin / ratio, last = sequence.end() / ratio;
    ended.first.push_back(first);
    ended.count.push_back(last - first);
    for (int group = first; group < last; ++group) {
      const int position = (group + 1) * ratio - 1;
      offsets.push_back(group * ratio);
      places.push_back(StepRows::PlaceOf(sequence, position));
      rows.push_back(sequence.row + position - sequence.begin);
    }
  }
  ended.all = static_cast<int>(rows.size());
  std::vector<int32_t> of_row(static_cast<size_t>(rows_.rows()), ended.all);
  for (int i = 0; i < ended.all; ++i) {
    of_row[static_cast<size_t>(rows[static_cast<size_t>(i)])] = i;
  }
  ended.of_row = Numbers(of_row);
  if (ended.all > 0) {
    ended.offsets = Numbers(offsets);
    ended.places = Numbers(places);
    ended.rows = Numbers(rows);
  }
  return ended_.emplace(ratio, std::move(ended)).first->second;
}

int EntryStep::WindowFrom(const StepRows::Sequence& sequence) const {
  return std::max(0, sequence.begin + 1 - config_.compress.window);
}

const mx::array& EntryStep::MaskOf(const StepRows::Sequence& sequence, bool has_entries) {
  const int ratio = has_entries ? ratio_ : 0;
  const auto found = masks_.find({sequence.number, ratio});
  if (found != masks_.end()) return found->second;
  const int begin = sequence.begin, end = sequence.end();
  const mx::array row = mx::expand_dims(mx::arange(begin, end), 1);
  const mx::array key = mx::expand_dims(mx::arange(WindowFrom(sequence), end), 0);
  mx::array mask =
      mx::logical_and(mx::less_equal(key, row),
                      mx::greater(key, mx::subtract(row, mx::array(config_.compress.window))));
  if (const int entries = ratio == 0 ? 0 : end / ratio; entries > 0) {
    const mx::array entry = mx::expand_dims(mx::arange(0, entries), 0);
    mask = mx::concatenate({mask, mx::less(entry, SeenBy(begin, end, ratio))}, -1);
  }
  return masks_.emplace(std::pair(sequence.number, ratio), std::move(mask)).first->second;
}

void EntryStep::Write(int place, int ratio, const mx::array& entries, const mx::array& keys) {
  const EndedGroups& ended = Ended(ratio);
  const KvRows where{std::nullopt, ended.places};
  ratio_ = ratio;
  entries_ = pools_.Write(first_entry_ + place, KvSide::kKeys, entries, where);
  keys_ = pools_.Write(first_entry_ + place, KvSide::kValues, keys, where);
  const int width = config_.head_dim + config_.compress.index_dim;
  const mx::array both = mx::reshape(mx::concatenate({entries, keys}, -1), {ended.all, width});
  made_ =
      mx::take(mx::concatenate({both, mx::zeros({1, width}, both.dtype())}, 0), *ended.of_row, 0);
}

void EntryStep::WriteNone(int place, int ratio) {
  const int dim = config_.head_dim, index_dim = config_.compress.index_dim;
  ratio_ = ratio;
  entries_ = pools_.Unwritten(first_entry_ + place, KvSide::kKeys, 1, dim, type_);
  keys_ = pools_.Unwritten(first_entry_ + place, KvSide::kValues, 1, index_dim, type_);
  made_ = mx::zeros({rows_.rows(), dim + index_dim}, type_);
}

void EntryStep::Take(const mx::array& carried, const CarriedRow& layout) {
  const int dim = config_.head_dim, index_dim = config_.compress.index_dim;
  if (places_.first_is_handed) {
    const int ratio = places_.handed_ratio;
    const EndedGroups& ended = Ended(ratio);
    if (ended.all == 0) {
      WriteNone(0, ratio);
    } else {
      const mx::array own = mx::astype(
          mx::take(Columns(carried, layout.entry.begin, layout.entry.begin + layout.entry.size),
                   *ended.rows, 0),
          type_);
      const auto part = [&](int begin, int width) {
        return mx::reshape(Columns(own, begin, begin + width), {ended.all, 1, 1, width});
      };
      Write(0, ratio, part(0, dim), part(dim, index_dim));
    }
  } else {
    passed_ = carried;
    passed_layout_ = layout;
    return;
  }
  const CompressTraits& traits = config_.compress;
  for (const StepRows::Sequence& sequence : rows_.sequences()) {
    const auto own = [&](const CarriedRow::Part& part) {
      return mx::astype(mx::slice(carried, {sequence.row, part.begin},
                                  {sequence.row + sequence.count, part.begin + part.size}),
                        mx::int32);
    };
    const int entries = ratio_ == 0 ? 0 : sequence.end() / ratio_;
    if (layout.chosen.size > 0 && entries > traits.index_top) {
      chosen[sequence.number] = mx::minimum(own(layout.chosen), mx::array(entries - 1, mx::int32));
    }
    if (layout.candidates.size == 0) continue;
    const int blocks = (entries + traits.candidate_block - 1) / traits.candidate_block;
    if (blocks <= traits.candidate_blocks) continue;
    const mx::array lists = own(layout.candidates), behind(blocks, mx::int32);
    const mx::array at =
        mx::minimum(mx::where(mx::less(lists, mx::array(0, mx::int32)), behind, lists), behind);
    candidates[sequence.number] =
        Columns(mx::put_along_axis(mx::zeros({sequence.count, blocks + 1}, mx::bool_), at,
                                   mx::array(true), -1),
                0, blocks);
  }
}

mx::array EntryStep::ChosenLists(int width) const {
  std::vector<mx::array> lists;
  for (const StepRows::Sequence& sequence : rows_.sequences()) {
    const auto& own = chosen[sequence.number];
    lists.push_back(own.has_value()
                        ? Widened(*own, width)
                        : FirstLists(SeenBy(sequence.begin, sequence.end(), ratio_), width));
  }
  return mx::concatenate(lists, 0);
}

mx::array EntryStep::CandidateLists(int width) const {
  const int block = config_.compress.candidate_block;
  std::vector<mx::array> lists;
  for (const StepRows::Sequence& sequence : rows_.sequences()) {
    const auto& own = candidates[sequence.number];
    if (own.has_value()) {
      const mx::array numbers =
          mx::broadcast_to(mx::expand_dims(mx::arange(0, own->shape(1)), 0), own->shape());
      lists.push_back(Widened(Ascending(numbers, *own), width));
      continue;
    }
    const mx::array seen = SeenBy(sequence.begin, sequence.end(), ratio_);
    const mx::array blocks = mx::floor_divide(mx::add(seen, mx::array(block - 1, mx::int32)),
                                              mx::array(block, mx::int32));
    lists.push_back(FirstLists(blocks, width));
  }
  return mx::concatenate(lists, 0);
}

void EntryStep::Put(const CarriedRow& layout, std::vector<mx::array>& parts) {
  if (!made_.has_value()) {  // no layer here looked at any
    const CarriedRow& from = passed_layout_;
    for (const auto& [part, asked] :
         {std::pair(from.entry, layout.entry), std::pair(from.chosen, layout.chosen),
          std::pair(from.candidates, layout.candidates)}) {
      if (asked.size == 0) continue;
      MACRAME_CHECK(part.size == asked.size) << "what is handed on did not come";
      parts.push_back(
          mx::astype(Columns(*passed_, part.begin, part.begin + part.size), mx::float32));
    }
    return;
  }
  if (layout.entry.size > 0) parts.push_back(mx::astype(*made_, mx::float32));
  if (layout.chosen.size > 0) parts.push_back(ChosenLists(layout.chosen.size));
  if (layout.candidates.size > 0) parts.push_back(CandidateLists(layout.candidates.size));
}

}  // namespace macrame::runtime::engine
