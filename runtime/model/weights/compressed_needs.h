#pragma once

// What DeepSeek-V4.1's layers need besides what others have (weight_needs.h): its attention and its
// residual streams. Pure.

#include <string>

#include "runtime/model/config/model_config.h"
#include "runtime/model/cuts/tensor_cut.h"
#include "runtime/model/weights/weight_needs.h"

namespace macrame::runtime::engine {

// `groups`: of heads, of this rank. `prefix`: what stands before the names of the attention's
// tensors, or of one half layer's streams.
CompressedNeeds CompressedNeedsOf(const ModelConfig& config, int layer, const Range& groups,
                                  const std::string& prefix);
StreamNeeds StreamNeedsOf(const ModelConfig& config, const std::string& prefix);

}  // namespace macrame::runtime::engine
