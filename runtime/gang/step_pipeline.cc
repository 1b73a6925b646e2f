#include "runtime/gang/step_pipeline.h"

#include <utility>

#include "proto/check.h"

namespace macrame::runtime::engine {

absl::Status StepPipeline::Send(std::span<const std::byte> hidden, size_t result_floats) {
  MACRAME_CHECK(results_.size() < stages_ && result_floats > 0)
      << results_.size() << " steps are on their way through " << stages_ << " stages";
  const bool takes_oldest = results_.size() + 1 >= stages_ && !results_.empty();
  absl::Status sent;
  if (takes_oldest && !results_.front().is_here) {
    Result& oldest = results_.front();
    sent = group_.SendAndReceive(hidden, next_,
                                 std::as_writable_bytes(std::span<float>(oldest.floats)), last_);
    oldest.is_here = sent.ok();
  } else {
    sent = group_.SendTo(hidden, next_);
  }
  if (sent.ok()) results_.push_back({std::vector<float>(result_floats)});
  return sent;
}

absl::StatusOr<std::vector<float>> StepPipeline::Await() {
  MACRAME_CHECK(!results_.empty()) << "no step is on its way";
  Result oldest = std::move(results_.front());
  results_.pop_front();
  if (!oldest.is_here) {
    const absl::Status received =
        group_.ReceiveFrom(std::as_writable_bytes(std::span<float>(oldest.floats)), last_);
    if (!received.ok()) return received;
  }
  return std::move(oldest.floats);
}

}  // namespace macrame::runtime::engine
