#include "runtime/model/mlx/decoder.h"

#include <algorithm>
#include <cmath>

#include "proto/check.h"
#include "runtime/model/mlx/chosen_tokens.h"
#include "runtime/model/weights/block_needs.h"

namespace macrame::runtime::engine {

namespace mx = mlx::core;

namespace {

// Of the layers whose keys and values a place keeps, those of which this rank has heads.
std::vector<int> KvLayersWithHeads(const ModelConfig& config, const ShardPlace& place) {
  std::vector<int> layers = KvLayersOf(config, place);
  if (config.has_compression()) return layers;  // ranks without heads make entries too
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
                 RankSums& sums, const LayerStackOptions& options,
                 std::span<const SliceRange> stage)
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
      entry_places_(config, place),
      open_groups_(static_cast<size_t>(PoolingLayersOf(config, place))),
      pools_(static_cast<int>(kv_layers_.size() + IndexedWithHeads(config, place)) +
                 entry_places_.count,
             options.blocks_total, options.kv_bits),
      rope_layout_(RopeLayoutOf(config.rope, config.local_rope, options.context_length)),
      rope_(config.rope,
            config.has_latent()               ? config.latent.rope
            : config.global_heads.has_value() ? config.global_heads->dim
                                              : config.head_dim,
            options.context_length),
      local_rope_(config.local_rope.has_value()
                      ? std::optional<MlxRope>(std::in_place, *config.local_rope, config.head_dim,
                                               options.context_length)
                      : std::nullopt),
      stream_work_(config.has_streams()
                       ? std::optional<MlxStreamWork>(std::in_place, config, loader.device())
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
  if (!MayChoose(config, place)) return;
  if (place.tp == 1) {
    chooser_.emplace(std::vector<Range>{{0, config.vocab_size}}, 0, sums);
  } else if (!stage.empty()) {
    std::vector<Range> parts;
    for (const SliceRange& slices : stage) parts.push_back(VocabularyOf(config, slices));
    chooser_.emplace(std::move(parts), place.tp_rank, sums);
  }
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
  const auto load_feed = [&]() -> std::optional<std::variant<MlxFeed, MlxExperts>> {
    if (!needs.feed.has_value()) {
      if (!needs.router.has_value()) return std::nullopt;
      return MlxExperts(needs, config, loader);
    }
    return MlxFeed(*needs.feed, config, loader);
  };
  const auto load_latent = [&]() -> std::optional<MlxLatentAttention> {
    if (!needs.latent.has_value()) return std::nullopt;
    return MlxLatentAttention(config, place, *needs.latent, loader);
  };
  const auto load_recurrent = [&]() -> std::optional<MlxRecurrent> {
    if (!needs.recurrent.has_value()) return std::nullopt;
    return MlxRecurrent(config, place, *needs.recurrent, loader);
  };
  const auto load_mix = [&](const std::optional<StreamNeeds>& own) -> std::optional<MlxStreamMix> {
    if (!own.has_value()) return std::nullopt;
    return MlxStreamMix(*own, config.streams, loader);
  };
  const auto load_input = [&]() -> std::optional<MlxLayerInput> {
    if (!needs.input.has_value()) return std::nullopt;
    return MlxLayerInput(*needs.input, config, loader);
  };
  return Layer{LoadAttention(layer, needs, loader),
               load_latent(),
               load_recurrent(),
               LoadCompressed(layer, needs, loader),
               load(needs.o),
               load_feed(),
               LoadBeside(needs, loader),
               load_input(),
               loader.LoadVector(needs.attention_norm),
               loader.LoadVector(needs.attention_out_norm),
               loader.LoadVector(needs.feed_norm),
               loader.LoadVector(needs.feed_out_norm),
               loader.LoadVector(needs.scalar),
               load_mix(needs.attention_streams),
               load_mix(needs.feed_streams),
               layer,
               KvIndexOf(config.KvSourceOf(layer)),
               out_.KvOf(layer) != nullptr};
}

std::optional<MlxCompressedAttention> Decoder::LoadCompressed(int layer, const LayerNeeds& needs,
                                                              WeightLoader& loader) const {
  if (!needs.compressed.has_value()) return std::nullopt;
  const bool is_local =
      config_.rope_uses[static_cast<size_t>(layer)] == RopeUse::kLocal && local_rope_.has_value();
  const ShardPlace before{.layer_begin = place_.layer_begin, .layer_end = layer};
  const CompressedPlaces places{
      KvIndexOf(layer), entry_places_.of_layer[static_cast<size_t>(layer - place_.layer_begin)],
      static_cast<size_t>(PoolingLayersOf(config_, before))};
  return MlxCompressedAttention(config_, place_, layer, *needs.compressed, needs.sinks, loader,
                                is_local ? *local_rope_ : rope_, places);
}

std::optional<MlxAttention> Decoder::LoadAttention(int layer, const LayerNeeds& needs,
                                                   WeightLoader& loader) const {
  if (needs.q.module.empty()) return std::nullopt;
  const RopeUse use = config_.rope_uses[static_cast<size_t>(layer)];
  const bool local = use == RopeUse::kLocal && local_rope_.has_value();
  const MlxRope* rope = use == RopeUse::kNone ? nullptr : local ? &*local_rope_ : &rope_;
  const size_t indexed_before = BlockIndexLayersOf(config_, {place_.layer_begin, layer}).size();
  return MlxAttention(
      config_, place_, layer, needs, loader, rope,
      {KvIndexOf(config_.KvSourceOf(layer)), static_cast<int>(kv_layers_.size() + indexed_before)});
}

absl::Status Decoder::Begin(const ForwardStep& step) {
  absl::Status good = config_.has_state() ? slot_states_.Check(step) : open_groups_.Check(step);
  if (good.ok()) good = tables_.Apply(step, config_.vocab_size);
  if (!good.ok()) return good;
  pools_.Copy(step.copies);
  open_groups_.Apply(step);
  if (!config_.has_state()) return good;
  states_.Close(step, slot_states_);
  slot_states_.Apply(step);
  std::vector<const MlxRecurrent*> layers;
  for (const Layer& layer : layers_) {
    if (layer.recurrent.has_value() && layer.recurrent->has_heads()) {
      layers.push_back(&*layer.recurrent);
    }
  }
  states_.Begin(step, slot_states_, layers);
  return good;
}

mx::array Decoder::OwnRows(const Linear& table, int columns, std::span<const int32_t> ids) const {
  if (place_.tp == 1) return mx::squeeze(table.Rows(ids, activation_type_), 0);
  const Range own = VocabularyOf(config_, place_.slices());
  const int count = static_cast<int>(ids.size());
  if (own.size() == 0) return mx::zeros({count, columns}, activation_type_);
  std::vector<int32_t> rows;
  std::vector<bool> held;
  for (const int32_t id : ids) {
    held.push_back(id >= own.begin && id < own.end);
    rows.push_back(held.back() ? id - own.begin : 0);
  }
  const mx::array there = mx::squeeze(table.Rows(rows, activation_type_), 0);
  const mx::array mask(held.begin(), {count, 1}, mx::bool_);
  return mx::where(mask, there, mx::zeros_like(there));
}

mx::array Decoder::OwnRows(const Linear& table, int columns, const mx::array& ids) const {
  const auto rows_at = [&](const mx::array& rows) {
    return mx::squeeze(table.Rows(mx::expand_dims(rows, 0), activation_type_), 0);
  };
  if (place_.tp == 1) return rows_at(ids);
  const Range own = VocabularyOf(config_, place_.slices());
  if (own.size() == 0) return mx::zeros({ids.shape(0), columns}, activation_type_);
  const mx::array rows = mx::subtract(ids, mx::array(own.begin));
  const mx::array held =
      mx::logical_and(mx::greater_equal(rows, mx::array(0)), mx::less(rows, mx::array(own.size())));
  const mx::array there = rows_at(mx::where(held, rows, mx::array(0)));
  return mx::where(mx::expand_dims(held, 1), there, mx::zeros_like(there));
}

mx::array Decoder::Embed(std::span<const int32_t> ids) {
  return EmbedBy([&](const Linear& table, int columns) { return OwnRows(table, columns, ids); });
}

mx::array Decoder::EmbedChosen(std::span<const int32_t> tokens, const mx::array& chosen) {
  const mx::array ids = TokensOf(tokens, chosen);
  return EmbedBy([&](const Linear& table, int columns) { return OwnRows(table, columns, ids); });
}

mx::array Decoder::EmbedBy(const LookUp& look_up) {
  MACRAME_CHECK(embedding_.has_value()) << "this rank holds no embedding";
  mx::array hidden = sums_.SumExactlyOverRanks(look_up(*embedding_, config_.hidden_size));
  if (config_.embedding_scale != 1.0F) {
    hidden = mx::multiply(hidden, mx::array(config_.embedding_scale, hidden.dtype()));
  }
  if (config_.has_streams()) return MlxStreams::Embedded(config_.streams, hidden);
  if (!inputs_.has_value()) return hidden;
  mx::array own = look_up(inputs_->table(), in_.width - in_.hidden);
  // Every rank takes part in the two sums one after the other.
  if (place_.tp > 1) own = mx::depends({own}, {hidden})[0];
  return mx::concatenate({hidden, inputs_->Make(sums_.SumExactlyOverRanks(own), hidden)}, -1);
}

mx::array Decoder::RowsOf(const Layer& layer, const KvOfStep& own, const StepRows& rows) const {
  // Of all heads, zeros where this rank has not one.
  const Range heads = KvHeadsOf(config_, layer.number, place_.slices());
  const HeadTraits traits = config_.HeadsOf(layer.number);
  const auto whole = [&](const mx::array& laid) {
    return rows.Flat(mx::pad(laid, std::vector<int>{1}, {heads.begin},
                             {traits.kv_heads - heads.end}, mx::array(0.0F, laid.dtype())));
  };
  return mx::concatenate({whole(own.keys), whole(own.values)}, -1);
}

void Decoder::TakeCarried(const mx::array& given, Shared& shared) {
  if (stream_work_.has_value()) {
    shared.streams.emplace(*stream_work_, given);
    shared.entries.Take(given, in_);
  }
  AttentionStep& step = shared.attention;
  const StepRows& rows = step.rows;
  for (const CarriedRow::Kv& kv : in_.kv) {
    const int index = KvIndexOf(kv.layer);
    if (index < 0) continue;
    const Range own = KvHeadsOf(config_, kv.layer, place_.slices());
    const auto written = [&](KvSide side, int begin) {
      const int dim = kv.heads.dim;
      const mx::array part = Columns(given, begin + own.begin * dim, own.size() * dim);
      return pools_.Write(index, side, rows.Laid(part, own.size(), dim), rows.written());
    };
    const KvRowsKept keys = written(KvSide::kKeys, kv.begin);
    step.written[static_cast<size_t>(index)] = {keys,
                                                written(KvSide::kValues, kv.begin + kv.size())};
  }
}

std::optional<mx::array> Decoder::QueryScales(const ForwardStep& step, const StepRows& rows) const {
  if (config_.temperature_beta == 0) return std::nullopt;
  std::vector<float> scales;
  for (const Segment& segment : step.segments) {
    for (size_t i = 0; i < segment.tokens.size(); ++i) {
      scales.push_back(config_.QueryScaleAt(segment.begin + i, 1) / config_.QueryScaleAt(0, 1));
    }
  }
  return rows.Laid(mx::array(scales.data(), {rows.rows(), 1}), 1, 1);
}

mx::array Decoder::HandOn(const mx::array& given, const mx::array& hidden, Shared& shared) const {
  if (shared.streams.has_value()) {
    std::vector<mx::array> parts{shared.streams->Carried()};
    shared.entries.Put(out_, parts);
    return parts.size() == 1 ? parts[0] : mx::concatenate(parts, -1);
  }
  if (out_.width == out_.hidden) return hidden;
  const int rows = hidden.shape(0);
  std::vector<mx::array> parts{hidden}, own;
  const int inputs = (config_.layer_count - place_.layer_end) * config_.layer_input_width;
  if (inputs > 0) parts.push_back(Columns(given, in_.InputBegin(place_.layer_end), inputs));
  for (const CarriedRow::Kv& kv : out_.kv) {  // those of earlier stages come first
    if (const CarriedRow::Kv* held = in_.KvOf(kv.layer); held != nullptr) {
      parts.push_back(Columns(given, held->begin, 2 * kv.size()));
    } else if (const auto kept = read_kv_.find(kv.layer); kept != read_kv_.end()) {
      own.push_back(kept->second);
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

mx::array Decoder::Recur(const Layer& layer, size_t index, const mx::array& x) {
  if (!layer.recurrent->has_heads()) {
    return layer.o->Apply(ZerosBehind(x, 0));
  }
  return layer.o->Apply(layer.recurrent->Apply(x, states_.Runs(index)));
}

mx::array Decoder::AttendToNothing(const Layer& layer, const mx::array& x) const {
  const int rows = x.shape(0);
  const mx::array nothing = layer.o->Apply(ZerosBehind(x, 0));
  if (!config_.qk_norm_whole || place_.tp == 1) return nothing;
  // The other ranks' norms wait for this rank's part, after what is summed before it.
  const mx::array none = mx::depends({mx::zeros({rows, 2})}, {x})[0];
  return mx::depends({nothing}, {sums_.SumExactlyOverRanks(none)})[0];
}

mx::array Decoder::Attend(const Layer& layer, const mx::array& x, AttentionStep& step) {
  if (layer.latent.has_value()) {
    return layer.o->Apply(layer.latent->Apply(x, {step.rows, pools_, rope_, layer.kv}));
  }
  std::optional<KvOfStep> own;
  const mx::array given = layer.attention->Apply(x, step, sums_, layer.is_read ? &own : nullptr);
  if (own.has_value()) read_kv_.emplace(layer.number, RowsOf(layer, *own, step.rows));
  return layer.o->Apply(given);
}

mx::array Decoder::Normed(const mx::array& x, const std::optional<mx::array>& norm) const {
  return norm.has_value() ? mx::fast::rms_norm(x, norm, config_.rms_norm_eps) : x;
}

mx::array Decoder::Joined(const mx::array& partial, const std::optional<mx::array>& norm) const {
  const mx::array whole = Normed(sums_.SumOverRanks(partial), norm);
  if (config_.residual_scale == 1.0F) return whole;
  return mx::multiply(whole, mx::array(config_.residual_scale, whole.dtype()));
}

mx::array Decoder::Read(const std::optional<MlxStreamMix>& mix, const mx::array& hidden,
                        Shared& shared) const {
  return mix.has_value() ? mx::astype(shared.streams->Begin(*mix), activation_type_) : hidden;
}

mx::array Decoder::Added(const mx::array& hidden, const mx::array& given, Shared& shared) const {
  if (!shared.streams.has_value()) return mx::add(hidden, given);
  shared.streams->End(given);
  return hidden;
}

mx::array Decoder::FirstHalf(const Layer& layer, const mx::array& hidden, Shared& shared) {
  const mx::array in = Normed(Read(layer.attention_mix, hidden, shared), layer.attention_norm);
  if (layer.recurrent.has_value()) return Recur(layer, shared.recurring++, in);
  if (layer.compressed.has_value()) {
    return layer.o->Apply(layer.compressed->Apply(in, shared.entries, open_groups_));
  }
  const bool has_heads = KvHeadsOf(config_, layer.number, place_.slices()).size() > 0;
  return has_heads ? Attend(layer, in, shared.attention) : AttendToNothing(layer, in);
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
  const StepRows rows(step, tables_);
  Shared shared{{rows, pools_, {}, QueryScales(step, rows)},
                {config_, entry_places_, rows, pools_, static_cast<int>(kv_layers_.size()),
                 activation_type_}};
  shared.attention.written.resize(kv_layers_.size());
  read_kv_.clear();
  TakeCarried(given, shared);
  for (const Layer& layer : layers_) {
    if (layer.o.has_value()) {
      const mx::array mixed = FirstHalf(layer, hidden, shared);
      hidden = Added(hidden, Joined(mixed, layer.attention_out_norm), shared);
    }
    if (layer.feed.has_value()) {
      hidden = Added(hidden, SecondHalf(layer, Read(layer.feed_mix, hidden, shared)), shared);
    }
    if (layer.input.has_value()) {
      const mx::array own = Columns(given, in_.InputBegin(layer.number), in_.input_width);
      hidden = mx::add(hidden, layer.input->Apply(hidden, own));
    }
    if (layer.scalar.has_value()) {
      hidden = mx::multiply(hidden, mx::astype(*layer.scalar, hidden.dtype()));
    }
  }
  states_.End(slot_states_);
  const mx::array out = HandOn(given, hidden, shared);
  read_kv_.clear();
  return out;
}

mx::array Decoder::NormRows(const mx::array& hidden, std::span<const int32_t> rows) const {
  MACRAME_CHECK(final_norm_.has_value()) << "this rank is not of the last stage";
  const mx::array index(rows.data(), {static_cast<int>(rows.size())}, mx::int32);
  mx::array own = mx::take(hidden, index, 0);
  if (stream_work_.has_value()) {
    own = mx::astype(MlxStreams(*stream_work_, own).Collapsed(), activation_type_);
  }
  return mx::fast::rms_norm(own, final_norm_, config_.rms_norm_eps);
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
  pools_.AppendPools(out);
  states_.Append(out);
  open_groups_.Append(out);
}

}  // namespace macrame::runtime::engine
