#pragma once

// What carries out the orders of a DraftPlanner: a draft model, or what stands for one in tests.
// Engine thread.

#include "absl/status/statusor.h"
#include "runtime/serving/draft_planner.h"

namespace macrame::runtime::engine {

class Drafter {
 public:
  virtual ~Drafter() = default;
  // Runs the parts of an order and gives what came of them. After an error it is not asked again.
  virtual absl::StatusOr<DraftsMade> Carry(const DraftOrder& order) = 0;
};

}  // namespace macrame::runtime::engine
