#include "runtime/model/decoder.h"

#include <algorithm>
#include <cmath>

#include "proto/check.h"

namespace macrame::runtime::engine {

namespace mx = mlx::core;

std::vector<bool> SlidingMask(int begin, int count, int window) {
  const int end = begin + count;
  std::vector<bool> mask(static_cast<size_t>(count) * end);
  for (int q = begin; q < end; ++q) {
    for (int k = std::max(0, q - window + 1); k <= q; ++k) {
      mask[static_cast<size_t>(q - begin) * end + k] = true;
    }
  }
  return mask;
}

Decoder::Decoder(const ModelConfig& config, const ShardPlace& place, WeightLoader& loader,
                 RankSums& sums, const LayerStackOptions& options)
    : config_(config),
      place_(place),
      sums_(sums),
      activation_type_(loader.activation_type()),
      tables_(options.blocks_total, options.context_length),
      slot_states_(options.sequences_max, options.state_snapshots),
      states_(options.sequences_max, options.state_snapshots),
      blocks_(AttentionLayersOf(config, place), options.blocks_total),
      rope_layout_(RopeLayoutOf(config.rope, config.local_rope, options.context_length)),
      rope_(MakeRope(config.rope, config.has_latent() ? config.latent.rope : config.head_dim,
                     options.context_length)),
      local_rope_(
          config.local_rope.has_value()
              ? std::optional(MakeRope(*config.local_rope, config.head_dim, options.context_length))
              : std::nullopt) {
  if (place.embeds) embedding_.emplace(loader.LoadMatrix(EmbeddingNeed(config, place)));
  layers_.reserve(place.layer_end - place.layer_begin);
  for (int layer = place.layer_begin; layer < place.layer_end; ++layer) {
    layers_.push_back(LoadLayer(config, place, layer, loader));
  }
  if (place.has_head) final_norm_ = loader.LoadVector(FinalNormNeed(config));
  if (LoadsHead(config, place)) head_.emplace(loader.LoadMatrix(HeadNeed(config, place)));
}

Decoder::Layer Decoder::LoadLayer(const ModelConfig& config, const ShardPlace& place, int layer,
                                  WeightLoader& loader) {
  const LayerNeeds needs = NeedsOfLayer(config, place, layer);
  const auto load = [&](const MatrixNeed& need) -> std::optional<Matrix> {
    if (need.module.empty()) return std::nullopt;
    return loader.LoadMatrix(need);
  };
  const auto load_feed = [&]() -> std::optional<std::variant<Dense, MlxExperts>> {
    if (needs.router.has_value()) return MlxExperts(needs, config, loader);
    if (!needs.feed.has_value()) return std::nullopt;
    return Dense{load(needs.feed->gate), loader.LoadMatrix(needs.feed->up),
                 loader.LoadMatrix(needs.feed->down), config.activation};
  };
  const auto load_latent = [&]() -> std::optional<MlxLatentAttention> {
    if (!needs.latent.has_value()) return std::nullopt;
    return MlxLatentAttention(config, place, *needs.latent, loader);
  };
  const auto load_recurrent = [&]() -> std::optional<MlxRecurrent> {
    if (!needs.recurrent.has_value()) return std::nullopt;
    return MlxRecurrent(config, place, *needs.recurrent, loader);
  };
  return Layer{load(needs.q),
               load(needs.k),
               load(needs.v),
               load_latent(),
               load_recurrent(),
               load(needs.o),
               load_feed(),
               loader.LoadVector(needs.attention_norm),
               loader.LoadVector(needs.attention_out_norm),
               loader.LoadVector(needs.feed_norm),
               loader.LoadVector(needs.feed_out_norm),
               loader.LoadVector(needs.q_norm),
               loader.LoadVector(needs.k_norm),
               loader.LoadVector(needs.sinks),
               config.sliding_windows[layer],
               config.rope_uses[static_cast<size_t>(layer)]};
}

absl::Status Decoder::Begin(const ForwardStep& step) {
  if (!config_.has_state()) return tables_.Apply(step, config_.vocab_size);
  absl::Status good = slot_states_.Check(step);
  if (good.ok()) good = tables_.Apply(step, config_.vocab_size);
  if (!good.ok()) return good;
  slot_states_.Apply(step);
  std::vector<const MlxRecurrent*> layers;
  for (const Layer& layer : layers_) {
    if (layer.recurrent.has_value()) layers.push_back(&*layer.recurrent);
  }
  states_.Open(slot_states_.opened(), layers);
  return good;
}

mx::array Decoder::Embed(std::span<const int32_t> ids) {
  MACRAME_CHECK(embedding_.has_value()) << "this rank holds no embedding";
  const auto scaled = [&](const mx::array& rows) {
    if (config_.embedding_scale == 1.0F) return rows;
    return mx::multiply(rows, mx::array(config_.embedding_scale, rows.dtype()));
  };
  if (place_.tp == 1) return scaled(mx::squeeze(embedding_->Rows(ids, activation_type_), 0));
  const Range own = VocabularyOf(config_, place_.slices());
  const int count = static_cast<int>(ids.size());
  if (own.size() == 0) {
    return scaled(
        sums_.SumExactlyOverRanks(mx::zeros({count, config_.hidden_size}, activation_type_)));
  }
  std::vector<int32_t> rows;
  std::vector<bool> held;
  for (const int32_t id : ids) {
    held.push_back(id >= own.begin && id < own.end);
    rows.push_back(held.back() ? id - own.begin : 0);
  }
  const mx::array there = mx::squeeze(embedding_->Rows(rows, activation_type_), 0);
  const mx::array mask(held.begin(), {count, 1}, mx::bool_);
  return scaled(sums_.SumExactlyOverRanks(mx::where(mask, there, mx::zeros_like(there))));
}

Decoder::Rope Decoder::MakeRope(const RopeTraits& traits, int head_dim, int context_length) {
  const RopeTable table = MakeRopeTable(traits, context_length);
  Rope rope{traits, table.position_scale, std::nullopt, std::nullopt};
  if (!table.divisors.empty()) {
    rope.divisors = mx::array(table.divisors.data(), {static_cast<int>(table.divisors.size())});
  }
  if (table.magnitude != 1.0F) {
    std::vector<float> each(static_cast<size_t>(head_dim), 1.0F);
    std::fill_n(each.begin(), traits.dims, table.magnitude);
    rope.magnitudes = mx::array(each.data(), {head_dim});
  }
  return rope;
}

mx::array Decoder::Rope::Rotate(const mx::array& x, int begin, bool interleaved) const {
  const mx::array scaled =
      magnitudes.has_value() ? mx::multiply(x, mx::astype(*magnitudes, x.dtype())) : x;
  const auto base =
      divisors.has_value() ? std::nullopt : std::optional(static_cast<float>(traits.theta));
  return mx::fast::rope(scaled, traits.dims, interleaved, base, position_scale, begin, divisors);
}

mx::array Decoder::Rotate(const Layer& layer, const mx::array& x, int begin) const {
  if (layer.rope == RopeUse::kNone) return x;
  const bool local = layer.rope == RopeUse::kLocal && local_rope_.has_value();
  return (local ? *local_rope_ : rope_).Rotate(x, begin);
}

mx::array Decoder::Mix(const Layer& layer, int index, const Segment& segment,
                       const mx::array& queries, const mx::array& keys, const mx::array& values) {
  const int begin = static_cast<int>(segment.begin);
  const int count = static_cast<int>(segment.tokens.size());
  const MlxKvBlocks::View seen =
      blocks_.Append(index, tables_.Table(segment.slot), begin, Rotate(layer, keys, begin), values);
  const bool windowed = layer.sliding_window > 0 && begin + count > layer.sliding_window;
  std::optional<mx::array> mask;
  if (windowed) {
    const std::vector<bool> visible = SlidingMask(begin, count, layer.sliding_window);
    mask = mx::array(visible.begin(), {1, 1, count, begin + count}, mx::bool_);
  }
  mx::array turned = Rotate(layer, queries, begin);
  if (config_.ScalesQueries()) {
    std::vector<float> scales;
    for (int i = 0; i < count; ++i) {
      scales.push_back(config_.QueryScaleAt(segment.begin + static_cast<size_t>(i)));
    }
    turned = mx::multiply(turned, mx::array(scales.begin(), {1, 1, count, 1}, turned.dtype()));
  }
  const float scale = 1.0F / std::sqrt(static_cast<float>(config_.head_dim));
  return mx::fast::scaled_dot_product_attention(turned, seen.keys, seen.values, scale,
                                                windowed || count == 1 ? "" : "causal", mask,
                                                layer.sinks);
}

mx::array Decoder::Recur(const Layer& layer, size_t index, const mx::array& x,
                         const ForwardStep& step) {
  if (StateHeadsOf(config_, place_.slices()).size() == 0) {
    return layer.o->Apply(mx::zeros({x.shape(0), 0}, x.dtype()));
  }
  std::vector<MlxState*> states;
  for (const Segment& segment : step.segments) {
    states.push_back(&states_.Layer(slot_states_.StateOf(segment.slot), index));
  }
  return layer.o->Apply(layer.recurrent->Apply(x, step, states));
}

mx::array Decoder::Attend(const Layer& layer, int index, const mx::array& x,
                          const ForwardStep& step) {
  const int rows = x.shape(0);
  const int kv_heads = KvHeadsOf(config_, place_.slices()).size();
  const int heads = kv_heads * (config_.attention_heads / config_.kv_heads);
  if (heads == 0) {
    const mx::array nothing = layer.o->Apply(mx::zeros({rows, 0}, x.dtype()));
    if (!config_.qk_norm_whole || place_.tp == 1) return nothing;
    // The other ranks' norms wait for this rank's part, after what is summed before it.
    const mx::array none = mx::depends({mx::zeros({rows, 2})}, {x})[0];
    return mx::depends({nothing}, {sums_.SumExactlyOverRanks(none)})[0];
  }
  if (layer.latent.has_value()) {
    const auto rotate = [&](const mx::array& part, int begin, bool interleaved) {
      return rope_.Rotate(part, begin, interleaved);
    };
    const auto append = [&](const Segment& segment, const mx::array& keys) {
      return blocks_.AppendKeys(index, tables_.Table(segment.slot), static_cast<int>(segment.begin),
                                keys);
    };
    const auto append_index = [&](const Segment& segment, const mx::array& keys) {
      return blocks_.AppendIndex(index, tables_.Table(segment.slot),
                                 static_cast<int>(segment.begin), keys);
    };
    return layer.o->Apply(layer.latent->Apply(x, {step, rotate, append, append_index}));
  }
  const auto split_heads = [&](const mx::array& projected, int head_count,
                               const std::optional<mx::array>& norm) {
    mx::array by_head = mx::reshape(projected, {1, rows, head_count, config_.head_dim});
    if (config_.qk_norm && norm.has_value()) {
      by_head = mx::fast::rms_norm(by_head, norm, config_.rms_norm_eps);
    }
    return mx::transpose(by_head, {0, 2, 1, 3});
  };
  mx::array all_queries = layer.q->Apply(x), all_keys = layer.k->Apply(x);
  std::optional<mx::array> gate;
  if (config_.attention_gate) {
    const mx::array both = mx::reshape(all_queries, {rows, heads, 2, config_.head_dim});
    const auto half = [&](int which) {
      return mx::reshape(
          mx::slice(both, {0, 0, which, 0}, {rows, heads, which + 1, config_.head_dim}),
          {rows, heads * config_.head_dim});
    };
    all_queries = half(0);
    gate = mx::sigmoid(half(1));
  }
  if (config_.qk_norm_whole) NormWhole(layer, all_queries, all_keys);
  const mx::array queries = split_heads(all_queries, heads, layer.q_norm);
  const mx::array keys = split_heads(all_keys, kv_heads, layer.k_norm);
  const mx::array values = split_heads(layer.v->Apply(x), kv_heads, std::nullopt);
  std::vector<mx::array> mixed;
  int row = 0;
  for (const Segment& segment : step.segments) {
    const int end = row + static_cast<int>(segment.tokens.size());
    const auto part = [&](const mx::array& all) {
      return mx::slice(all, {0, 0, row, 0}, {1, all.shape(1), end, config_.head_dim});
    };
    mixed.push_back(Mix(layer, index, segment, part(queries), part(keys), part(values)));
    row = end;
  }
  const mx::array together = mixed.size() == 1 ? mixed[0] : mx::concatenate(mixed, 2);
  const mx::array given =
      mx::reshape(mx::transpose(together, {0, 2, 1, 3}), {rows, heads * config_.head_dim});
  return layer.o->Apply(gate.has_value() ? mx::multiply(given, *gate) : given);
}

void Decoder::NormWhole(const Layer& layer, mx::array& queries, mx::array& keys) const {
  if (place_.tp == 1) {
    queries = mx::fast::rms_norm(queries, layer.q_norm, config_.rms_norm_eps);
    keys = mx::fast::rms_norm(keys, layer.k_norm, config_.rms_norm_eps);
    return;
  }
  const auto squares_of = [](const mx::array& x) {
    return mx::sum(mx::square(mx::astype(x, mx::float32)), -1, /*keepdims=*/true);
  };
  const mx::array squares =
      sums_.SumExactlyOverRanks(mx::concatenate({squares_of(queries), squares_of(keys)}, -1));
  const auto scaled = [&](const mx::array& x, int column, int heads, const mx::array& weight) {
    const mx::array own = mx::slice(squares, {0, column}, {x.shape(0), column + 1});
    const auto whole = static_cast<float>(heads * config_.head_dim);
    const mx::array by =
        mx::rsqrt(mx::add(mx::divide(own, mx::array(whole)), mx::array(config_.rms_norm_eps)));
    return mx::astype(mx::multiply(mx::multiply(mx::astype(x, mx::float32), by), weight),
                      x.dtype());
  };
  queries = scaled(queries, 0, config_.attention_heads, *layer.q_norm);
  keys = scaled(keys, 1, config_.kv_heads, *layer.k_norm);
}

mx::array Decoder::Normed(const mx::array& x, const std::optional<mx::array>& norm) const {
  return norm.has_value() ? mx::fast::rms_norm(x, *norm, config_.rms_norm_eps) : x;
}

mx::array Decoder::Joined(const mx::array& partial, const std::optional<mx::array>& norm) const {
  const mx::array whole = Normed(sums_.SumOverRanks(partial), norm);
  if (config_.residual_scale == 1.0F) return whole;
  return mx::multiply(whole, mx::array(config_.residual_scale, whole.dtype()));
}

mx::array Decoder::FirstHalf(const Layer& layer, const mx::array& hidden, const ForwardStep& step,
                             int& attending, size_t& recurring) {
  const mx::array in = Normed(hidden, layer.attention_norm);
  return layer.recurrent.has_value() ? Recur(layer, recurring++, in, step)
                                     : Attend(layer, attending++, in, step);
}

mx::array Decoder::Run(const mx::array& given, const ForwardStep& step) {
  mx::array hidden = given;
  int attending = 0;
  size_t recurring = 0;
  for (const Layer& layer : layers_) {
    if (layer.o.has_value()) {
      const mx::array mixed = FirstHalf(layer, hidden, step, attending, recurring);
      hidden = mx::add(hidden, Joined(mixed, layer.attention_out_norm));
    }
    if (!layer.feed.has_value()) continue;
    const mx::array inner = Normed(hidden, layer.feed_norm);
    const mx::array fed =
        std::visit([&](const auto& feed) { return feed.Apply(inner); }, *layer.feed);
    hidden = mx::add(hidden, Joined(fed, layer.feed_out_norm));
  }
  states_.Keep(slot_states_.kept());
  return hidden;
}

mx::array Decoder::NormRows(const mx::array& hidden, std::span<const int32_t> rows) const {
  MACRAME_CHECK(final_norm_.has_value()) << "this rank is not of the last stage";
  const mx::array index(rows.data(), {static_cast<int>(rows.size())}, mx::int32);
  return mx::fast::rms_norm(mx::take(hidden, index, 0), *final_norm_, config_.rms_norm_eps);
}

mx::array Decoder::Hidden(const mx::array& hidden, std::span<const int32_t> rows) {
  return mx::contiguous(mx::astype(NormRows(hidden, rows), mx::float32));
}

mx::array Decoder::Logits(const mx::array& hidden, std::span<const int32_t> rows) {
  MACRAME_CHECK(config_.has_head) << "the model has no head";
  const Matrix& head = head_.has_value() ? *head_ : *embedding_;
  const mx::array logits = mx::astype(head.Apply(NormRows(hidden, rows)), mx::float32);
  if (config_.logit_scale == 1.0F) return logits;
  return mx::multiply(logits, mx::array(config_.logit_scale));
}

void Decoder::AppendState(std::vector<mx::array>& out) const {
  blocks_.AppendPools(out);
  states_.Append(out);
}

}  // namespace macrame::runtime::engine
