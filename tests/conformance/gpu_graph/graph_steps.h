#pragma once

// Steps of a rank as ForwardEngine runs them, each held against what the stand-in GPU was told to
// do for it. Main thread, after BeginStandInGpu.

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "runtime/model/step/layer_stack.h"
#include "runtime/model/step/rank_sums.h"
#include "runtime/model/weights/weight_files.h"
#include "runtime/model/weights/weight_needs.h"
#include "tests/conformance/gpu_graph/graph_models.h"
#include "tests/conformance/gpu_graph/stand_in_gpu.h"

namespace macrame::gpu_graph {

// Sequences that decode at a time in "decode-8" and, all but one, in "mixed".
inline constexpr int kStreams = 8;

struct StepCount {
  DeviceWork work{};
  // Evaluations before the step's own: each is a wait of the host amid a step.
  int early_evaluations = 0;
  double build_ms = 0;  // of the processor's time for the graph, the least of some steps
};

// The shapes of steps that are counted.
std::vector<std::string> StepShapes();

// A rank of `model` at `place`: "alone", "tensor" (the first of two ranks that share each layer),
// "experts" (the same, with whole experts) or "narrow" (alone, with keys and values in 8 bits).
class CountedRank {
 public:
  CountedRank(const GraphModel& model, const std::string& folder, const std::string& place);

  // A step of this shape, behind others of the same.
  StepCount Count(const std::string& shape);

 private:
  struct Sequence {
    uint32_t slot = 0;
    int held = 0;
  };
  void Restart(int sequences, int context);
  runtime::engine::Segment Take(Sequence& sequence, int tokens, bool gives_logits);
  StepCount RunStep(const runtime::engine::ForwardStep& step);
  StepCount Repeated(int streams, int chunk);

  const GraphModel model_;
  const int blocks_each_;
  const runtime::engine::ModelConfig config_;
  runtime::engine::NoRankSums sums_;
  std::unique_ptr<runtime::engine::LayerStack> stack_;
  std::vector<Sequence> sequences_;
};

}  // namespace macrame::gpu_graph
