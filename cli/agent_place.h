#pragma once

// Which agent a run of clusterctl asks: by flag, by variable, or by what is there.

#include <string>

#include "absl/status/statusor.h"
#include "cli/agent_client.h"
#include "cli/environment.h"

namespace macrame::cli {

// As typed; empty: not.
struct PlaceFlags {
  std::string socket;  // --socket
  std::string access;  // --access
  std::string host;    // --host
};

// Flags come before variables (MACRAME_SOCKET, MACRAME_ACCESS, MACRAME_HOST), and both before the
// usual places: this machine's agent where there is one, else "~/.macrame/cluster.access" where
// that is. INVALID_ARGUMENT for a socket and an access file at once, and for a host without an
// access file.
absl::StatusOr<AgentPlace> ChooseAgent(const PlaceFlags& flags, const Environment& environment);

}  // namespace macrame::cli
