#include "runtime/model/mlx/latent_attention.h"

#include <cmath>
#include <limits>
#include <utility>
#include <vector>

namespace macrame::runtime::engine {
namespace {

namespace mx = mlx::core;

// x [1, heads, count, columns] -> [1, heads, count, rows], each head by its own map.
mx::array ByHead(const StackedLinear& maps, const mx::array& x) {
  const mx::array each = mx::squeeze(x, 0);
  const mx::array out =
      maps.scales.has_value()
          ? mx::quantized_matmul(each, maps.weight, *maps.scales, maps.biases, /*transpose=*/true,
                                 maps.traits.group_size, maps.traits.bits, MlxModeOf(maps.traits))
          : mx::matmul(each, mx::swapaxes(maps.weight, -1, -2));
  return mx::expand_dims(out, 0);
}

// The numbers [begin, end) of the last dimension.
mx::array Part(const mx::array& x, int begin, int end) {
  mx::Shape from(x.ndim(), 0), to = x.shape();
  from.back() = begin;
  to.back() = end;
  return mx::slice(x, from, to);
}

// Of the segments' rows, which positions from `begin` on see: [1, 1, count, begin + count].
mx::array Causal(int begin, int count) {
  const mx::array rows = mx::reshape(mx::arange(begin, begin + count), {count, 1});
  return mx::reshape(mx::less_equal(mx::arange(0, begin + count), rows),
                     {1, 1, count, begin + count});
}

struct Maps {
  StackedLinear embed_q, unembed_out;
};

Maps LoadMaps(const LatentTraits& traits, int heads, const LatentNeeds& needs,
              WeightLoader& loader) {
  if (loader.IsStoredByHead(needs)) {
    StackedLinear embed_q = loader.LoadHeads(needs.embed_q);
    return {std::move(embed_q), loader.LoadHeads(needs.unembed_out)};
  }
  const mx::array both = loader.LoadHeadsFrom(needs.kv_b, heads).weight;
  const int rows = traits.nope + traits.value;
  const auto of = [&](int begin, int end) {
    return mx::slice(both, {0, begin, 0}, {heads, end, traits.kv_rank});
  };
  mx::array embed_q = mx::contiguous(mx::swapaxes(of(0, traits.nope), -1, -2));
  mx::array unembed_out = mx::contiguous(of(traits.nope, rows));
  mx::eval(embed_q, unembed_out);
  return {{std::move(embed_q), std::nullopt, std::nullopt},
          {std::move(unembed_out), std::nullopt, std::nullopt}};
}

}  // namespace

MlxSparseIndex::MlxSparseIndex(const IndexTraits& traits, int rope, const IndexNeeds& needs,
                               WeightLoader& loader)
    : traits_(traits),
      rope_(rope),
      wq_b_(loader.LoadLinear(needs.wq_b)),
      wk_(loader.LoadLinear(needs.wk)),
      weights_(loader.LoadLinear(needs.weights)),
      key_norm_(*loader.LoadVector(needs.key_norm)),
      key_norm_bias_(*loader.LoadVector(needs.key_norm_bias)) {}

MlxSparseIndex::Rows MlxSparseIndex::Rows::Part(int begin, int end) const {
  const auto part = [&](const mx::array& all) {
    return mx::slice(all, {0, 0, begin, 0}, {1, all.shape(1), end, all.shape(3)});
  };
  return {part(queries), part(keys), part(weights)};
}

MlxSparseIndex::Rows MlxSparseIndex::Project(const mx::array& x, const mx::array& latent) const {
  const int rows = x.shape(0), heads = traits_.heads, dim = traits_.dim;
  const mx::array keys =
      mx::fast::layer_norm(wk_.Apply(x), key_norm_, key_norm_bias_, traits_.norm_eps);
  const float scale = 1.0F / std::sqrt(static_cast<float>(heads * dim));
  const mx::array weights = mx::multiply(weights_.Apply(x), mx::array(scale, x.dtype()));
  return {
      mx::transpose(mx::reshape(wq_b_.Apply(latent), {1, rows, heads, dim}), {0, 2, 1, 3}),
      mx::reshape(keys, {1, 1, rows, dim}),
      mx::reshape(mx::transpose(weights), {1, heads, rows, 1}),
  };
}

mx::array MlxSparseIndex::Turned(const mx::array& x, int begin, const MlxLatentStep& step) const {
  const mx::array turned = step.rotate(Part(x, 0, rope_), begin, traits_.interleaved);
  return rope_ == traits_.dim ? turned : mx::concatenate({turned, Part(x, rope_, traits_.dim)}, -1);
}

std::optional<mx::array> MlxSparseIndex::Choose(const Segment& segment, const Rows& rows,
                                                const MlxLatentStep& step) const {
  const int begin = static_cast<int>(segment.begin), count = rows.keys.shape(2);
  const mx::array seen = step.append_index(segment, Turned(rows.keys, begin, step));
  const int positions = begin + count;
  if (positions <= traits_.top) return std::nullopt;
  const mx::array products =
      mx::matmul(Turned(rows.queries, begin, step), mx::swapaxes(seen, -1, -2));
  const mx::array each =
      mx::multiply(mx::maximum(products, mx::array(0.0F, products.dtype())), rows.weights);
  const mx::array scores = mx::sum(each, 1, /*keepdims=*/true);
  const mx::array lowest(-std::numeric_limits<float>::infinity(), scores.dtype());
  const mx::array order = mx::argpartition(mx::where(Causal(begin, count), scores, lowest),
                                           positions - traits_.top, -1);
  return Part(order, positions - traits_.top, positions);
}

MlxLatentAttention::MlxLatentAttention(const ModelConfig& config, const ShardPlace& place,
                                       const LatentNeeds& needs, WeightLoader& loader)
    : traits_(config.latent),
      interleaved_(config.rope.interleaved),
      heads_(KvHeadsOf(config, place.slices()).size()),
      q_a_(needs.q_a.has_value() ? std::optional<Linear>(loader.LoadLinear(*needs.q_a))
                                 : std::nullopt),
      q_b_(loader.LoadLinear(needs.q_b)),
      kv_a_(loader.LoadLinear(needs.kv_a)),
      embed_q_{mx::array(0.0F), std::nullopt, std::nullopt},
      unembed_out_{mx::array(0.0F), std::nullopt, std::nullopt},
      kv_a_norm_(mx::array(0.0F)) {
  if (heads_ > 0) {
    Maps maps = LoadMaps(traits_, heads_, needs, loader);
    embed_q_ = std::move(maps.embed_q);
    unembed_out_ = std::move(maps.unembed_out);
  }
  if (needs.index.has_value()) index_.emplace(config.index, traits_.rope, *needs.index, loader);
  q_a_norm_ = loader.LoadVector(needs.q_a_norm);
  kv_a_norm_ = *loader.LoadVector(needs.kv_a_norm);
}

mx::array MlxLatentAttention::Mix(const Segment& segment, const mx::array& queries,
                                  const mx::array& keys,
                                  const std::optional<MlxSparseIndex::Rows>& index,
                                  const MlxLatentStep& step) const {
  const int begin = static_cast<int>(segment.begin), rank = traits_.kv_rank;
  const int nope = traits_.nope;
  const auto turned = [&](const mx::array& x, int from) {
    return step.rotate(Part(x, from, from + traits_.rope), begin, interleaved_);
  };
  const mx::array seen =
      step.append(segment, mx::concatenate({Part(keys, 0, rank), turned(keys, rank)}, -1));
  const mx::array embedded =
      mx::concatenate({ByHead(embed_q_, Part(queries, 0, nope)), turned(queries, nope)}, -1);
  const auto chosen = index.has_value() ? index_->Choose(segment, *index, step) : std::nullopt;
  return ByHead(unembed_out_, Attend(embedded, seen, begin, chosen));
}

mx::array MlxLatentAttention::Attend(const mx::array& queries, const mx::array& seen, int begin,
                                     const std::optional<mx::array>& chosen) const {
  const int count = queries.shape(2), rank = traits_.kv_rank;
  const auto attend = [&](const mx::array& keys, const char* mode,
                          const std::optional<mx::array>& mask) {
    return mx::fast::scaled_dot_product_attention(queries, keys, Part(keys, 0, rank), traits_.scale,
                                                  mode, mask);
  };
  if (!chosen.has_value()) return attend(seen, count == 1 ? "" : "causal", std::nullopt);
  if (count == 1) return attend(mx::take(seen, mx::reshape(*chosen, {-1}), 2), "", std::nullopt);
  const mx::array causal = Causal(begin, count);
  const mx::array mask =
      mx::put_along_axis(mx::zeros(causal.shape(), mx::bool_), *chosen, mx::array(true), -1);
  return attend(seen, "", mx::logical_and(mask, causal));
}

mx::array MlxLatentAttention::Apply(const mx::array& x, const MlxLatentStep& step) const {
  const int rows = x.shape(0), rank = traits_.kv_rank;
  const int width = traits_.nope + traits_.rope;
  const auto norm = [&](const mx::array& vector, const mx::array& weight) {
    return mx::fast::rms_norm(vector, weight, traits_.norm_eps);
  };
  const mx::array from = q_a_.has_value() ? norm(q_a_->Apply(x), *q_a_norm_) : x;
  const mx::array queries =
      mx::transpose(mx::reshape(q_b_.Apply(from), {1, rows, heads_, width}), {0, 2, 1, 3});
  const mx::array both = kv_a_.Apply(x);
  const mx::array latent = norm(Part(both, 0, rank), kv_a_norm_);
  const mx::array keys =
      mx::reshape(mx::concatenate({latent, Part(both, rank, traits_.width())}, -1),
                  {1, 1, rows, traits_.width()});
  std::optional<MlxSparseIndex::Rows> index;
  if (index_.has_value()) index = index_->Project(x, from);
  std::vector<mx::array> mixed;
  int row = 0;
  for (const Segment& segment : step.step.segments) {
    const int end = row + static_cast<int>(segment.tokens.size());
    const auto part = [&](const mx::array& all) {
      return mx::slice(all, {0, 0, row, 0}, {1, all.shape(1), end, all.shape(3)});
    };
    const auto own = index.has_value() ? std::optional(index->Part(row, end)) : std::nullopt;
    mixed.push_back(Mix(segment, part(queries), part(keys), own, step));
    row = end;
  }
  const mx::array together = mixed.size() == 1 ? mixed[0] : mx::concatenate(mixed, 2);
  return mx::reshape(mx::transpose(together, {0, 2, 1, 3}), {rows, heads_ * traits_.value});
}

}  // namespace macrame::runtime::engine
