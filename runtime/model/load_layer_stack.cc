#include "runtime/model/load_layer_stack.h"

#include "runtime/model/cpu/cpu_model.h"
#include "runtime/model/mlx/decoder.h"

namespace macrame::runtime::engine {

std::unique_ptr<LayerStack> LoadLayerStack(const ModelConfig& config, const ShardPlace& place,
                                           WeightLoader& loader, RankSums& sums,
                                           const LayerStackOptions& options,
                                           std::span<const SliceRange> stage) {
  if (!UsesMlxGraph(loader.device())) {
    return std::make_unique<CpuModel>(config, place, loader, sums, options);
  }
  return std::make_unique<Decoder>(config, place, loader, sums, options, stage);
}

bool MayChooseTokens(const ModelConfig& config, const ShardPlace& place, EngineDevice device) {
  return UsesMlxGraph(device) && Decoder::MayChoose(config, place);
}

}  // namespace macrame::runtime::engine
