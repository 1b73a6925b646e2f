#pragma once

// Chooses the engine of a rank: our CPU kernels (cpu/) or MLX's graph (mlx/).

#include <memory>

#include "runtime/model/config/model_config.h"
#include "runtime/model/cuts/tensor_cut.h"
#include "runtime/model/step/layer_stack.h"
#include "runtime/model/step/rank_sums.h"
#include "runtime/model/weights/weight_loader.h"

namespace macrame::runtime::engine {

// The implementation for the loader's device. Loads this place's weights: may take
// minutes and reads from disk. `sums` must live as long as the stack.
std::unique_ptr<LayerStack> LoadLayerStack(const ModelConfig& config, const ShardPlace& place,
                                           WeightLoader& loader, RankSums& sums,
                                           const LayerStackOptions& options);

}  // namespace macrame::runtime::engine
