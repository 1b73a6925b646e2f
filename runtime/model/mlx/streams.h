#pragma once

// Residual streams as MLX graphs (ModelConfig::streams): what half a layer reads of them, and how
// what it gives goes back into them. In float32. Engine thread only.

#include <functional>
#include <optional>

#include "mlx/mlx.h"
#include "runtime/model/config/model_config.h"
#include "runtime/model/mlx/fused.h"
#include "runtime/model/weights/linear.h"
#include "runtime/model/weights/weight_loader.h"
#include "runtime/model/weights/weight_needs.h"

namespace macrame::runtime::engine {

// Divides the columns of matrices [rows, count, count] by their sums, then their rows and columns
// in turn. On Metal that is a kernel of our own, since the graph has some eighty small operations
// for each half layer; it is used where it gives what the graph gives.
class MlxBalance {
 public:
  MlxBalance(const StreamTraits& traits, EngineDevice device);
  mlx::core::array operator()(const mlx::core::array& matrices) const { return balance_(matrices); }

 private:
  std::function<mlx::core::array(const mlx::core::array&)> balance_;
};

// What all half layers share.
struct MlxStreamWork {
  MlxStreamWork(const ModelConfig& config, EngineDevice device);
  const StreamTraits traits;
  const int hidden;
  const float norm_eps;
  const MlxBalance balance;
  const Fused scale, read_weights, add_weights, read, mix;
  const mlx::core::array eps;
};

// How half a layer weighs the streams.
class MlxStreamMix {
 public:
  MlxStreamMix(const StreamNeeds& needs, const StreamTraits& traits, WeightLoader& loader);

 private:
  friend class MlxStreams;
  Linear map_;
  mlx::core::array base_, scale_;  // of each of the map's rows
};

// The streams of a step's rows.
class MlxStreams {
 public:
  // `carried`: rows that begin with the streams and then the weights by which they are read
  // (cuts/carried.h).
  MlxStreams(const MlxStreamWork& work, const mlx::core::array& carried);

  // What a half layer reads, [rows, hidden]: the streams weighed as the half before it said. `mix`
  // says how the half's result is added, and how the next half reads.
  mlx::core::array Begin(const MlxStreamMix& mix);
  // `given` [rows, hidden]: what the half layer gave.
  void End(const mlx::core::array& given);
  // As `carried` had them.
  mlx::core::array Carried() const;
  // As a hidden state.
  mlx::core::array Collapsed() const;

  // All streams begin as the embedding [rows, hidden], and the first half layer reads the first
  // one: as carried rows.
  static mlx::core::array Embedded(const StreamTraits& traits, const mlx::core::array& hidden);

 private:
  const MlxStreamWork& work_;
  mlx::core::array streams_, weights_;  // [rows, count, hidden], [rows, count]
  // Of the half layer that runs: by which the next one reads, by which its result is added, and
  // what mixes the streams.
  struct Mixes {
    mlx::core::array read, add, matrix;
  };
  std::optional<Mixes> mixes_;
};

}  // namespace macrame::runtime::engine
