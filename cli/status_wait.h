#pragma once

// Looks at the cluster again and again until something is so, or Ctrl-C ends the wait.

#include <chrono>
#include <functional>
#include <optional>

#include "absl/status/status.h"
#include "cli/agent_client.h"
#include "cli/exit_codes.h"

namespace macrame::cli {

// How a wait ended.
struct StatusWait {
  absl::Status status;                  // OK: it is so; DEADLINE_EXCEEDED: not within the limit
  std::optional<ExitCode> interrupted;  // by a signal; `client` answers nothing any more
};

// `is_over` is asked for each status that the agent tells. An agent or a coordinator that changes
// meanwhile is waited for; one that stays silent for 20 s ends the wait with its own error.
StatusWait WaitForStatus(AgentClient& client, std::chrono::milliseconds limit,
                         const std::function<bool(const v1::ClusterStatus&)>& is_over);

}  // namespace macrame::cli
