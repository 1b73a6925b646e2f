#pragma once

// The draft model of rank 0: a small model, whole, on the rank's device, with a KV cache of its
// own. Greedy: it gives the likeliest tokens, and the gang's own sampler decides. All answers of an
// order go through its layers together. Engine thread.
//
// It runs between two steps of the gang and not beside them: a step is limited by the memory bus,
// or has all of the device, and what runs beside it would slow it by as much. Where others of the
// gang have steps to work on meanwhile (a pipeline), they do.

#include <atomic>
#include <chrono>
#include <cstdint>
#include <map>
#include <memory>
#include <span>
#include <vector>

#include "runtime/gang/watchdog.h"
#include "runtime/model/config/model_config.h"
#include "runtime/model/step/layer_stack.h"
#include "runtime/model/step/rank_sums.h"
#include "runtime/model/weights/weight_loader.h"
#include "runtime/serving/drafter.h"

namespace macrame::runtime::engine {

struct DrafterOptions {
  DraftModelTraits traits;
  int token_end = 0;  // only ids below it are drafted
  int threads = 1;
  std::chrono::milliseconds pass_limit{0};  // zero: none
};

class ModelDrafter : public Drafter {
 public:
  // Loads the weights. `watchdog` must live as long.
  ModelDrafter(const ModelConfig& config, WeightLoader& loader, Watchdog& watchdog,
               const DrafterOptions& options);

  absl::StatusOr<DraftsMade> Carry(const DraftOrder& order) override;

  const DraftModelTraits& traits() const { return options_.traits; }
  // What the KV cache and the buffers of passes have taken so far. Any thread.
  uint64_t bytes() const { return bytes_.load(); }

 private:
  // How far an order's part has come.
  struct Progress {
    uint32_t position = 0;  // of the next token to run
    uint32_t blocks = 0;    // of the slot's table, once told
    size_t told = 0;        // of the part's blocks
  };
  Segment SegmentOf(const DraftOrder::Part& part, std::vector<int32_t> tokens, Progress& progress);
  // Runs a pass; adds a token to each draft that asked for one.
  absl::Status RunPass(const ForwardStep& step, const std::vector<size_t>& asking,
                       DraftsMade& made);
  // Computes what a graph left to do: the rows, and keys and values.
  void Finish(mlx::core::array result) const;
  void NoteBytes(const ForwardStep& step);

  const ModelConfig config_;
  const DrafterOptions options_;
  Watchdog& watchdog_;
  NoRankSums sums_;
  std::unique_ptr<LayerStack> layers_;
  uint64_t blocks_used_ = 0;  // the highest number of a block so far, plus one
  std::atomic<uint64_t> bytes_ = 0;
};

}  // namespace macrame::runtime::engine
