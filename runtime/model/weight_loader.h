#pragma once

// Turns a rank's part of the mapped weights into matrices and vectors. Call CheckWeights first:
// shapes and types are taken as checked here.

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "mlx/mlx.h"
#include "runtime/model/matrix.h"
#include "runtime/model/model_config.h"
#include "runtime/model/weight_files.h"
#include "runtime/model/weight_needs.h"

namespace macrame::runtime::engine {

// The bytes [part_begin, part_begin + part_bytes) of each row of a row-after-row matrix, copied
// without gaps. Pure.
std::vector<std::byte> CopyColumnPart(const std::byte* data, size_t rows, size_t row_bytes,
                                      size_t part_begin, size_t part_bytes);

class WeightLoader {
 public:
  // `on_progress` is told the bytes of each tensor part after it has been read from disk.
  WeightLoader(std::shared_ptr<const WeightFiles> files, const ModelConfig& config,
               const ShardPlace& place, std::function<void(uint64_t)> on_progress);

  Matrix LoadMatrix(const MatrixNeed& need);
  // Unset for an empty name. Of the activation type.
  std::optional<mlx::core::array> LoadVector(const VectorNeed& need);

  // Of hidden states: see ActivationType. The model's own type is that of its first norm.
  mlx::core::Dtype activation_type() const { return activation_type_; }
  mlx::core::Dtype model_type() const { return model_type_; }

  // What LoadMatrix and LoadVector will have read when everything that `place` needs is loaded.
  uint64_t BytesNeeded() const;

 private:
  struct Part {
    const std::byte* data;
    size_t bytes;
    std::shared_ptr<const void> owner;
  };
  // Bytes of this rank's part of a stored tensor, by split.
  Part TakePart(const StoredTensor& tensor, Split split);
  std::optional<mlx::core::array> LoadBias(const MatrixNeed& need);
  Matrix LoadForKernels(const MatrixNeed& need);
  Matrix LoadForMlx(const MatrixNeed& need);
  uint64_t BytesOf(const MatrixNeed& need) const;

  const std::shared_ptr<const WeightFiles> files_;
  const ModelConfig& config_;
  const ShardPlace place_;
  const std::function<void(uint64_t)> on_progress_;
  mlx::core::Dtype model_type_;
  mlx::core::Dtype activation_type_;
};

}  // namespace macrame::runtime::engine
