#include "runtime/model/mlx/step_rows.h"

#include <algorithm>

#include "proto/check.h"

namespace macrame::runtime::engine {

namespace mx = mlx::core;

namespace {

constexpr int kTokens = int{kBlockTokens};

// Whether positions [0, end) follow one another.
bool IsOneRun(std::span<const int32_t> table, int end) {
  const int blocks = BlocksFor(end);
  for (int i = 1; i < blocks; ++i) {
    if (table[static_cast<size_t>(i)] != table[0] + i) return false;
  }
  return true;
}

mx::array Numbers(const std::vector<int32_t>& numbers) {
  return mx::array(numbers.data(), {static_cast<int>(numbers.size())}, mx::int32);
}

}  // namespace

StepRows::StepRows(const ForwardStep& step, const SlotTables& tables) : offsets_(mx::array(0)) {
  std::vector<int32_t> offsets, places;
  for (const Segment& segment : step.segments) {
    Sequence sequence{sequences_.size(), segment.slot, rows_, static_cast<int>(segment.begin),
                      static_cast<int>(segment.tokens.size())};
    const std::span<const int32_t> table = sequence.table = tables.Table(segment.slot);
    const int end = sequence.end();
    MACRAME_CHECK(static_cast<size_t>(BlocksFor(end)) <= table.size())
        << end << " positions in " << table.size() << " blocks";
    for (int position = sequence.begin; position < end; ++position) {
      offsets.push_back(position);
      places.push_back(PlaceOf(sequence, position));
    }
    if (IsOneRun(table, end)) {
      sequence.first = table[0] * kTokens;
    } else {
      std::vector<int32_t> each;
      for (int position = 0; position < end; ++position) {
        each.push_back(PlaceOf(sequence, position));
      }
      sequence.each = Numbers(each);
    }
    rows_ += sequence.count;
    sequences_.push_back(std::move(sequence));
  }
  const bool is_alone = sequences_.size() == 1;
  if (is_alone) offsets.resize(1);
  offsets_ = Numbers(offsets);
  if (is_alone && sequences_[0].first.has_value()) {
    written_.first = places[0];
  } else {
    written_.each = Numbers(places);
  }
}

mx::array StepRows::Laid(const mx::array& x, int heads, int dim) const {
  if (sequences_.size() > 1) return mx::reshape(x, {rows_, heads, 1, dim});
  return mx::swapaxes(mx::reshape(x, {1, rows_, heads, dim}), 1, 2);
}

mx::array StepRows::Flat(const mx::array& laid) const {
  const int width = laid.shape(1) * laid.shape(3);
  if (sequences_.size() > 1) return mx::reshape(laid, {rows_, width});
  return mx::reshape(mx::swapaxes(laid, 1, 2), {rows_, width});
}

std::vector<mx::array> StepRows::Each(const mx::array& laid) const {
  if (sequences_.size() == 1) return {laid};
  mx::Shape begins;  // of all but the first
  for (size_t i = 1; i < sequences_.size(); ++i) begins.push_back(sequences_[i].row);
  std::vector<mx::array> each = mx::split(laid, begins, 0);
  for (const Sequence& sequence : sequences_) {
    mx::array& own = each[sequence.number];
    if (sequence.count > 1) own = mx::swapaxes(own, 0, 2);
  }
  return each;
}

mx::array StepRows::Together(const std::vector<mx::array>& given) const {
  if (given.size() == 1) return given[0];
  std::vector<mx::array> rows;
  for (const Sequence& sequence : sequences_) {
    const mx::array& own = given[sequence.number];
    rows.push_back(sequence.count == 1 ? own : mx::swapaxes(own, 0, 2));
  }
  return mx::concatenate(rows, 0);
}

int StepRows::PlaceOf(const Sequence& sequence, int position) {
  return sequence.table[static_cast<size_t>(position / kTokens)] * kTokens + position % kTokens;
}

mx::array StepRows::LastOfGroups(const KvRowsKept& pool, const Sequence& sequence, int size) const {
  return pool.Each([&](const mx::array& part) { return LastOf(part, sequence, size); }).Whole();
}

mx::array StepRows::LastOfSome(const KvRowsKept& pool, const Sequence& sequence, int size,
                               const mx::array& groups) const {
  const mx::array last = mx::add(mx::multiply(groups, mx::array(size, mx::int32)),
                                 mx::array(size - 1 + sequence.first.value_or(0), mx::int32));
  const mx::array places = sequence.each.has_value() ? mx::take(*sequence.each, last) : last;
  return pool.Each([&](const mx::array& part) { return mx::take(part, places, 2); }).Whole();
}

mx::array StepRows::LastOf(const mx::array& pool, const Sequence& sequence, int size) const {
  const int end = sequence.end() / size * size;
  if (sequence.each.has_value()) {
    return mx::take(pool, mx::slice(*sequence.each, {std::min(size - 1, end)}, {end}, {size}), 2);
  }
  const int first = *sequence.first;
  return mx::slice(pool, {0, 0, first + std::min(size - 1, end), 0},
                   {1, pool.shape(1), first + end, pool.shape(3)}, {1, 1, size, 1});
}

KvRowsKept StepRows::SeenAsKept(const KvRowsKept& pool, const Sequence& sequence, int from) const {
  return pool.Each([&](const mx::array& part) { return SeenOf(part, sequence, from); });
}

mx::array StepRows::SeenOf(const mx::array& pool, const Sequence& sequence, int from) const {
  if (sequence.each.has_value()) {
    return mx::take(pool, mx::slice(*sequence.each, {from}, {sequence.end()}), 2);
  }
  return mx::slice(pool, {0, 0, *sequence.first + from, 0},
                   {1, pool.shape(1), *sequence.first + sequence.end(), pool.shape(3)});
}

StepRows::Sight StepRows::SightOf(const Sequence& sequence, int window) const {
  const bool is_row = sequence.count == 1;
  if (window == 0 || sequence.end() <= window) return {0, is_row ? "" : "causal"};
  const int from = std::max(0, sequence.begin + 1 - window);
  if (is_row) return {from};
  return {from, "", WindowMask(sequence.count, sequence.begin - from, window)};
}

const mx::array& StepRows::WindowMask(int count, int before, int window) const {
  const auto found = masks_.find({count, before, window});
  if (found != masks_.end()) return found->second;
  const mx::array row = mx::expand_dims(mx::arange(before, before + count), 1);
  const mx::array key = mx::arange(0, before + count);
  const mx::array mask = mx::logical_and(mx::less_equal(key, row),
                                         mx::greater(key, mx::subtract(row, mx::array(window))));
  return masks_.emplace(std::vector<int>{count, before, window}, mask).first->second;
}

}  // namespace macrame::runtime::engine
