#pragma once

// One rank's stretch of a decoder-only transformer: the embedding (first stage), layers
// [layer_begin, layer_end), the final norm and head (last stage). One implementation for Llama,
// Qwen2, Qwen3 and Mistral; ModelConfig's traits say where they differ.
//
// Builds MLX graphs; nothing is computed until the caller evaluates them. Engine thread only.

#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "mlx/mlx.h"
#include "runtime/model/kv_cache.h"
#include "runtime/model/matrix.h"
#include "runtime/model/model_config.h"
#include "runtime/model/weight_loader.h"
#include "runtime/model/weight_needs.h"

namespace macrame::runtime::engine {

// Sums a partial result over the ranks of a tensor split; the identity when there is one rank.
using SumOverRanks = std::function<mlx::core::array(const mlx::core::array&)>;

class Decoder {
 public:
  // Loads this place's weights; may take minutes and reads from disk.
  Decoder(const ModelConfig& config, const ShardPlace& place, WeightLoader& loader,
          SumOverRanks sum_over_ranks);

  // Token ids -> hidden states [1, n, hidden_size]. First stage only; ids below vocab_size.
  mlx::core::array Embed(std::span<const int32_t> ids) const;

  // Hidden states of positions [begin, begin + n) through this rank's layers.
  mlx::core::array Run(mlx::core::array hidden, KvCache& cache, int begin) const;

  // Logits float32 [rows, vocab_size] of the last `rows` positions. Ranks with the head only.
  mlx::core::array Logits(const mlx::core::array& hidden, int rows) const;

  mlx::core::Dtype activation_type() const { return activation_type_; }
  int layer_count() const { return static_cast<int>(layers_.size()); }

 private:
  struct Layer {
    Matrix q, k, v, o, gate, up, down;
    mlx::core::array input_norm, post_attention_norm;
    std::optional<mlx::core::array> q_norm, k_norm;
    int sliding_window;
  };
  static Layer LoadLayer(const ModelConfig& config, int layer, WeightLoader& loader);
  mlx::core::array Attend(const Layer& layer, int index, const mlx::core::array& x, KvCache& cache,
                          int begin) const;
  mlx::core::array Feed(const Layer& layer, const mlx::core::array& x) const;
  mlx::core::array Rotate(const mlx::core::array& x, int begin) const;

  const ModelConfig config_;
  const ShardPlace place_;
  const SumOverRanks sum_over_ranks_;
  const mlx::core::Dtype activation_type_;
  std::optional<Matrix> embedding_;
  std::optional<Matrix> head_;  // unset when the embedding is it
  std::vector<Layer> layers_;
  std::optional<mlx::core::array> final_norm_;
  std::optional<mlx::core::array> rope_wavelengths_;  // llama3 scaling only
};

// The divisors that rope's positions are divided by, one per pair of dimensions: theta^(2i/d),
// stretched as Llama 3.1 does it (long wavelengths by `factor`, short ones not, smoothly between).
// Pure.
std::vector<float> Llama3RopeDivisors(const RopeTraits& rope, int head_dim);

// Which keys the queries at [begin, begin + count) see under a sliding window: row-major
// [count, begin + count], true where position k is in (q - window, q]. Pure.
std::vector<bool> SlidingMask(int begin, int count, int window);

}  // namespace macrame::runtime::engine
