#include "runtime/model/mlx/latent_attention.h"

#include <cmath>
#include <limits>
#include <utility>
#include <vector>

namespace macrame::runtime::engine {
namespace {

namespace mx = mlx::core;

// Each head by its own map: x [1, heads or 1, count, columns] -> [1, heads, count, rows] or,
// against the maps' direction, [.., rows] -> [.., columns].
mx::array ByHead(const StackedLinear& maps, const mx::array& x, bool back = false) {
  const mx::array each = mx::squeeze(x, 0);
  const mx::array out =
      maps.scales.has_value()
          ? mx::quantized_matmul(each, maps.weight, *maps.scales, maps.biases, /*transpose=*/!back,
                                 maps.traits.group_size, maps.traits.bits, MlxModeOf(maps.traits))
          : mx::matmul(each, back ? maps.weight : mx::swapaxes(maps.weight, -1, -2));
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

MlxSparseIndex::Rows MlxSparseIndex::Project(const mx::array& x, const mx::array& latent,
                                             const MlxLatentStep& step) const {
  const int heads = traits_.heads, dim = traits_.dim;
  const mx::array keys =
      mx::fast::layer_norm(wk_.Apply(x), key_norm_, key_norm_bias_, traits_.norm_eps);
  const float scale = 1.0F / std::sqrt(static_cast<float>(heads * dim));
  const mx::array weights = mx::multiply(weights_.Apply(x), mx::array(scale, x.dtype()));
  const StepRows& rows = step.rows;
  return {rows.Each(Turned(rows.Laid(wq_b_.Apply(latent), heads, dim), step)),
          rows.Each(rows.Laid(weights, heads, 1)),
          step.pools.Write(step.entry, KvSide::kValues, Turned(rows.Laid(keys, 1, dim), step),
                           rows.written())};
}

mx::array MlxSparseIndex::Turned(const mx::array& laid, const MlxLatentStep& step) const {
  const mx::array turned =
      step.rope.Turned(Part(laid, 0, rope_), step.rows.offsets(), traits_.interleaved);
  return rope_ == traits_.dim ? turned
                              : mx::concatenate({turned, Part(laid, rope_, traits_.dim)}, -1);
}

std::optional<mx::array> MlxSparseIndex::Choose(const StepRows::Sequence& sequence,
                                                const Rows& rows, const StepRows& step) const {
  const int positions = sequence.end();
  if (positions <= traits_.top) return std::nullopt;
  const mx::array products = mx::matmul(rows.queries[sequence.number],
                                        mx::swapaxes(step.Seen(rows.pool, sequence), -1, -2));
  const mx::array each = mx::multiply(mx::maximum(products, mx::array(0.0F, products.dtype())),
                                      rows.weights[sequence.number]);
  const mx::array scores = mx::sum(each, 1, /*keepdims=*/true);
  const mx::array lowest(-std::numeric_limits<float>::infinity(), scores.dtype());
  const mx::array order =
      mx::argpartition(mx::where(Causal(sequence.begin, sequence.count), scores, lowest),
                       positions - traits_.top, -1);
  return Part(order, positions - traits_.top, positions);
}

MlxLatentAttention::MlxLatentAttention(const ModelConfig& config, const ShardPlace& place,
                                       const LatentNeeds& needs, WeightLoader& loader)
    : traits_(config.latent),
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

mx::array MlxLatentAttention::AttendAbsorbed(const Queries& queries, const mx::array& seen,
                                             int begin,
                                             const std::optional<mx::array>& chosen) const {
  const int count = queries.nope.shape(2), rank = traits_.kv_rank;
  const mx::array embedded = mx::concatenate({ByHead(embed_q_, queries.nope), queries.rope}, -1);
  const auto attend = [&](const mx::array& keys, const char* mode,
                          const std::optional<mx::array>& mask) {
    return ByHead(unembed_out_,
                  mx::fast::scaled_dot_product_attention(embedded, keys, Part(keys, 0, rank),
                                                         traits_.scale, mode, mask));
  };
  if (!chosen.has_value()) return attend(seen, count == 1 ? "" : "causal", std::nullopt);
  if (count == 1) return attend(mx::take(seen, mx::reshape(*chosen, {-1}), 2), "", std::nullopt);
  const mx::array causal = Causal(begin, count);
  const mx::array mask =
      mx::put_along_axis(mx::zeros(causal.shape(), mx::bool_), *chosen, mx::array(true), -1);
  return attend(seen, "", mx::logical_and(mask, causal));
}

// The rotary parts' products are what is added to those of the others.
mx::array MlxLatentAttention::AttendUnpacked(const Queries& queries, const mx::array& seen,
                                             int begin) const {
  const int rank = traits_.kv_rank;
  const mx::array latent = Part(seen, 0, rank);
  const mx::array keys = ByHead(embed_q_, latent, /*back=*/true);
  const mx::array values = ByHead(unembed_out_, latent);
  const mx::array scale(traits_.scale, queries.rope.dtype());
  const mx::array products = mx::matmul(mx::multiply(queries.rope, scale),
                                        mx::swapaxes(Part(seen, rank, traits_.width()), -1, -2));
  const mx::array lowest(-std::numeric_limits<float>::infinity(), products.dtype());
  const mx::array added = mx::where(Causal(begin, queries.nope.shape(2)), products, lowest);
  return mx::fast::scaled_dot_product_attention(queries.nope, keys, values, traits_.scale, "",
                                                added);
}

// A row and position take 2 rank + rope products a head absorbed, nope + rope + value unpacked, and
// a position rank x (nope + value) to be unpacked.
bool MlxLatentAttention::UnpacksFor(int count) const {
  const int64_t unpacked = int64_t{traits_.nope} + traits_.value;
  return count * (2 * int64_t{traits_.kv_rank} - unpacked) > traits_.kv_rank * unpacked;
}

mx::array MlxLatentAttention::Apply(const mx::array& x, const MlxLatentStep& step) const {
  const StepRows& rows = step.rows;
  const int rank = traits_.kv_rank, nope = traits_.nope, rope = traits_.rope;
  const auto norm = [&](const mx::array& vector, const mx::array& weight) {
    return mx::fast::rms_norm(vector, weight, traits_.norm_eps);
  };
  const mx::array from = q_a_.has_value() ? norm(q_a_->Apply(x), *q_a_norm_) : x;
  const mx::array queries = rows.Laid(q_b_.Apply(from), heads_, nope + rope);
  const mx::array turned = step.rope.Turned(Part(queries, nope, nope + rope), rows.offsets());
  const mx::array straight = Part(queries, 0, nope);
  const mx::array both = kv_a_.Apply(x);
  const mx::array latent = rows.Laid(norm(Part(both, 0, rank), kv_a_norm_), 1, rank);
  const mx::array key =
      step.rope.Turned(rows.Laid(Part(both, rank, traits_.width()), 1, rope), rows.offsets());
  const KvRowsKept pool = step.pools.Write(step.entry, KvSide::kKeys,
                                           mx::concatenate({latent, key}, -1), rows.written());
  std::optional<MlxSparseIndex::Rows> index;
  if (index_.has_value()) index = index_->Project(x, from, step);
  const std::vector<mx::array> each_straight = rows.Each(straight), each_turned = rows.Each(turned);
  std::vector<mx::array> given;
  for (const StepRows::Sequence& sequence : rows.sequences()) {
    const Queries own{each_straight[sequence.number], each_turned[sequence.number]};
    const KvRowsKept kept = rows.SeenAsKept(pool, sequence);
    const mx::array seen = given.empty() ? kept.Whole() : kept.Behind(given.back()).Whole();
    const auto chosen = index.has_value() ? index_->Choose(sequence, *index, rows) : std::nullopt;
    given.push_back(!chosen.has_value() && UnpacksFor(sequence.count)
                        ? AttendUnpacked(own, seen, sequence.begin)
                        : AttendAbsorbed(own, seen, sequence.begin, chosen));
  }
  return rows.Joined(given);
}

}  // namespace macrame::runtime::engine
