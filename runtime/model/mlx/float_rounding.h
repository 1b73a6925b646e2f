#pragma once

// Numbers rounded to what 8-bit and 4-bit floats with a scale for each block can hold, as
// kernels/float_rounding.h defines it, as MLX graphs. What comes out has the type of what goes in.
// Engine thread only.

#include "mlx/mlx.h"
#include "runtime/kernels/float_rounding.h"
#include "runtime/model/config/engine_device.h"
#include "runtime/model/mlx/fused.h"

namespace macrame::runtime::engine {

class MlxFloatRounding {
 public:
  explicit MlxFloatRounding(EngineDevice device);

  // Blocks of the last dimension; what these don't divide stays as it is.
  mlx::core::array ToFp8(const mlx::core::array& x) const;
  mlx::core::array ToFp4(const mlx::core::array& x, int block, kernels::Fp4Scale kind) const;

 private:
  // The least power of two that is not below x, which is above zero.
  mlx::core::array PowerFrom(const mlx::core::array& x) const;

  const Fused share_of_e4m3_, share_by_power_, share_by_e4m3_, up_to_power_, limit_, scale_,
      to_fp4_;
};

}  // namespace macrame::runtime::engine
