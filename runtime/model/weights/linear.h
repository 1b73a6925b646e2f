#pragma once

// A rank's part of one linear map, ready to be applied: what MLX calls Linear and QuantizedLinear.
//
// On a CPU the weights stay where they are mapped and our own kernels (runtime/kernels) read them
// as stored; activations are float32 there, because MLX sums bf16 in bf16 on a CPU. On a GPU the
// weights are MLX arrays and MLX's kernels do the work in the model's own type.

#include <cstdint>
#include <memory>
#include <optional>
#include <span>

#include "mlx/mlx.h"
#include "runtime/kernels/matrix_view.h"
#include "runtime/model/config/engine_device.h"
#include "runtime/model/config/model_config.h"

namespace macrame::runtime::engine {

// The type of hidden states on this machine's default device.
mlx::core::Dtype ActivationType(mlx::core::Dtype model_type, EngineDevice device);

// What MLX calls how the weights are quantised.
const char* MlxModeOf(const QuantizationTraits& traits);

// Rows [begin, begin + count) of a matrix.
kernels::MatrixView RowsOf(const kernels::MatrixView& matrix, size_t begin, size_t count);

// Zeros [rows of x, columns], of its type: what a rank without a unit of work has in place of what
// others make of x. They come behind x, whatever it waits for: sums over the ranks that follow
// stand in the same order on all of them.
mlx::core::array ZerosBehind(const mlx::core::array& x, int columns);

class Linear {
 public:
  // Weights that a kernel reads in place; `owner` keeps the memory that `view` points into.
  Linear(kernels::MatrixView view, std::shared_ptr<const void> owner,
         std::optional<mlx::core::array> bias);
  // Weights as MLX arrays: `scales` and `biases` unset for floats, `biases` for what has none.
  Linear(mlx::core::array weight, std::optional<mlx::core::array> scales,
         std::optional<mlx::core::array> biases, const QuantizationTraits& traits,
         std::optional<mlx::core::array> bias);

  // Maps of the same input as one, in an order of its own: its row i is row order[i] of the maps',
  // counted map after map. Unset where one map cannot hold them: formats that differ, biases on
  // some alone, weights that are read in place. Copies the rows; the maps can go then.
  static std::optional<Linear> Join(std::span<const Linear> maps, std::span<const int> order);

  // x [..., columns] -> [..., rows], plus the bias.
  mlx::core::array Apply(const mlx::core::array& x) const;
  // Rows as embeddings: [1, ids.size(), columns]. Every id must be below rows().
  mlx::core::array Rows(std::span<const int32_t> ids, mlx::core::Dtype type) const;
  // The same for ids that need not be evaluated, int32 [1, count]. Of weights that are MLX arrays.
  mlx::core::array Rows(const mlx::core::array& ids, mlx::core::Dtype type) const;

  // All numbers [rows, columns] of weights that are MLX arrays, unpacked.
  mlx::core::array Floats() const;

  int rows() const;
  // For CPU kernels: what they read, null weights on a GPU; and the bias.
  const kernels::MatrixView& view() const { return view_; }
  const std::optional<mlx::core::array>& bias() const { return bias_; }

 private:
  bool CanJoin(const Linear& other) const;
  kernels::MatrixView view_;
  std::shared_ptr<const void> owner_;  // null: the arrays below hold the weights
  std::optional<mlx::core::array> weight_;
  std::optional<mlx::core::array> scales_;
  std::optional<mlx::core::array> biases_;
  const char* mode_ = "affine";  // as MLX names it
  std::optional<mlx::core::array> bias_;
};

}  // namespace macrame::runtime::engine
