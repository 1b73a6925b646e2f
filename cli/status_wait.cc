#include "cli/status_wait.h"

#include <thread>

#include "cli/interrupt.h"

namespace macrame::cli {
namespace {

using Clock = std::chrono::steady_clock;

constexpr std::chrono::milliseconds kLookPause{250};
constexpr std::chrono::seconds kSilenceMax{20};

}  // namespace

StatusWait WaitForStatus(AgentClient& client, std::chrono::milliseconds limit,
                         const std::function<bool(const v1::ClusterStatus&)>& is_over) {
  InterruptWatch interrupt([&] { client.Cancel(); });
  const Clock::time_point until = Clock::now() + limit;
  Clock::time_point heard = Clock::now();
  while (!interrupt.interrupted()) {
    const auto status = client.GetStatus();
    if (interrupt.interrupted()) break;
    if (status.ok()) {
      heard = Clock::now();
      if (is_over(*status)) return {absl::OkStatus(), {}};
    } else if (Clock::now() - heard > kSilenceMax || absl::IsUnauthenticated(status.status()) ||
               absl::IsPermissionDenied(status.status())) {
      // A key that was revoked does not come back.
      return {status.status(), {}};
    }
    if (Clock::now() >= until) return {absl::DeadlineExceededError("not within the limit"), {}};
    std::this_thread::sleep_for(kLookPause);
  }
  return {absl::CancelledError("interrupted"), interrupt.exit_code()};
}

}  // namespace macrame::cli
