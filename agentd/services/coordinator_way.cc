#include "agentd/services/coordinator_way.h"

#include <utility>

#include "proto/reasons.h"

namespace macrame::agentd {
namespace {

constexpr Duration kCoordinatorPoll = std::chrono::milliseconds(100);

}  // namespace

absl::Status CoordinatorWay::NoCoordinator() {
  return ReasonStatus(absl::StatusCode::kUnavailable, reasons::kNoCoordinator,
                      "no coordinator is agreed on");
}

void CoordinatorWay::At(const transport::Caller& caller, std::function<void()> here,
                        std::function<void(transport::PeerChannel&)> there,
                        std::function<void(const absl::Status&)> fail,
                        std::optional<MonotonicTime> since) {
  const MonotonicTime now = parts_.dispatcher.Now();
  if (parts_.election.Leading(now).has_value()) return here();
  if (!caller.local) return fail(NoCoordinator());
  const std::optional<FencePair> coordinator = parts_.election.Coordinator(now);
  if (coordinator.has_value() && coordinator->coordinator != parts_.own.id()) {
    transport::PeerChannel* channel = parts_.channels.For(coordinator->coordinator);
    if (channel != nullptr) return there(*channel);
  }
  const MonotonicTime begun = since.value_or(now);
  if (now - begun > kCoordinatorWait) return fail(NoCoordinator());
  parts_.dispatcher.PostAfter(
      kCoordinatorPoll, [this, caller, here = std::move(here), there = std::move(there),
                         fail = std::move(fail), begun] { At(caller, here, there, fail, begun); });
}

}  // namespace macrame::agentd
