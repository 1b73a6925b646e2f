#include "runtime/model/mlx_latent_attention.h"

#include <utility>
#include <vector>

namespace macrame::runtime::engine {
namespace {

namespace mx = mlx::core;

// x [1, heads, count, columns] -> [1, heads, count, rows], each head by its own map.
mx::array ByHead(const StackedMatrix& maps, const mx::array& x) {
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

struct Maps {
  StackedMatrix embed_q, unembed_out;
};

Maps LoadMaps(const LatentTraits& traits, int heads, const LatentNeeds& needs,
              WeightLoader& loader) {
  if (loader.IsStoredByHead(needs)) {
    StackedMatrix embed_q = loader.LoadHeads(needs.embed_q);
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

MlxLatentAttention::MlxLatentAttention(const ModelConfig& config, const ShardPlace& place,
                                       const LatentNeeds& needs, WeightLoader& loader)
    : traits_(config.latent),
      heads_(KvHeadsOf(config, place.slices()).size()),
      q_a_(needs.q_a.has_value() ? std::optional<Matrix>(loader.LoadMatrix(*needs.q_a))
                                 : std::nullopt),
      q_b_(loader.LoadMatrix(needs.q_b)),
      kv_a_(loader.LoadMatrix(needs.kv_a)),
      embed_q_{mx::array(0.0F), std::nullopt, std::nullopt},
      unembed_out_{mx::array(0.0F), std::nullopt, std::nullopt},
      kv_a_norm_(mx::array(0.0F)) {
  if (heads_ > 0) {
    Maps maps = LoadMaps(traits_, heads_, needs, loader);
    embed_q_ = std::move(maps.embed_q);
    unembed_out_ = std::move(maps.unembed_out);
  }
  q_a_norm_ = loader.LoadVector(needs.q_a_norm);
  kv_a_norm_ = *loader.LoadVector(needs.kv_a_norm);
}

mx::array MlxLatentAttention::Mix(const Segment& segment, const mx::array& queries,
                                  const mx::array& keys, const MlxLatentStep& step) const {
  const int begin = static_cast<int>(segment.begin), rank = traits_.kv_rank;
  const int count = keys.shape(2), nope = traits_.nope;
  const auto turned = [&](const mx::array& x, int from) {
    return step.rotate(Part(x, from, from + traits_.rope), begin);
  };
  const mx::array seen =
      step.append(segment, mx::concatenate({Part(keys, 0, rank), turned(keys, rank)}, -1));
  const mx::array embedded =
      mx::concatenate({ByHead(embed_q_, Part(queries, 0, nope)), turned(queries, nope)}, -1);
  const mx::array mixed = mx::fast::scaled_dot_product_attention(
      embedded, seen, Part(seen, 0, rank), traits_.scale, count == 1 ? "" : "causal");
  return ByHead(unembed_out_, mixed);
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
  std::vector<mx::array> mixed;
  int row = 0;
  for (const Segment& segment : step.step.segments) {
    const int end = row + static_cast<int>(segment.tokens.size());
    const auto part = [&](const mx::array& all) {
      return mx::slice(all, {0, 0, row, 0}, {1, all.shape(1), end, all.shape(3)});
    };
    mixed.push_back(Mix(segment, part(queries), part(keys), step));
    row = end;
  }
  const mx::array together = mixed.size() == 1 ? mixed[0] : mx::concatenate(mixed, 2);
  return mx::reshape(mx::transpose(together, {0, 2, 1, 3}), {rows, heads_ * traits_.value});
}

}  // namespace macrame::runtime::engine
