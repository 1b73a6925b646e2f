#pragma once

// Chooses the engine of a rank: our CPU kernels (cpu/) or MLX's graph (mlx/).

#include <memory>
#include <span>

#include "runtime/model/config/model_config.h"
#include "runtime/model/cuts/tensor_cut.h"
#include "runtime/model/step/layer_stack.h"
#include "runtime/model/step/rank_sums.h"
#include "runtime/model/weights/weight_loader.h"

namespace macrame::runtime::engine {

// The implementation for the loader's device. Loads this place's weights: may take
// minutes and reads from disk. `sums` must live as long as the stack. `stage`: the slices of each
// rank of a tensor group, by tp_rank, where all of them are to choose tokens.
std::unique_ptr<LayerStack> LoadLayerStack(const ModelConfig& config, const ShardPlace& place,
                                           WeightLoader& loader, RankSums& sums,
                                           const LayerStackOptions& options,
                                           std::span<const SliceRange> stage = {});

// Whether its layers choose tokens (LayerStack::chooses_tokens) where all ranks of the stage do.
bool MayChooseTokens(const ModelConfig& config, const ShardPlace& place, EngineDevice device);

}  // namespace macrame::runtime::engine
