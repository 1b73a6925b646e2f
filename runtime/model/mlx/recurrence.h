#pragma once

// What layers with a state compute over runs of tokens, as MLX graphs: a matrix for each value head
// that fades, learns and answers (kernels/recurrence.h has the definitions).
//
// A run is one or more sequences with the same number of tokens each. Three forms, chosen by the
// run:
// - One token a sequence: two or three products over the state.
// - The gated delta rule where MLX has a kernel for the rank's heads: mx::fast::gated_delta_update.
//   MLX 0.32.4 has it on Metal for 128 numbers a head and 16/16, 16/32, 16/48, 16/64, 24/24 or
//   32/32 key and value heads (the names in its mlx.metallib). For others it would build a graph
//   token by token, so the next form is used instead.
// - Blocks of kBlockLength tokens. Within a block all tokens are computed at once, as products of
//   matrices. A state space carries its state over all blocks at once too, so the number of
//   primitives does not depend on the number of tokens. The delta rule goes from block to block, a
//   few primitives each.
//
// Everything is float32. Builds graphs; nothing is evaluated. Engine thread only.

#include <cstddef>
#include <vector>

#include "mlx/mlx.h"
#include "runtime/model/config/engine_device.h"
#include "runtime/model/config/model_config.h"
#include "runtime/model/cuts/recurrent_cut.h"
#include "runtime/model/mlx/fused.h"

namespace macrame::runtime::engine {

class MlxRecurrence {
 public:
  static constexpr int kBlockLength = 64;

  MlxRecurrence(RecurrenceRule rule, const RecurrentCut& cut, EngineDevice device);

  struct Tokens {
    mlx::core::array keyed;   // queries, then keys: [sequences, tokens, 2 * key heads, key_dim]
    mlx::core::array values;  // [sequences, tokens, value heads, value_dim]
    // [sequences, tokens, value heads]. Fades, or their logarithms: see takes_fades.
    mlx::core::array fades, shares;
  };
  struct Result {
    mlx::core::array given;  // as values
    mlx::core::array state;  // [sequences, value heads, value_dim, key_dim], as before
  };
  Result Run(const Tokens& tokens, const mlx::core::array& state) const;

  // Whether Run takes fades as they are. Otherwise it takes their logarithms, which stay exact
  // where a fade is close to 0.
  bool takes_fades() const { return has_kernel_; }

 private:
  // The tokens in blocks, by key head and by the value heads that share it: [sequences, blocks, key
  // heads, value heads of one, ...], where queries and keys have 1 for the value heads.
  struct Blocks {
    int length;
    mlx::core::array queries, keys;  // [..., length, key_dim]
    mlx::core::array values;         // [..., length, value_dim]
    mlx::core::array shares;         // [..., length, 1]
    mlx::core::array faded;          // [..., length, 1]: logarithm of all fades from the first on
    mlx::core::array last;           // [..., 1, 1]: that of the last token
  };
  Result RunOne(const Tokens& tokens, const mlx::core::array& state) const;
  Result RunSpace(const Blocks& blocks, const mlx::core::array& state) const;
  Result RunDelta(const Blocks& blocks, const mlx::core::array& state) const;
  Blocks BlocksOf(const Tokens& tokens) const;
  // (1 + a)^-1 of a strictly lower triangular a [..., length, length].
  mlx::core::array Inverse(const mlx::core::array& a) const;
  // 1 on and below the diagonal, else 0.
  mlx::core::array UpToDiagonal(int size) const;
  mlx::core::array Grouped(const mlx::core::array& state) const;

  const bool is_delta_;
  const int key_heads_, group_, key_dim_, value_dim_;
  const bool has_kernel_;
  const Fused step_, weigh_, learn_, decay_, carry_;
  // Of whole blocks: ones up to the diagonal, below it, on it; then, for each size of 1, 2, 4 and
  // so on, ones where rows of every second `size` meet columns of the `size` before. Empty where
  // there is a kernel.
  enum : size_t { kLower, kStrictlyLower, kUnit, kLevels };
  std::vector<mlx::core::array> masks_;
};

}  // namespace macrame::runtime::engine
