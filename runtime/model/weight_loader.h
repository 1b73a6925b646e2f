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
#include "runtime/model/weight_reader.h"

namespace macrame::runtime::engine {

class WeightLoader {
 public:
  // `on_progress` is told of bytes as they have been read from disk.
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
  StoredBytes SourceOf(const StoredTensor& tensor, Split split) const;
  // Bytes of this rank's part of a stored tensor, by split.
  Part TakePart(const StoredTensor& tensor, Split split);
  std::optional<mlx::core::array> LoadBias(const MatrixNeed& need);
  Matrix LoadForKernels(const MatrixNeed& need);
  Matrix LoadForMlx(const MatrixNeed& need);
  mlx::core::array TakeCopy(const Part& part, mlx::core::Shape shape, mlx::core::Dtype type) const;
  void ForEachTensor(const std::function<void(const StoredTensor&, Split)>& visit) const;
  std::vector<StoredBytes> OrderOfReading() const;

  const std::shared_ptr<const WeightFiles> files_;
  const ModelConfig& config_;
  const ShardPlace place_;
  WeightReader reader_;
  mlx::core::Dtype model_type_;
  mlx::core::Dtype activation_type_;
};

}  // namespace macrame::runtime::engine
