#include "runtime/model/mlx/block_index.h"

#include <limits>
#include <vector>

#include "runtime/model/weights/block_needs.h"

namespace macrame::runtime::engine {

namespace mx = mlx::core;

namespace {

const mx::array& Infinity() {
  static const mx::array infinity(std::numeric_limits<float>::infinity());
  return infinity;
}

mx::array Heads(const mx::array& all, int begin, int end) {
  return mx::slice(all, {0, begin, 0, 0}, {1, end, all.shape(2), all.shape(3)});
}

// [count, 1], each row's own; and [1, all].
mx::array Column(int begin, int end) { return mx::expand_dims(mx::arange(begin, end), 1); }
mx::array Line(int all) { return mx::expand_dims(mx::arange(0, all), 0); }

}  // namespace

MlxBlockIndex::MlxBlockIndex(const ModelConfig& config, const ShardPlace& place,
                             const BlockIndexNeeds& needs, WeightLoader& loader)
    : traits_(config.block_index),
      heads_(IndexHeadsOf(config, KvHeadsOf(config, place.slices())).size()),
      first_kv_(KvHeadsOf(config, place.slices()).begin),
      each_(config.kv_heads / config.block_index.heads),
      norm_eps_(config.rms_norm_eps),
      query_(loader.LoadLinear(needs.query)),
      key_(loader.LoadLinear(needs.key)),
      query_norm_(*loader.LoadVector(needs.query_norm)),
      key_norm_(*loader.LoadVector(needs.key_norm)) {}

MlxBlockIndex::Rows MlxBlockIndex::Project(const mx::array& x, const StepRows& rows) const {
  const auto normed = [&](const Linear& map, int heads, const mx::array& norm) {
    const mx::array by_head = mx::reshape(map.Apply(x), {x.shape(0), heads, traits_.dim});
    return rows.Laid(mx::fast::rms_norm(by_head, norm, norm_eps_), heads, traits_.dim);
  };
  return {normed(query_, heads_, query_norm_), normed(key_, 1, key_norm_)};
}

std::optional<mx::array> MlxBlockIndex::Choose(const mx::array& queries, const mx::array& keys,
                                               int begin) const {
  const int count = queries.shape(2), positions = begin + count, size = traits_.size;
  const int blocks = (positions + size - 1) / size;
  if (blocks <= traits_.top) return std::nullopt;
  const mx::array products = mx::matmul(mx::astype(queries, mx::float32),
                                        mx::swapaxes(mx::astype(keys, mx::float32), -1, -2));
  const mx::array own = Column(begin, positions);
  const mx::array causal = mx::less_equal(Line(positions), own);
  const mx::array lowest = mx::negative(Infinity());
  const mx::array seen = mx::pad(mx::where(causal, products, lowest), std::vector<int>{3}, {0},
                                 {blocks * size - positions}, lowest);
  const mx::array best = mx::max(mx::reshape(seen, {1, heads_, count, blocks, size}), -1);
  const mx::array block = mx::floor_divide(own, mx::array(size)), each = Line(blocks);
  const mx::array is_local =
      mx::logical_and(mx::less_equal(each, block),
                      mx::greater(each, mx::subtract(block, mx::array(traits_.local))));
  const mx::array scores = mx::where(is_local, Infinity(), best);
  const mx::array order = mx::argpartition(mx::negative(scores), traits_.top - 1, -1);
  const mx::array chosen = mx::slice(order, {0, 0, 0, 0}, {1, heads_, count, traits_.top});
  const mx::array kept =
      mx::put_along_axis(mx::zeros(scores.shape(), mx::bool_), chosen, mx::array(true), -1);
  const mx::array all =
      mx::slice(mx::repeat(kept, size, -1), {0, 0, 0, 0}, {1, heads_, count, positions});
  return mx::logical_and(all, causal);
}

mx::array MlxBlockIndex::Attend(const mx::array& queries, const mx::array& keys,
                                const mx::array& values, float scale, const mx::array& mask) const {
  const int kv_heads = keys.shape(1), group = queries.shape(1) / kv_heads;
  const int first = first_kv_ / each_;
  std::vector<mx::array> mixed;
  for (int head = 0; head < kv_heads; ++head) {
    const int index = (first_kv_ + head) / each_ - first;
    mixed.push_back(mx::fast::scaled_dot_product_attention(
        Heads(queries, head * group, (head + 1) * group), Heads(keys, head, head + 1),
        Heads(values, head, head + 1), scale, "", Heads(mask, index, index + 1)));
  }
  return mx::concatenate(mixed, 1);
}

}  // namespace macrame::runtime::engine
