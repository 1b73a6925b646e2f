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
#include "runtime/model/config/model_config.h"
#include "runtime/model/weights/linear.h"
#include "runtime/model/weights/weight_files.h"
#include "runtime/model/weights/weight_needs.h"
#include "runtime/model/weights/weight_reader.h"

namespace macrame::runtime::engine {

// The same map of each expert of a layer as MLX arrays [experts, rows, columns]. `scales` and
// `biases` unset for floats; no `biases` where traits have none.
struct StackedLinear {
  mlx::core::array weight;
  std::optional<mlx::core::array> scales;
  std::optional<mlx::core::array> biases;
  QuantizationTraits traits{};
  std::optional<mlx::core::array> bias{};  // [experts, rows]
};

class WeightLoader {
 public:
  // `on_progress` is told of bytes as they have been read from disk.
  WeightLoader(std::shared_ptr<const WeightFiles> files, const ModelConfig& config,
               const ShardPlace& place, EngineDevice device,
               std::function<void(uint64_t)> on_progress);

  Linear LoadLinear(const LinearNeed& need);
  // Maps that read the same input as one, for MLX: its rows are theirs, map after map, each
  // need.part_rows(). Every byte is copied once, to its place among them. Unset, and nothing is
  // read, where one Linear cannot hold them or where they have no rows to join: they must agree in
  // their stored types, quantisation and columns, and all or none must have a bias. Unset too for
  // maps that are split by columns or stored by head, and on a device whose kernels read weights
  // in place.
  std::optional<Linear> LoadJoined(const std::vector<const LinearNeed*>& needs);
  // This rank's parts of all experts' maps of one kind, one after the other: for MLX.
  StackedLinear LoadStacked(const std::vector<const LinearNeed*>& needs);
  // Several kinds of maps of all experts as one, as LoadJoined: `maps` by kind, then by expert.
  std::optional<StackedLinear> LoadStackedJoined(
      const std::vector<std::vector<const LinearNeed*>>& maps);
  // Of a map that is stored by head, this rank's heads: [heads, rows of one, columns], for MLX.
  StackedLinear LoadHeads(const LinearNeed& need);
  // This rank's rows of a map that is not, as `heads` parts, in floats.
  StackedLinear LoadHeadsFrom(const LinearNeed& need, int heads);
  // Whether a layer's experts are to be loaded with gate and up of each together: on a CPU, where
  // they are in one tensor.
  bool LoadsByExpert(const LayerNeeds& needs) const;
  bool IsStoredByHead(const LatentNeeds& needs) const {
    return engine::IsStoredByHead(needs, *files_);
  }
  // Unset for an empty name. Of the activation type.
  std::optional<mlx::core::array> LoadVector(const VectorNeed& need);

  // Of hidden states: see ActivationType. The model's own type is that of its first norm.
  mlx::core::Dtype activation_type() const { return activation_type_; }
  mlx::core::Dtype model_type() const { return model_type_; }
  EngineDevice device() const { return device_; }

  // What LoadLinear and LoadVector will hold when everything that `place` needs is loaded.
  uint64_t BytesNeeded() const;

 private:
  struct Part {
    const std::byte* data;
    size_t bytes;
    std::shared_ptr<const void> owner;
  };
  // [begin, begin + bytes) of each of `rows` rows: what a rank has of a stored tensor.
  struct StoredPart {
    size_t rows = 0;
    size_t first_row = 0;
    size_t row_bytes = 0;  // of the whole row
    size_t begin = 0;
    size_t bytes = 0;
    size_t all_bytes() const { return rows * bytes; }
    bool looked_at = false;     // and not kept
    bool makes_biases = false;  // as many bytes of them
    size_t turned = 0;          // above 0: it is turned over, numbers of so many bytes
    size_t turns = 1;           // then: every so many of a row's numbers is its own
  };
  using Visit = std::function<void(const StoredTensor&, const StoredPart&)>;
  static StoredPart WholeOf(const StoredTensor& tensor);
  StoredPart PartOf(const StoredTensor& tensor, const LinearNeed& need) const;
  static StoredPart TurnedPartOf(const StoredTensor& tensor, const LinearNeed& need,
                                 const StoredNames& names);
  // Unset: this rank adds none.
  std::optional<StoredPart> BiasPartOf(const StoredTensor& tensor, const LinearNeed& need) const;
  static StoredBytes SourceOf(const StoredTensor& tensor, const StoredPart& part);
  // Whole rows that are held byte for byte.
  static bool IsStoredAsHeld(const StoredTensor& tensor, const StoredPart& part);
  // What a rank holds of it: 8-bit floats are widened.
  static size_t HeldBytes(const StoredTensor& tensor, const StoredPart& part);
  Part TakePart(const StoredTensor& tensor, const StoredPart& part);
  // Of a packed map, from its scales.
  Part BiasesFrom(const Part& scales, const StoredTensor& tensor, int bits);
  Part WidenPart(const StoredTensor& tensor, const StoredPart& part, StoredBytes source);
  std::optional<mlx::core::array> LoadBias(const LinearNeed& need);
  // The same for MLX, of the type of `scales`.
  mlx::core::array BiasesOf(const mlx::core::array& scales, int bits);
  Linear LoadForKernels(const LinearNeed& need);
  // Maps of the same columns, by kind, then by expert; where they are `stacked`, their arrays have
  // a dimension of experts, else there is one of each kind.
  struct Maps {
    std::vector<std::vector<const LinearNeed*>> each;
    bool stacked = false;
  };
  struct Found {
    const StoredTensor* stored;
    StoredPart part;
  };
  using Find = std::function<Found(const LinearNeed&)>;
  // One kind of tensor of all maps, [experts, rows of all kinds, columns]; a bias has no columns.
  mlx::core::array TakeMaps(const Maps& maps, const Find& find, bool has_columns);
  std::optional<mlx::core::array> TakeBias(const Maps& maps);
  StackedLinear LoadMaps(const Maps& maps);
  Linear LoadForMlx(const Maps& maps);
  // Whether one map can hold them all.
  bool CanJoin(const std::vector<const LinearNeed*>& needs) const;
  // Of the activation type: at once, since MLX would keep what was stored until it is first used.
  mlx::core::array AsActivations(mlx::core::array stored, bool exact) const;
  mlx::core::array TakeCopy(const Part& part, mlx::core::Shape shape, mlx::core::Dtype type) const;
  void ForEachTensor(const Visit& visit) const;
  std::vector<StoredBytes> OrderOfReading() const;

  const std::shared_ptr<const WeightFiles> files_;
  const ModelConfig& config_;
  const ShardPlace place_;
  const EngineDevice device_;
  WeightReader reader_;
  mlx::core::Dtype model_type_;
  mlx::core::Dtype activation_type_;
};

}  // namespace macrame::runtime::engine
