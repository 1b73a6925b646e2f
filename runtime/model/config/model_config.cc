#include "runtime/model/config/model_config.h"

#include <cmath>

namespace macrame::runtime::engine {

HeadTraits ModelConfig::HeadsOf(int layer) const {
  const bool is_global = sliding_windows[static_cast<size_t>(layer)] == 0;
  if (is_global && global_heads.has_value()) return *global_heads;
  return {kv_heads, head_dim};
}

float ModelConfig::QueryScaleAt(size_t position, int dim) const {
  double scale = attention_scale == 0 ? 1.0 : attention_scale * std::sqrt(static_cast<double>(dim));
  if (temperature_beta != 0) {
    const size_t contexts = position / static_cast<size_t>(temperature_context);
    scale *= 1.0 + temperature_beta * std::log(1.0 + static_cast<double>(contexts));
  }
  return static_cast<float>(scale);
}

int CompressTraits::SourceOf(int layer) const {
  while (layer >= 0 && !makes[static_cast<size_t>(layer)]) --layer;
  return layer;
}

QuantizationTraits ModelConfig::QuantizationOf(std::string_view module) const {
  const auto found = quantization_overrides.find(std::string(module));
  return found == quantization_overrides.end() ? quantization : found->second;
}

}  // namespace macrame::runtime::engine
