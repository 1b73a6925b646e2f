#include "agentd/services/coordinator_way.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "proto/reasons.h"

namespace macrame::agentd {
namespace {

constexpr Duration kCoordinatorPoll = std::chrono::milliseconds(100);

}  // namespace

absl::Status CoordinatorWay::NoCoordinator() {
  return ReasonStatus(absl::StatusCode::kUnavailable, reasons::kNoCoordinator,
                      "no coordinator is agreed on");
}

absl::Status CoordinatorWay::Told(const NodeId& coordinator, const absl::Status& status) {
  const bool is_silent = (absl::IsUnavailable(status) || absl::IsDeadlineExceeded(status)) &&
                         ReasonOf(status).code() == reasons::kInternal;
  if (!is_silent) return status;
  return ReasonStatus(
      absl::StatusCode::kUnavailable, reasons::kNoCoordinator,
      absl::StrCat("the coordinator, node ", ShortId(coordinator), ", did not answer (",
                   status.message(), "); it may have done what it was asked to all the same"),
      coordinator.value());
}

void CoordinatorWay::At(const transport::Caller& caller, std::function<void()> here,
                        std::function<void(transport::PeerChannel&, const NodeId&)> there,
                        std::function<void(const absl::Status&)> fail,
                        std::optional<MonotonicTime> since) {
  const MonotonicTime now = parts_.dispatcher.Now();
  if (parts_.election.Leading(now).has_value()) return here();
  if (!caller.IsPerson()) return fail(NoCoordinator());
  const std::optional<FencePair> coordinator = parts_.election.Coordinator(now);
  if (coordinator.has_value() && coordinator->coordinator != parts_.own.id()) {
    transport::PeerChannel* channel = parts_.channels.For(coordinator->coordinator);
    if (channel != nullptr) return there(*channel, coordinator->coordinator);
  }
  const MonotonicTime begun = since.value_or(now);
  if (now - begun > kCoordinatorWait) return fail(NoCoordinator());
  parts_.dispatcher.PostAfter(
      kCoordinatorPoll, [this, caller, here = std::move(here), there = std::move(there),
                         fail = std::move(fail), begun] { At(caller, here, there, fail, begun); });
}

}  // namespace macrame::agentd
