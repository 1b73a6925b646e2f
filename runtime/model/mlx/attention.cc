#include "runtime/model/mlx/attention.h"

#include <cmath>

#include "proto/check.h"
#include "runtime/model/mlx/narrow_attention.h"

namespace macrame::runtime::engine {

namespace mx = mlx::core;

namespace {

std::vector<const LinearNeed*> MapsOf(const LayerNeeds& needs) {
  std::vector<const LinearNeed*> maps = {&needs.q};
  if (!needs.k.module.empty()) maps.push_back(&needs.k);
  if (!needs.v.module.empty()) maps.push_back(&needs.v);
  return maps;
}

}  // namespace

MlxAttention::MlxAttention(const ModelConfig& config, const ShardPlace& place, int layer,
                           const LayerNeeds& needs, WeightLoader& loader, const MlxRope* rope,
                           const KvEntries& entries)
    : config_(config),
      tp_(place.tp),
      traits_(config.HeadsOf(layer)),
      kv_heads_(KvHeadsOf(config, layer, place.slices()).size()),
      heads_(kv_heads_ * (config.attention_heads / traits_.kv_heads)),
      window_(config.sliding_windows[static_cast<size_t>(layer)]),
      entries_(entries),
      scale_(config.QueryScaleAt(0, traits_.dim) / std::sqrt(static_cast<float>(traits_.dim))),
      scale_number_(scale_, loader.activation_type()),
      rope_(rope) {
  const std::vector<const LinearNeed*> maps = MapsOf(needs);
  for (const LinearNeed* map : maps) widths_.push_back(map->part_rows());
  if (maps.size() > 1) joined_ = loader.LoadJoined(maps);
  if (!joined_.has_value()) {
    for (const LinearNeed* map : maps) maps_.push_back(loader.LoadLinear(*map));
  }
  if (needs.block_index.has_value())
    block_index_.emplace(config, place, *needs.block_index, loader);
  q_norm_ = loader.LoadVector(needs.q_norm);
  k_norm_ = loader.LoadVector(needs.k_norm);
  sinks_ = loader.LoadVector(needs.sinks);
}

mx::array MlxAttention::HeadNormed(const mx::array& x, int heads,
                                   const std::optional<mx::array>& norm) const {
  if (!config_.qk_norm || !norm.has_value()) return x;
  return mx::fast::rms_norm(mx::reshape(x, {x.shape(0), heads, traits_.dim}), norm,
                            config_.rms_norm_eps);
}

mx::array MlxAttention::Turned(const mx::array& laid, const StepRows& rows) const {
  return rope_ == nullptr ? laid : rope_->Turned(laid, rows.offsets());
}

std::vector<mx::array> MlxAttention::ProjectEach(const mx::array& x) const {
  std::vector<mx::array> each;
  for (const Linear& map : maps_) each.push_back(map.Apply(x));
  if (!joined_.has_value()) return each;
  const mx::array all = joined_->Apply(x);
  int begin = 0;
  for (const int width : widths_) {
    each.push_back(mx::slice(all, {0, begin}, {all.shape(0), begin + width}));
    begin += width;
  }
  return each;
}

MlxAttention::Projected MlxAttention::Project(const mx::array& x, const StepRows& rows,
                                              RankSums& sums) const {
  const int dim = traits_.dim;
  const std::vector<mx::array> each = ProjectEach(x);
  mx::array queries = each[0];
  Projected out{queries};
  if (config_.attention_gate) {
    const mx::array both = mx::reshape(queries, {x.shape(0), heads_, 2, dim});
    const auto half = [&](int which) {
      return mx::reshape(mx::slice(both, {0, 0, which, 0}, {x.shape(0), heads_, which + 1, dim}),
                         {x.shape(0), heads_ * dim});
    };
    queries = half(0);
    out.gate = mx::sigmoid(half(1));
  }
  if (each.size() > 1) {
    mx::array keys = each[1];
    if (config_.qk_norm_whole) NormWhole(queries, keys, sums);
    mx::array values = each.size() > 2 ? each[2] : keys;
    if (config_.value_norm) {
      values = mx::fast::rms_norm(mx::reshape(values, {x.shape(0), kv_heads_, dim}), std::nullopt,
                                  config_.rms_norm_eps);
    }
    out.keys = rows.Laid(HeadNormed(keys, kv_heads_, k_norm_), kv_heads_, dim);
    out.values = rows.Laid(values, kv_heads_, dim);
  }
  out.queries = rows.Laid(HeadNormed(queries, heads_, q_norm_), heads_, dim);
  return out;
}

void MlxAttention::NormWhole(mx::array& queries, mx::array& keys, RankSums& sums) const {
  if (tp_ == 1) {
    queries = mx::fast::rms_norm(queries, q_norm_, config_.rms_norm_eps);
    keys = mx::fast::rms_norm(keys, k_norm_, config_.rms_norm_eps);
    return;
  }
  const auto squares_of = [](const mx::array& x) {
    return mx::sum(mx::square(mx::astype(x, mx::float32)), -1, /*keepdims=*/true);
  };
  const mx::array squares =
      sums.SumExactlyOverRanks(mx::concatenate({squares_of(queries), squares_of(keys)}, -1));
  const auto scaled = [&](const mx::array& x, int column, int heads, const mx::array& weight) {
    const mx::array own = mx::slice(squares, {0, column}, {x.shape(0), column + 1});
    const auto whole = static_cast<float>(heads * config_.head_dim);
    const mx::array by =
        mx::rsqrt(mx::add(mx::divide(own, mx::array(whole)), mx::array(config_.rms_norm_eps)));
    return mx::astype(mx::multiply(mx::multiply(mx::astype(x, mx::float32), by), weight),
                      x.dtype());
  };
  queries = scaled(queries, 0, config_.attention_heads, *q_norm_);
  keys = scaled(keys, 1, config_.kv_heads, *k_norm_);
}

mx::array MlxAttention::Apply(const mx::array& x, AttentionStep& step, RankSums& sums,
                              std::optional<KvOfStep>* kept) const {
  const StepRows& rows = step.rows;
  const Projected own = Project(x, rows, sums);
  auto& written = step.written[static_cast<size_t>(entries_.own)];
  if (own.keys.has_value()) {
    const mx::array keys = Turned(*own.keys, rows);
    if (kept != nullptr) *kept = {keys, *own.values};
    written = {step.pools.Write(entries_.own, KvSide::kKeys, keys, rows.written()),
               step.pools.Write(entries_.own, KvSide::kValues, *own.values, rows.written())};
  }
  MACRAME_CHECK(written.has_value()) << "a layer attends to keys that no layer before it wrote";
  std::optional<Indexed> index;
  if (block_index_.has_value()) {
    const MlxBlockIndex::Rows made = block_index_->Project(x, rows);
    const mx::array keys = Turned(made.keys, rows);
    index.emplace(Turned(made.queries, rows),
                  step.pools.Write(entries_.index, KvSide::kKeys, keys, rows.written()));
  }
  mx::array queries = Turned(own.queries, rows);
  if (step.query_scales.has_value()) {
    queries = mx::multiply(queries, mx::astype(*step.query_scales, queries.dtype()));
  }
  const mx::array given = AttendAll(queries, *written, index, step);
  return own.gate.has_value() ? mx::multiply(given, *own.gate) : given;
}

mx::array MlxAttention::AttendAll(const mx::array& queries, const KvWritten& seen,
                                  const std::optional<Indexed>& index, AttentionStep& step) const {
  const StepRows& rows = step.rows;
  // Products with narrow keys have no scale of their own; one for all sequences.
  const bool is_narrow = seen.keys.bits > 0;
  const float scale = is_narrow ? 1.0F : scale_;
  const mx::array scaled = is_narrow ? mx::multiply(queries, scale_number_) : queries;
  const std::vector<mx::array> each = rows.Each(scaled);
  std::vector<mx::array> searching, given;
  if (index.has_value()) searching = rows.Each(index->queries);
  for (const StepRows::Sequence& sequence : rows.sequences()) {
    const mx::array& own = each[sequence.number];
    if (index.has_value()) {
      const auto chosen = block_index_->Choose(searching[sequence.number],
                                               rows.Seen(index->keys, sequence), sequence.begin);
      if (chosen.has_value()) {
        given.push_back(block_index_->Attend(own, rows.Seen(seen.keys, sequence),
                                             rows.Seen(seen.values, sequence), scale, *chosen));
        continue;
      }
    }
    given.push_back(Attend(own, seen, rows, sequence, scale, given));
  }
  return rows.Joined(given);
}

mx::array MlxAttention::Attend(const mx::array& queries, const KvWritten& seen,
                               const StepRows& rows, const StepRows::Sequence& sequence,
                               float scale, std::span<const mx::array> before) const {
  const StepRows::Sight sight = rows.SightOf(sequence, window_);
  const KvRowsKept keys = rows.SeenAsKept(seen.keys, sequence, sight.from);
  const KvRowsKept values = rows.SeenAsKept(seen.values, sequence, sight.from);
  if (AttendsToNarrow(keys, values, sequence.count)) {
    return AttendNarrow(queries, keys, values, sight, sinks_);
  }
  const auto unpacked = [&](const KvRowsKept& kept) {
    return before.empty() ? kept.Whole() : kept.Behind(before.back()).Whole();
  };
  return mx::fast::scaled_dot_product_attention(queries, unpacked(keys), unpacked(values), scale,
                                                sight.mode, sight.mask, sinks_);
}

}  // namespace macrame::runtime::engine
