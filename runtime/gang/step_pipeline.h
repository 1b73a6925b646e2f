#pragma once

// Rank 0's two ends of a pipeline: hidden states go in at the second stage, results come out of the
// last one, in the order of the steps. Every step has a result, so that no more are on their way
// than there are stages.
//
// Nobody waits in a ring: with messages larger than what the system buffers, a rank's send ends
// when the next one receives. Ranks 1 to last can all be held up by one another only if each of
// them has a step and the last one a result that rank 0 does not take. So with as many steps on
// their way as there are other stages, rank 0 takes the oldest result while it sends.
//
// Engine thread.

#include <cstddef>
#include <deque>
#include <span>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "transport/collectives/group.h"

namespace macrame::runtime::engine {

class StepPipeline {
 public:
  // `next`: where hidden states go to; `last`: where results come from. `group` lives as long.
  StepPipeline(transport::Group& group, int next, int last, int stages)
      : group_(group), next_(next), last_(last), stages_(static_cast<size_t>(stages)) {}

  // Steps that may be on their way at once.
  size_t steps_max() const { return stages_; }
  size_t steps() const { return results_.size(); }

  // One more step; its result will have so many floats (at least one).
  absl::Status Send(std::span<const std::byte> hidden, size_t result_floats);
  // The oldest step's result.
  absl::StatusOr<std::vector<float>> Await();

 private:
  struct Result {
    std::vector<float> floats;
    bool is_here = false;
  };

  transport::Group& group_;
  const int next_, last_;
  const size_t stages_;
  std::deque<Result> results_;  // oldest first
};

}  // namespace macrame::runtime::engine
