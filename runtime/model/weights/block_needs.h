#pragma once

// What layers need besides others' (weight_needs.h) whose key-value heads choose the blocks of
// positions that they attend to (ModelConfig::block_index), and how the indexer's queries are cut.
// Pure.

#include <string>
#include <vector>

#include "runtime/model/config/model_config.h"
#include "runtime/model/cuts/tensor_cut.h"
#include "runtime/model/weights/weight_needs.h"

namespace macrame::runtime::engine {

// Of the indexer's queries, those that serve these key-value heads.
Range IndexHeadsOf(const ModelConfig& config, const Range& kv_heads);

// `prefix`: what stands before the names of the attention's tensors.
BlockIndexNeeds BlockIndexNeedsOf(const ModelConfig& config, const Range& kv_heads,
                                  const std::string& prefix);

// The layers of a place that choose blocks, in their order: each keeps a key of every position.
std::vector<int> BlockIndexLayersOf(const ModelConfig& config, const ShardPlace& place);

}  // namespace macrame::runtime::engine
