#pragma once

// Elementwise functions that a GPU computes as one kernel. MLX compiles such a kernel when it is
// first used, for all shapes. On MLX's CPU device the function is built operation by operation:
// there MLX would need a C++ compiler on the machine. The results are the same but for rounding.

#include <functional>
#include <vector>

#include "mlx/mlx.h"
#include "runtime/model/config/engine_device.h"

namespace macrame::runtime::engine {

// Engine thread only. MLX keeps compiled functions by their address, hence a plain function, which
// gets all that it depends on as arrays.
class Fused {
 public:
  using Arrays = std::vector<mlx::core::array>;
  using Function = Arrays (*)(const Arrays&);

  Fused(Function function, EngineDevice device)
      : call_(device == EngineDevice::kGpu ? mlx::core::compile(function, /*shapeless=*/true)
                                           : std::function<Arrays(const Arrays&)>(function)) {}

  Arrays operator()(const Arrays& inputs) const { return call_(inputs); }

 private:
  std::function<Arrays(const Arrays&)> call_;
};

}  // namespace macrame::runtime::engine
