#include "runtime/model/decoder.h"

#include <cmath>

#include "proto/check.h"

namespace macrame::runtime::engine {

namespace mx = mlx::core;

std::vector<float> Llama3RopeDivisors(const RopeTraits& rope, int head_dim) {
  const double long_wave = rope.original_context / rope.low_freq_factor;
  const double short_wave = rope.original_context / rope.high_freq_factor;
  std::vector<float> divisors;
  for (int i = 0; i < head_dim; i += 2) {
    const double divisor = std::pow(rope.theta, static_cast<double>(i) / head_dim);
    const double wavelength = 2.0 * M_PI * divisor;
    double stretched = divisor;
    if (wavelength > long_wave) {
      stretched = divisor * rope.factor;
    } else if (wavelength > short_wave) {
      const double smooth = (rope.original_context / wavelength - rope.low_freq_factor) /
                            (rope.high_freq_factor - rope.low_freq_factor);
      stretched = divisor / ((1.0 - smooth) / rope.factor + smooth);
    }
    divisors.push_back(static_cast<float>(stretched));
  }
  return divisors;
}

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
                 SumOverRanks sum_over_ranks)
    : config_(config),
      place_(place),
      sum_over_ranks_(std::move(sum_over_ranks)),
      activation_type_(loader.activation_type()) {
  if (place.embeds) embedding_.emplace(loader.LoadMatrix(EmbeddingNeed(config)));
  layers_.reserve(place.layer_end - place.layer_begin);
  for (int layer = place.layer_begin; layer < place.layer_end; ++layer) {
    layers_.push_back(LoadLayer(config, layer, loader));
  }
  if (place.normalizes) final_norm_ = loader.LoadVector(FinalNormNeed(config));
  if (place.has_head && !(place.embeds && config.tied_embeddings)) {
    head_.emplace(loader.LoadMatrix(HeadNeed(config)));
  }
  if (config.rope.scaling == RopeScalingKind::kLlama3) {
    const std::vector<float> divisors = Llama3RopeDivisors(config.rope, config.head_dim);
    rope_wavelengths_ = mx::array(divisors.data(), {static_cast<int>(divisors.size())});
  }
}

Decoder::Layer Decoder::LoadLayer(const ModelConfig& config, int layer, WeightLoader& loader) {
  const LayerNeeds needs = NeedsOfLayer(config, layer);
  return Layer{loader.LoadMatrix(needs.q),
               loader.LoadMatrix(needs.k),
               loader.LoadMatrix(needs.v),
               loader.LoadMatrix(needs.o),
               loader.LoadMatrix(needs.gate),
               loader.LoadMatrix(needs.up),
               loader.LoadMatrix(needs.down),
               *loader.LoadVector(needs.input_norm),
               *loader.LoadVector(needs.post_attention_norm),
               loader.LoadVector(needs.q_norm),
               loader.LoadVector(needs.k_norm),
               config.sliding_windows[layer]};
}

mx::array Decoder::Embed(std::span<const int32_t> ids) const {
  MACRAME_CHECK(embedding_.has_value()) << "this rank holds no embedding";
  return embedding_->Rows(ids, activation_type_);
}

mx::array Decoder::Rotate(const mx::array& x, int begin) const {
  if (rope_wavelengths_.has_value()) {
    return mx::fast::rope(x, config_.head_dim, /*traditional=*/false, std::nullopt, 1.0F, begin,
                          rope_wavelengths_);
  }
  const bool linear = config_.rope.scaling == RopeScalingKind::kLinear;
  const float scale = linear ? static_cast<float>(1.0 / config_.rope.factor) : 1.0F;
  return mx::fast::rope(x, config_.head_dim, /*traditional=*/false,
                        static_cast<float>(config_.rope.theta), scale, begin);
}

mx::array Decoder::Attend(const Layer& layer, int index, const mx::array& x, KvCache& cache,
                          int begin) const {
  const int count = x.shape(1);
  const int heads = place_.ShareOf(config_.attention_heads);
  const int kv_heads = place_.ShareOf(config_.kv_heads);
  const auto split_heads = [&](const mx::array& projected, int head_count,
                               const std::optional<mx::array>& norm) {
    mx::array by_head = mx::reshape(projected, {1, count, head_count, config_.head_dim});
    if (norm.has_value()) by_head = mx::fast::rms_norm(by_head, norm, config_.rms_norm_eps);
    return mx::transpose(by_head, {0, 2, 1, 3});
  };
  const mx::array queries = Rotate(split_heads(layer.q.Apply(x), heads, layer.q_norm), begin);
  const mx::array keys = Rotate(split_heads(layer.k.Apply(x), kv_heads, layer.k_norm), begin);
  const mx::array values = split_heads(layer.v.Apply(x), kv_heads, std::nullopt);
  const KvCache::View seen = cache.Append(index, keys, values, begin);

  const float scale = 1.0F / std::sqrt(static_cast<float>(config_.head_dim));
  const bool windowed = layer.sliding_window > 0 && begin + count > layer.sliding_window;
  std::optional<mx::array> mask;
  if (windowed) {
    const std::vector<bool> visible = SlidingMask(begin, count, layer.sliding_window);
    mask = mx::array(visible.begin(), {1, 1, count, begin + count}, mx::bool_);
  }
  const mx::array mixed = mx::fast::scaled_dot_product_attention(
      queries, seen.keys, seen.values, scale, windowed || count == 1 ? "" : "causal", mask);
  return layer.o.Apply(
      mx::reshape(mx::transpose(mixed, {0, 2, 1, 3}), {1, count, heads * config_.head_dim}));
}

mx::array Decoder::Feed(const Layer& layer, const mx::array& x) const {
  const mx::array gate = layer.gate.Apply(x);
  return layer.down.Apply(mx::multiply(mx::multiply(gate, mx::sigmoid(gate)), layer.up.Apply(x)));
}

mx::array Decoder::Run(mx::array hidden, KvCache& cache, int begin) const {
  for (size_t i = 0; i < layers_.size(); ++i) {
    const Layer& layer = layers_[i];
    const mx::array normed = mx::fast::rms_norm(hidden, layer.input_norm, config_.rms_norm_eps);
    hidden =
        mx::add(hidden, sum_over_ranks_(Attend(layer, static_cast<int>(i), normed, cache, begin)));
    const mx::array inner =
        mx::fast::rms_norm(hidden, layer.post_attention_norm, config_.rms_norm_eps);
    hidden = mx::add(hidden, sum_over_ranks_(Feed(layer, inner)));
  }
  return hidden;
}

mx::array Decoder::Logits(const mx::array& hidden, int rows) const {
  MACRAME_CHECK(final_norm_.has_value()) << "this rank holds no head";
  const int count = hidden.shape(1);
  const mx::array last = mx::slice(hidden, {0, count - rows, 0}, {1, count, config_.hidden_size});
  const mx::array normed = mx::fast::rms_norm(last, *final_norm_, config_.rms_norm_eps);
  const Matrix& head = head_.has_value() ? *head_ : *embedding_;
  return mx::astype(mx::reshape(head.Apply(normed), {rows, config_.vocab_size}), mx::float32);
}

}  // namespace macrame::runtime::engine
