#include "runtime/model/mlx/decoder.h"

#include <algorithm>
#include <cmath>

#include "proto/check.h"
#include "runtime/model/weights/block_needs.h"

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

namespace {

// Of the layers whose keys and values a place keeps, those of which this rank has heads.
std::vector<int> KvLayersWithHeads(const ModelConfig& config, const ShardPlace& place) {
  std::vector<int> layers = KvLayersOf(config, place);
  std::erase_if(layers,
                [&](int layer) { return KvHeadsOf(config, layer, place.slices()).size() == 0; });
  return layers;
}

// And of those, how many keep keys of an indexer besides.
size_t IndexedWithHeads(const ModelConfig& config, const ShardPlace& place) {
  if (KvHeadsOf(config, place.slices()).size() == 0) return 0;
  return BlockIndexLayersOf(config, place).size();
}

mx::array Columns(const mx::array& rows, int begin, int count) {
  return mx::slice(rows, {0, begin}, {rows.shape(0), begin + count});
}

}  // namespace

Decoder::Decoder(const ModelConfig& config, const ShardPlace& place, WeightLoader& loader,
                 RankSums& sums, const LayerStackOptions& options)
    : config_(config),
      place_(place),
      sums_(sums),
      activation_type_(loader.activation_type()),
      tables_(options.blocks_total, options.context_length),
      slot_states_(options.sequences_max, options.state_snapshots),
      states_(options.sequences_max, options.state_snapshots),
      in_(CarriedInto(config, place.layer_begin)),
      out_(CarriedInto(config, place.layer_end)),
      kv_layers_(KvLayersWithHeads(config, place)),
      blocks_(static_cast<int>(kv_layers_.size() + IndexedWithHeads(config, place)),
              options.blocks_total),
      rope_layout_(RopeLayoutOf(config.rope, config.local_rope, options.context_length)),
      rope_(MakeRope(config.rope,
                     config.has_latent()               ? config.latent.rope
                     : config.global_heads.has_value() ? config.global_heads->dim
                                                       : config.head_dim,
                     options.context_length)),
      local_rope_(
          config.local_rope.has_value()
              ? std::optional(MakeRope(*config.local_rope, config.head_dim, options.context_length))
              : std::nullopt) {
  if (place.embeds) {
    embedding_.emplace(loader.LoadLinear(EmbeddingNeed(config, place)));
    if (const auto needs = InputNeedsOf(config, place)) inputs_.emplace(*needs, config, loader);
  }
  layers_.reserve(place.layer_end - place.layer_begin);
  for (int layer = place.layer_begin; layer < place.layer_end; ++layer) {
    layers_.push_back(LoadLayer(layer, loader));
  }
  if (place.has_head) final_norm_ = loader.LoadVector(FinalNormNeed(config));
  if (LoadsHead(config, place)) head_.emplace(loader.LoadLinear(HeadNeed(config, place)));
}

int Decoder::KvIndexOf(int layer) const {
  const auto found = std::find(kv_layers_.begin(), kv_layers_.end(), layer);
  return found == kv_layers_.end() ? -1 : static_cast<int>(found - kv_layers_.begin());
}

std::optional<Decoder::Beside> Decoder::LoadBeside(const LayerNeeds& needs,
                                                   WeightLoader& loader) const {
  if (!needs.beside.has_value()) return std::nullopt;
  MlxExperts experts(needs, config_, loader);
  const BesideNeeds& own = *needs.beside;
  mx::array feed_out = *loader.LoadVector(own.feed_out_norm);
  mx::array experts_in = *loader.LoadVector(own.experts_in_norm);
  mx::array experts_out = *loader.LoadVector(own.experts_out_norm);
  const float root = 1.0F / std::sqrt(static_cast<float>(config_.hidden_size));
  const mx::array router = mx::multiply(*loader.LoadVector(own.router_scale), mx::array(root));
  return Beside{std::move(experts), std::move(feed_out), std::move(experts_in),
                std::move(experts_out), mx::astype(router, activation_type_)};
}

Decoder::Layer Decoder::LoadLayer(int layer, WeightLoader& loader) const {
  const ModelConfig& config = config_;
  const ShardPlace& place = place_;
  const LayerNeeds needs = NeedsOfLayer(config, place, layer);
  const auto load = [&](const LinearNeed& need) -> std::optional<Linear> {
    if (need.module.empty()) return std::nullopt;
    return loader.LoadLinear(need);
  };
  const auto load_feed = [&]() -> std::optional<std::variant<Dense, MlxExperts>> {
    if (!needs.feed.has_value()) {
      if (!needs.router.has_value()) return std::nullopt;
      return MlxExperts(needs, config, loader);
    }
    return Dense{load(needs.feed->gate), loader.LoadLinear(needs.feed->up),
                 loader.LoadLinear(needs.feed->down), config.activation,
                 config.clamped_feeds ? &config.experts : nullptr};
  };
  const auto load_latent = [&]() -> std::optional<MlxLatentAttention> {
    if (!needs.latent.has_value()) return std::nullopt;
    return MlxLatentAttention(config, place, *needs.latent, loader);
  };
  const auto load_recurrent = [&]() -> std::optional<MlxRecurrent> {
    if (!needs.recurrent.has_value()) return std::nullopt;
    return MlxRecurrent(config, place, *needs.recurrent, loader);
  };
  const auto load_input = [&]() -> std::optional<MlxLayerInput> {
    if (!needs.input.has_value()) return std::nullopt;
    return MlxLayerInput(*needs.input, config, loader);
  };
  const HeadTraits heads = config.HeadsOf(layer);
  const int kv_heads = KvHeadsOf(config, layer, place.slices()).size();
  const auto load_index = [&]() -> std::optional<MlxBlockIndex> {
    if (!needs.block_index.has_value()) return std::nullopt;
    return MlxBlockIndex(config, place, *needs.block_index, loader);
  };
  const size_t indexed_before = BlockIndexLayersOf(config, {place.layer_begin, layer}).size();
  return Layer{load(needs.q),
               load(needs.k),
               load(needs.v),
               load_latent(),
               load_recurrent(),
               load_index(),
               load(needs.o),
               load_feed(),
               LoadBeside(needs, loader),
               load_input(),
               loader.LoadVector(needs.attention_norm),
               loader.LoadVector(needs.attention_out_norm),
               loader.LoadVector(needs.feed_norm),
               loader.LoadVector(needs.feed_out_norm),
               loader.LoadVector(needs.q_norm),
               loader.LoadVector(needs.k_norm),
               loader.LoadVector(needs.sinks),
               loader.LoadVector(needs.scalar),
               config.sliding_windows[layer],
               config.rope_uses[static_cast<size_t>(layer)],
               heads,
               kv_heads * (config.attention_heads / heads.kv_heads),
               kv_heads,
               layer,
               KvIndexOf(config.KvSourceOf(layer)),
               static_cast<int>(kv_layers_.size() + indexed_before),
               out_.KvOf(layer) != nullptr};
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

mx::array Decoder::Lookup(const Linear& table, int columns, std::span<const int32_t> ids) {
  if (place_.tp == 1) return mx::squeeze(table.Rows(ids, activation_type_), 0);
  const Range own = VocabularyOf(config_, place_.slices());
  const int count = static_cast<int>(ids.size());
  if (own.size() == 0) {
    return sums_.SumExactlyOverRanks(mx::zeros({count, columns}, activation_type_));
  }
  std::vector<int32_t> rows;
  std::vector<bool> held;
  for (const int32_t id : ids) {
    held.push_back(id >= own.begin && id < own.end);
    rows.push_back(held.back() ? id - own.begin : 0);
  }
  const mx::array there = mx::squeeze(table.Rows(rows, activation_type_), 0);
  const mx::array mask(held.begin(), {count, 1}, mx::bool_);
  return sums_.SumExactlyOverRanks(mx::where(mask, there, mx::zeros_like(there)));
}

mx::array Decoder::Embed(std::span<const int32_t> ids) {
  MACRAME_CHECK(embedding_.has_value()) << "this rank holds no embedding";
  mx::array hidden = Lookup(*embedding_, config_.hidden_size, ids);
  if (config_.embedding_scale != 1.0F) {
    hidden = mx::multiply(hidden, mx::array(config_.embedding_scale, hidden.dtype()));
  }
  if (!inputs_.has_value()) return hidden;
  // Every rank takes part in the two sums one after the other.
  if (place_.tp > 1) hidden.eval();
  const mx::array looked_up = Lookup(inputs_->table(), in_.width - in_.hidden, ids);
  return mx::concatenate({hidden, inputs_->Make(looked_up, hidden)}, -1);
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

mx::array Decoder::Mix(const Layer& layer, const Segment& segment, size_t number,
                       const Projected& part) {
  const int begin = static_cast<int>(segment.begin);
  const int count = static_cast<int>(segment.tokens.size());
  auto& views = views_[static_cast<size_t>(layer.kv)];
  if (part.keys.has_value()) {
    const mx::array keys = Rotate(layer, *part.keys, begin);
    if (layer.is_read) KeepForLater(layer, keys, *part.values);
    views.push_back(
        blocks_.Append(layer.kv, tables_.Table(segment.slot), begin, keys, *part.values));
  }
  const MlxKvBlocks::View& seen = views[number];
  const bool windowed = layer.sliding_window > 0 && begin + count > layer.sliding_window;
  std::optional<mx::array> mask;
  if (windowed) {
    const std::vector<bool> visible = SlidingMask(begin, count, layer.sliding_window);
    mask = mx::array(visible.begin(), {1, 1, count, begin + count}, mx::bool_);
  }
  mx::array turned = Rotate(layer, part.queries, begin);
  if (config_.ScalesQueries()) {
    std::vector<float> scales;
    for (int i = 0; i < count; ++i) {
      scales.push_back(
          config_.QueryScaleAt(segment.begin + static_cast<size_t>(i), layer.traits.dim));
    }
    turned = mx::multiply(turned, mx::array(scales.begin(), {1, 1, count, 1}, turned.dtype()));
  }
  const auto chosen = part.index.has_value() ? ChosenBy(layer, segment, *part.index) : std::nullopt;
  if (chosen.has_value()) {
    return layer.block_index->Attend(turned, seen.keys, seen.values, *chosen);
  }
  const float scale = 1.0F / std::sqrt(static_cast<float>(layer.traits.dim));
  return mx::fast::scaled_dot_product_attention(turned, seen.keys, seen.values, scale,
                                                windowed || count == 1 ? "" : "causal", mask,
                                                layer.sinks);
}

std::optional<mx::array> Decoder::ChosenBy(const Layer& layer, const Segment& segment,
                                           const MlxBlockIndex::Rows& index) {
  const int begin = static_cast<int>(segment.begin);
  const mx::array keys = blocks_.AppendKeys(layer.index, tables_.Table(segment.slot), begin,
                                            Rotate(layer, index.keys, begin));
  return layer.block_index->Choose(Rotate(layer, index.queries, begin), keys, begin);
}

void Decoder::KeepForLater(const Layer& layer, const mx::array& keys, const mx::array& values) {
  // Of all heads, zeros where this rank has not one.
  const Range own = KvHeadsOf(config_, layer.number, place_.slices());
  const auto rows_of = [&](const mx::array& all) {
    const mx::array whole =
        mx::pad(all, std::vector<int>{1}, {own.begin}, {layer.traits.kv_heads - own.end},
                mx::array(0.0F, all.dtype()));
    return mx::reshape(mx::transpose(whole, {0, 2, 1, 3}),
                       {all.shape(2), layer.traits.kv_heads * layer.traits.dim});
  };
  read_kv_[layer.number].push_back(mx::concatenate({rows_of(keys), rows_of(values)}, -1));
}

void Decoder::TakeCarried(const mx::array& given, const ForwardStep& step) {
  views_.assign(kv_layers_.size(), {});
  read_kv_.clear();
  for (const CarriedRow::Kv& kv : in_.kv) {
    const int index = KvIndexOf(kv.layer);
    if (index < 0) continue;
    const Range own = KvHeadsOf(config_, kv.layer, place_.slices());
    int row = 0;
    for (const Segment& segment : step.segments) {
      const int count = static_cast<int>(segment.tokens.size());
      const auto heads_from = [&](int begin) {
        const int first = begin + own.begin * kv.heads.dim;
        const mx::array part =
            mx::slice(given, {row, first}, {row + count, first + own.size() * kv.heads.dim});
        return mx::transpose(mx::reshape(part, {1, count, own.size(), kv.heads.dim}), {0, 2, 1, 3});
      };
      views_[static_cast<size_t>(index)].push_back(
          blocks_.Append(index, tables_.Table(segment.slot), static_cast<int>(segment.begin),
                         heads_from(kv.begin), heads_from(kv.begin + kv.size())));
      row += count;
    }
  }
}

mx::array Decoder::HandOn(const mx::array& given, const mx::array& hidden) const {
  if (out_.width == out_.hidden) return hidden;
  const int rows = hidden.shape(0);
  std::vector<mx::array> parts{hidden}, own;
  const int inputs = (config_.layer_count - place_.layer_end) * config_.layer_input_width;
  if (inputs > 0) parts.push_back(Columns(given, in_.InputBegin(place_.layer_end), inputs));
  for (const CarriedRow::Kv& kv : out_.kv) {  // those of earlier stages come first
    if (const CarriedRow::Kv* held = in_.KvOf(kv.layer); held != nullptr) {
      parts.push_back(Columns(given, held->begin, 2 * kv.size()));
    } else if (const auto kept = read_kv_.find(kv.layer); kept != read_kv_.end()) {
      own.push_back(mx::concatenate(kept->second, 0));
    } else {
      own.push_back(mx::zeros({rows, 2 * kv.size()}, hidden.dtype()));
    }
  }
  if (own.empty()) return mx::concatenate(parts, -1);
  // After all sums of the layers, on every rank.
  const mx::array read = mx::depends({mx::concatenate(own, -1)}, {hidden})[0];
  parts.push_back(sums_.SumExactlyOverRanks(read));
  return mx::concatenate(parts, -1);
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

mx::array Decoder::AttendToNothing(const Layer& layer, const mx::array& x) const {
  const int rows = x.shape(0);
  const mx::array nothing = layer.o->Apply(mx::zeros({rows, 0}, x.dtype()));
  if (!config_.qk_norm_whole || place_.tp == 1) return nothing;
  // The other ranks' norms wait for this rank's part, after what is summed before it.
  const mx::array none = mx::depends({mx::zeros({rows, 2})}, {x})[0];
  return mx::depends({nothing}, {sums_.SumExactlyOverRanks(none)})[0];
}

mx::array Decoder::AttendLatent(const Layer& layer, const mx::array& x, const ForwardStep& step) {
  const auto rotate = [&](const mx::array& part, int begin, bool interleaved) {
    return rope_.Rotate(part, begin, interleaved);
  };
  const auto append = [&](const Segment& segment, const mx::array& keys) {
    return blocks_.AppendKeys(layer.kv, tables_.Table(segment.slot),
                              static_cast<int>(segment.begin), keys);
  };
  const auto append_index = [&](const Segment& segment, const mx::array& keys) {
    return blocks_.AppendIndex(layer.kv, tables_.Table(segment.slot),
                               static_cast<int>(segment.begin), keys);
  };
  return layer.o->Apply(layer.latent->Apply(x, {step, rotate, append, append_index}));
}

Decoder::Projected Decoder::Project(const Layer& layer, const mx::array& x,
                                    std::optional<mx::array>& gate) const {
  const int rows = x.shape(0), dim = layer.traits.dim;
  const auto split_heads = [&](const mx::array& projected, int heads) {
    return mx::reshape(projected, {1, rows, heads, dim});
  };
  const auto normed = [&](const mx::array& by_head, const std::optional<mx::array>& norm) {
    const bool has_norm = config_.qk_norm && norm.has_value();
    return has_norm ? mx::fast::rms_norm(by_head, norm, config_.rms_norm_eps) : by_head;
  };
  const auto turned = [](const mx::array& by_head) { return mx::transpose(by_head, {0, 2, 1, 3}); };
  mx::array queries = layer.q->Apply(x);
  if (config_.attention_gate) {
    const mx::array both = mx::reshape(queries, {rows, layer.heads, 2, dim});
    const auto half = [&](int which) {
      return mx::reshape(mx::slice(both, {0, 0, which, 0}, {rows, layer.heads, which + 1, dim}),
                         {rows, layer.heads * dim});
    };
    queries = half(0);
    gate = mx::sigmoid(half(1));
  }
  if (!layer.k.has_value()) {
    return {turned(normed(split_heads(queries, layer.heads), layer.q_norm)), std::nullopt,
            std::nullopt};
  }
  mx::array keys = layer.k->Apply(x);
  if (config_.qk_norm_whole) NormWhole(layer, queries, keys);
  mx::array values = split_heads(layer.v.has_value() ? layer.v->Apply(x) : keys, layer.kv_heads);
  if (config_.value_norm) {
    values = mx::fast::rms_norm(values, std::nullopt, config_.rms_norm_eps);
  }
  return {turned(normed(split_heads(queries, layer.heads), layer.q_norm)),
          turned(normed(split_heads(keys, layer.kv_heads), layer.k_norm)), turned(values)};
}

mx::array Decoder::Attend(const Layer& layer, const mx::array& x, const ForwardStep& step) {
  if (layer.heads == 0) return AttendToNothing(layer, x);
  if (layer.latent.has_value()) return AttendLatent(layer, x, step);
  const int rows = x.shape(0), dim = layer.traits.dim;
  std::optional<mx::array> gate;
  const Projected all = Project(layer, x, gate);
  const auto index =
      layer.block_index.has_value() ? std::optional(layer.block_index->Project(x)) : std::nullopt;
  std::vector<mx::array> mixed;
  int row = 0;
  for (const Segment& segment : step.segments) {
    const int end = row + static_cast<int>(segment.tokens.size());
    const auto part = [&](const mx::array& whole) {
      return mx::slice(whole, {0, 0, row, 0}, {1, whole.shape(1), end, dim});
    };
    const auto part_of = [&](const std::optional<mx::array>& whole) {
      return whole.has_value() ? std::optional(part(*whole)) : std::nullopt;
    };
    mixed.push_back(Mix(layer, segment, mixed.size(),
                        {part(all.queries), part_of(all.keys), part_of(all.values),
                         index.has_value() ? std::optional(index->Part(row, end)) : std::nullopt}));
    row = end;
  }
  const mx::array together = mixed.size() == 1 ? mixed[0] : mx::concatenate(mixed, 2);
  const mx::array given =
      mx::reshape(mx::transpose(together, {0, 2, 1, 3}), {rows, layer.heads * dim});
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
                             size_t& recurring) {
  const mx::array in = Normed(hidden, layer.attention_norm);
  return layer.recurrent.has_value() ? Recur(layer, recurring++, in, step)
                                     : Attend(layer, in, step);
}

mx::array Decoder::SecondHalf(const Layer& layer, const mx::array& hidden) const {
  const mx::array inner = Normed(hidden, layer.feed_norm);
  const mx::array fed =
      std::visit([&](const auto& feed) { return feed.Apply(inner); }, *layer.feed);
  if (!layer.beside.has_value()) return Joined(fed, layer.feed_out_norm);
  const Beside& beside = *layer.beside;
  const mx::array first = sums_.SumOverRanks(fed);
  const mx::array given = beside.experts.Apply(Normed(hidden, beside.experts_in_norm),
                                               Normed(hidden, beside.router_norm));
  // Every rank takes part in the two sums one after the other.
  const mx::array second = sums_.SumOverRanks(mx::depends({given}, {first})[0]);
  const mx::array both =
      mx::add(Normed(first, beside.feed_out_norm), Normed(second, beside.experts_out_norm));
  return Normed(both, layer.feed_out_norm);
}

mx::array Decoder::Run(const mx::array& given, const ForwardStep& step) {
  mx::array hidden = in_.width == in_.hidden ? given : Columns(given, 0, in_.hidden);
  TakeCarried(given, step);
  size_t recurring = 0;
  for (const Layer& layer : layers_) {
    if (layer.o.has_value()) {
      const mx::array mixed = FirstHalf(layer, hidden, step, recurring);
      hidden = mx::add(hidden, Joined(mixed, layer.attention_out_norm));
    }
    if (layer.feed.has_value()) hidden = mx::add(hidden, SecondHalf(layer, hidden));
    if (layer.input.has_value()) {
      const mx::array own = Columns(given, in_.InputBegin(layer.number), in_.input_width);
      hidden = mx::add(hidden, layer.input->Apply(hidden, own));
    }
    if (layer.scalar.has_value()) {
      hidden = mx::multiply(hidden, mx::astype(*layer.scalar, hidden.dtype()));
    }
  }
  states_.Keep(slot_states_.kept());
  const mx::array out = HandOn(given, hidden);
  views_.clear();
  read_kv_.clear();
  return out;
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
  const Linear& head = head_.has_value() ? *head_ : *embedding_;
  const mx::array logits = mx::astype(head.Apply(NormRows(hidden, rows)), mx::float32);
  const mx::array scaled =
      config_.logit_scale == 1.0F ? logits : mx::multiply(logits, mx::array(config_.logit_scale));
  if (config_.logit_cap == 0) return scaled;
  const mx::array cap(config_.logit_cap);
  return mx::multiply(mx::tanh(mx::divide(scaled, cap)), cap);
}

void Decoder::AppendState(std::vector<mx::array>& out) const {
  blocks_.AppendPools(out);
  states_.Append(out);
}

}  // namespace macrame::runtime::engine
