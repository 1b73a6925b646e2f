#pragma once

// Inputs that layers take of their own (ModelConfig::layer_input_width) as MLX graphs: what
// cpu/layer_input.h has for a CPU.

#include "mlx/mlx.h"
#include "runtime/model/config/model_config.h"
#include "runtime/model/weights/linear.h"
#include "runtime/model/weights/weight_loader.h"
#include "runtime/model/weights/weight_needs.h"

namespace macrame::runtime::engine {

class MlxLayerInputs {
 public:
  MlxLayerInputs(const InputNeeds& needs, const ModelConfig& config, WeightLoader& loader);

  // This rank's rows of the table.
  const Linear& table() const { return table_; }
  // [rows, all layers' inputs] of the tokens' rows of the table and their embeddings.
  mlx::core::array Make(const mlx::core::array& looked_up, const mlx::core::array& hidden) const;

 private:
  int width_;
  float epsilon_;
  Linear table_, projection_;
  mlx::core::array norm_;
};

class MlxLayerInput {
 public:
  MlxLayerInput(const LayerInputNeeds& needs, const ModelConfig& config, WeightLoader& loader);

  // norm(projection(gelu(gate(hidden)) * input)).
  mlx::core::array Apply(const mlx::core::array& hidden, const mlx::core::array& input) const;

 private:
  float epsilon_;
  Linear gate_, projection_;
  mlx::core::array norm_;
};

}  // namespace macrame::runtime::engine
