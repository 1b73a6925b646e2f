#pragma once

// What hears how a forward step goes on: progress, timings, traces. Nobody needs to listen.

#include <cstdint>

#include "runtime/model/step/forward_step.h"

namespace macrame::runtime::engine {

enum class StepPart : uint8_t {
  kEmbed = 1,
  kLayer = 2,  // one layer of this rank
  kLogits = 3,
  kEvaluate = 4,  // what MLX's graph has left to do
  kSampling = 5,
  kCollective = 6,
};

class StepObserver {
 public:
  virtual ~StepObserver() = default;
  // Engine thread. Steps don't overlap on one rank; parts of a step are within it, but for
  // sampling, which comes after. Where a step is started while another one is computed, it is told
  // from that one's results to its own, and parts are those of building the next one.
  virtual void BeginStep(const ForwardStep& step) = 0;
  virtual void EndStep() = 0;
  virtual void BeginPart(StepPart part, uint32_t number) = 0;
  virtual void EndPart(StepPart part) = 0;
};

// From its making to its end. `observer` may be null.
class [[nodiscard]] StepScope {
 public:
  StepScope(StepObserver* observer, const ForwardStep& step) : observer_(observer) {
    if (observer_ != nullptr) observer_->BeginStep(step);
  }
  ~StepScope() {
    if (observer_ != nullptr) observer_->EndStep();
  }
  StepScope(const StepScope&) = delete;
  StepScope& operator=(const StepScope&) = delete;

 private:
  StepObserver* const observer_;
};

class [[nodiscard]] PartScope {
 public:
  PartScope(StepObserver* observer, StepPart part, uint32_t number = 0)
      : observer_(observer), part_(part) {
    if (observer_ != nullptr) observer_->BeginPart(part, number);
  }
  ~PartScope() {
    if (observer_ != nullptr) observer_->EndPart(part_);
  }
  PartScope(const PartScope&) = delete;
  PartScope& operator=(const PartScope&) = delete;

 private:
  StepObserver* const observer_;
  const StepPart part_;
};

}  // namespace macrame::runtime::engine
