#pragma once

// What a rank has of layers with a state (ModelConfig::recurrent): whole key heads with the value
// heads that share them, the convolution's channels that belong to these, and their part of the
// state. Pure.

#include <cstddef>
#include <cstdint>
#include <vector>

#include "runtime/model/config/model_config.h"
#include "runtime/model/cuts/tensor_cut.h"

namespace macrame::runtime::engine {

struct RecurrentCut {
  Range heads{};  // key heads; those of the whole model count from 0
  size_t key_heads = 0, value_heads = 0;
  size_t key_dim = 0, value_dim = 0;
  size_t taps = 0;
  size_t gates = 2;  // numbers of a token for each value head: b and a, or the step alone

  size_t key_width() const { return key_heads * key_dim; }
  size_t value_width() const { return value_heads * value_dim; }
  // Queries, keys, values: what the convolution goes over.
  size_t channels() const { return 2 * key_width() + value_width(); }
  // What the input projections give of a token: channels, z (the output's gate), the heads' gates.
  size_t projected() const { return channels() + value_width() + gates * value_heads; }
  // Floats of the state: the convolution's last inputs, then the heads' matrices.
  size_t kept_inputs() const { return (taps - 1) * channels(); }
  size_t matrices() const { return value_heads * value_dim * key_dim; }
  size_t floats() const { return kept_inputs() + matrices(); }
};

RecurrentCut RecurrentCutOf(const ModelConfig& config, const SliceRange& slices);

// Of the whole model's channels, those of this rank, in the order in which it has them.
std::vector<int> ChannelsOf(const ModelConfig& config, const RecurrentCut& cut);

// The input projections' rows on this rank, in the order of RecurrentNeeds::in, one map after the
// other: which of them is number i of RecurrentCut::projected().
std::vector<int> ProjectedOrder(const ModelConfig& config, const RecurrentCut& cut);

// Layers of the place that have a state.
int RecurrentLayersOf(const ModelConfig& config, const ShardPlace& place);

}  // namespace macrame::runtime::engine
