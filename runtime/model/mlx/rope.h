#pragma once

// A rotary form (config/rope.h) as MLX takes it. Engine thread only.

#include <optional>

#include "mlx/mlx.h"
#include "runtime/model/config/rope.h"

namespace macrame::runtime::engine {

class MlxRope {
 public:
  MlxRope(const RopeTraits& traits, int head_dim, int context_length);

  // Turns the last dimension of x [sequences, heads, count, dim]; `offsets`: int32, the position of
  // each sequence's first row, or one for all.
  mlx::core::array Turned(const mlx::core::array& x, const mlx::core::array& offsets) const {
    return Turned(x, offsets, traits_.interleaved);
  }
  mlx::core::array Turned(const mlx::core::array& x, const mlx::core::array& offsets,
                          bool interleaved) const;
  // The last dimensions alone, as many as are turned; `back`: the other way round, as if positions
  // were below zero.
  mlx::core::array TailTurned(const mlx::core::array& x, const mlx::core::array& offsets,
                              bool back = false) const;

 private:
  mlx::core::array TurnedBy(float position_scale, const mlx::core::array& x,
                            const mlx::core::array& offsets, bool interleaved) const;

  const RopeTraits traits_;
  float position_scale_;
  std::optional<mlx::core::array> divisors_;    // unset: theta says it
  std::optional<mlx::core::array> magnitudes_;  // of a head's dimensions; unset: 1
};

}  // namespace macrame::runtime::engine
