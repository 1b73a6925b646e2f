#include "runtime/model/mlx/compressed_attention.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include "runtime/model/cuts/tensor_cut.h"

namespace macrame::runtime::engine {

namespace mx = mlx::core;

namespace {

mx::array RowRange(const mx::array& x, int begin, int end) {
  return mx::slice(x, {begin, 0}, {end, x.shape(1)});
}

mx::array Column(const mx::array& x) { return mx::expand_dims(x, 1); }
mx::array Line(const mx::array& x) { return mx::expand_dims(x, 0); }

}  // namespace

MlxCompressedAttention::MlxCompressedAttention(const ModelConfig& config, const ShardPlace& place,
                                               int layer, const CompressedNeeds& needs,
                                               const VectorNeed& sinks, WeightLoader& loader,
                                               const MlxRope& rope, const CompressedPlaces& places)
    : traits_(config.compress),
      ratio_(traits_.ratios[static_cast<size_t>(layer)]),
      dim_(config.head_dim),
      groups_(KvHeadsOf(config, place.slices()).size()),
      heads_(groups_ * (config.attention_heads / traits_.groups)),
      norm_eps_(config.rms_norm_eps),
      scale_(1.0F / std::sqrt(static_cast<float>(config.head_dim))),
      rope_(rope),
      places_(places),
      rounding_(loader.device()),
      q_a_(loader.LoadLinear(needs.q_a)),
      q_b_(loader.LoadLinear(needs.q_b)),
      kv_(loader.LoadLinear(needs.kv)),
      group_out_(loader.LoadHeads(needs.group_out)),
      q_a_norm_(*loader.LoadVector(needs.q_a_norm)),
      kv_norm_(*loader.LoadVector(needs.kv_norm)),
      sinks_(loader.LoadVector(sinks)),
      entry_norm_(loader.LoadVector(needs.entry_norm)),
      index_key_norm_(loader.LoadVector(needs.index_key_norm)),
      pools_(!needs.entry_gate.module.empty()) {
  if (pools_) entry_ = loader.LoadJoined({&needs.entry, &needs.entry_gate});
  if (!entry_.has_value() && !needs.entry.module.empty()) {
    entry_.emplace(loader.LoadLinear(needs.entry));
    if (pools_) entry_gate_.emplace(loader.LoadLinear(needs.entry_gate));
  }
  if (entry_.has_value()) index_key_.emplace(loader.LoadLinear(needs.index_key));
  if (!needs.index_q.module.empty()) index_.emplace(config, layer, needs, loader);
}

mx::array MlxCompressedAttention::Normed(const mx::array& x, const mx::array& weight) const {
  return mx::fast::rms_norm(x, weight, norm_eps_);
}

// `given` [rows, 2 x dim]: of each position a vector and its gates. A group's vectors count by the
// softmax of their gates in each dimension.
mx::array MlxCompressedAttention::Pooled(const mx::array& given, EntryStep& step,
                                         const MlxOpenGroups& open) const {
  const EndedGroups& ended = step.Ended(ratio_);
  std::vector<mx::array> whole;  // groups
  for (const StepRows::Sequence& sequence : step.rows().sequences()) {
    const int count = ended.count[sequence.number];
    const int first = ended.first[sequence.number] * ratio_;  // position
    const int row = sequence.row, begin = sequence.begin;
    if (count > 0) {
      if (first < begin) whole.push_back(open.Kept(sequence.slot, places_.open, first, begin));
      whole.push_back(RowRange(given, row, row + first + count * ratio_ - begin));
    }
  }
  const mx::array all = mx::reshape(whole.size() == 1 ? whole[0] : mx::concatenate(whole, 0),
                                    {ended.all, ratio_, 2, dim_});
  const std::vector<mx::array> halves = mx::split(all, 2, 2);
  const mx::array weights = mx::softmax(halves[1], 1, /*precise=*/true);
  return mx::reshape(mx::sum(mx::multiply(halves[0], weights), 1), {ended.all, dim_});
}

void MlxCompressedAttention::MakeEntries(const mx::array& x, EntryStep& step,
                                         MlxOpenGroups& open) const {
  const mx::array plain = mx::astype(x, mx::float32);
  mx::array given = entry_->Apply(plain);
  if (entry_gate_.has_value()) {
    given = mx::concatenate({given, entry_gate_->Apply(plain)}, -1);
  }
  const EndedGroups& ended = step.Ended(ratio_);
  mx::array pooled = given;
  if (pools_) {
    if (ended.all > 0) pooled = Pooled(given, step, open);
    for (const StepRows::Sequence& sequence : step.rows().sequences()) {
      open.Keep(sequence.slot, places_.open, sequence.begin,
                RowRange(given, sequence.row, sequence.row + sequence.count));
    }
  }
  if (ended.all == 0) return step.WriteNone(places_.entries, ratio_);
  const mx::array latent = Normed(mx::astype(pooled, x.dtype()), *entry_norm_);
  const auto turned = [&](const mx::array& each) {
    return rope_.TailTurned(mx::reshape(each, {ended.all, 1, 1, each.shape(1)}), *ended.offsets);
  };
  const mx::array keys = Normed(index_key_->Apply(latent), *index_key_norm_);
  step.Write(places_.entries, ratio_, rounding_.ToFp4(turned(latent), 16, kernels::Fp4Scale::kE4m3),
             rounding_.ToFp4(turned(keys), 32, kernels::Fp4Scale::kPowerOfTwo));
}

mx::array MlxCompressedAttention::Mixed(const mx::array& queries, const mx::array& seen,
                                        const std::optional<mx::array>& mask) const {
  const mx::array keys = mx::astype(seen, mx::float32);
  return mx::fast::scaled_dot_product_attention(mx::astype(queries, mx::float32), keys, keys,
                                                scale_, "", mask, sinks_);
}

mx::array MlxCompressedAttention::MixedByRow(const mx::array& queries, const mx::array& seen,
                                             const mx::array& mask) const {
  const mx::array keys = mx::astype(seen, mx::float32);
  const mx::array scaled = mx::multiply(mx::astype(queries, mx::float32), mx::array(scale_));
  const mx::array products = mx::matmul(scaled, mx::swapaxes(keys, -1, -2));
  const mx::array lowest(-std::numeric_limits<float>::infinity());
  const int rows = queries.shape(0), count = seen.shape(1);
  mx::array scores = mx::where(mask, products, lowest);
  if (sinks_.has_value()) {
    const mx::array own = mx::broadcast_to(mx::reshape(*sinks_, {1, heads_, 1}), {rows, heads_, 1});
    scores = mx::concatenate({scores, own}, -1);
  }
  const mx::array weights =
      mx::slice(mx::softmax(scores, -1, /*precise=*/true), {0, 0, 0}, {rows, heads_, count});
  return mx::matmul(weights, keys);
}

// A few rows after the other, so that the keys of all of them are not in memory at once.
mx::array MlxCompressedAttention::AttendToChosen(const mx::array& queries, const mx::array& window,
                                                 const mx::array& chosen,
                                                 const StepRows::Sequence& sequence,
                                                 const EntryStep& step) const {
  const mx::array near_all = mx::reshape(window, {-1, dim_});
  const mx::array none(0, mx::int32);
  const int from = sequence.end() - window.shape(2), top = chosen.shape(1);
  const int width = std::min(traits_.window, sequence.end());
  // As they are kept, put together, and in float32.
  const int at_once = CompressedRowsAtOnce(3 * sizeof(float) * static_cast<size_t>(dim_) *
                                           (static_cast<size_t>(width) + static_cast<size_t>(top)));
  std::vector<mx::array> given;
  for (int begin = 0; begin < sequence.count; begin += at_once) {
    const int end = std::min(sequence.count, begin + at_once), rows = end - begin;
    const mx::array last =
        Column(mx::arange(sequence.begin + begin - from, sequence.begin + end - from));
    const mx::array first = mx::maximum(mx::subtract(last, mx::array(traits_.window - 1)), none);
    const mx::array near = mx::add(first, Line(mx::arange(0, width)));
    mx::array own = RowRange(chosen, begin, end);
    if (!given.empty()) own = mx::depends({own}, {given.back()})[0];
    const mx::array entries =
        step.EntriesAt(sequence, mx::reshape(mx::maximum(own, none), {rows * top}));
    const mx::array seen = mx::concatenate(
        {mx::take(near_all, mx::minimum(near, last), 0), mx::reshape(entries, {rows, top, dim_})},
        1);
    const mx::array mask =
        mx::concatenate({mx::less_equal(near, last), mx::greater_equal(own, none)}, -1);
    const mx::array part = mx::slice(queries, {0, 0, begin, 0}, {1, heads_, end, dim_});
    const mx::array mixed = MixedByRow(mx::reshape(mx::swapaxes(part, 0, 2), {rows, heads_, dim_}),
                                       seen, mx::expand_dims(mask, 1));
    given.push_back(mx::swapaxes(mx::reshape(mixed, {rows, heads_, 1, dim_}), 0, 2));
  }
  return given.size() == 1 ? given[0] : mx::concatenate(given, 2);
}

mx::array MlxCompressedAttention::Attend(const mx::array& queries, const mx::array& window,
                                         const StepRows::Sequence& sequence,
                                         EntryStep& step) const {
  const int count = ratio_ == 0 ? 0 : sequence.end() / ratio_;
  const bool is_row = sequence.count == 1;
  const auto mask = [&]() -> std::optional<mx::array> {
    if (is_row) return std::nullopt;
    return step.MaskOf(sequence, ratio_ > 0);
  };
  if (count == 0) return Mixed(queries, window, mask());
  const auto& chosen = step.chosen[sequence.number];
  if (!chosen.has_value()) {
    return Mixed(queries, mx::concatenate({window, step.Entries(sequence)}, 2), mask());
  }
  if (!is_row) return AttendToChosen(queries, window, *chosen, sequence, step);
  const mx::array own = step.EntriesAt(sequence, mx::reshape(*chosen, {-1}));
  return Mixed(queries, mx::concatenate({window, own}, 2), std::nullopt);
}

// mixed [rows, heads x dim]: each group's heads by a map of their own.
mx::array MlxCompressedAttention::GroupOut(const mx::array& mixed) const {
  const int rows = mixed.shape(0);
  const mx::array by_group =
      mx::swapaxes(mx::reshape(mixed, {rows, groups_, heads_ / groups_ * dim_}), 0, 1);
  const StackedLinear& maps = group_out_;
  const mx::array out = maps.scales.has_value()
                            ? mx::quantized_matmul(by_group, maps.weight, *maps.scales, maps.biases,
                                                   /*transpose=*/true, maps.traits.group_size,
                                                   maps.traits.bits, MlxModeOf(maps.traits))
                            : mx::matmul(by_group, mx::swapaxes(maps.weight, -1, -2));
  return mx::reshape(mx::swapaxes(out, 0, 1), {rows, groups_ * traits_.group_rank});
}

mx::array MlxCompressedAttention::Apply(const mx::array& x, EntryStep& step,
                                        MlxOpenGroups& open) const {
  const StepRows& rows = step.rows();
  const mx::array latent = Normed(q_a_.Apply(x), q_a_norm_);
  const mx::array own = rows.Laid(Normed(kv_.Apply(x), kv_norm_), 1, dim_);
  const KvRowsKept pool =
      step.pools().Write(places_.window, KvSide::kKeys,
                         rounding_.ToFp8(rope_.TailTurned(own, rows.offsets())), rows.written());
  if (entry_.has_value()) MakeEntries(x, step, open);
  if (index_.has_value()) index_->Choose(x, latent, rope_, rounding_, step);
  if (heads_ == 0) return ZerosBehind(x, 0);
  const std::vector<mx::array> queries =
      rows.Each(rope_.TailTurned(rows.Laid(q_b_.Apply(latent), heads_, dim_), rows.offsets()));
  std::vector<mx::array> given;
  for (const StepRows::Sequence& sequence : rows.sequences()) {
    const mx::array window = rows.Seen(pool, sequence, step.WindowFrom(sequence));
    given.push_back(Attend(queries[sequence.number], window, sequence, step));
  }
  const mx::array mixed = mx::astype(rows.Together(given), x.dtype());
  return GroupOut(rows.Flat(rope_.TailTurned(mixed, rows.offsets(), /*back=*/true)));
}

}  // namespace macrame::runtime::engine
