#pragma once

// Which compressed entries a rank keeps (ModelConfig::compress). Pure.

#include <vector>

#include "runtime/model/config/model_config.h"
#include "runtime/model/cuts/tensor_cut.h"

namespace macrame::runtime::engine {

struct EntryPlaces {
  EntryPlaces(const ModelConfig& config, const ShardPlace& place);
  // Of each layer of the place: among the kept ones that it looks at; -1: the window alone.
  std::vector<int> of_layer;
  int count = 0;
  // Whether the first ones are those that a stage before makes, and by which ratio.
  bool first_is_handed = false;
  int handed_ratio = 0;
};

// Layers of the place that pool several positions into an entry.
int PoolingLayersOf(const ModelConfig& config, const ShardPlace& place);

}  // namespace macrame::runtime::engine
