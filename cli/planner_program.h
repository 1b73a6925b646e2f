#pragma once

// Asks the `planner` program, which stands beside clusterctl, what needs no cluster to answer.

#include <string>

#include "absl/status/statusor.h"
#include "cli/environment.h"
#include "macrame/v1/planner.pb.h"

namespace macrame::cli {

// MACRAME_PLANNER names another program. An answer's `failure` comes back as a status with its
// reason; INTERNAL when the program can't be started, dies, or takes longer than a minute.
absl::StatusOr<v1::PlannerAnswer> AskPlanner(const v1::PlannerQuestion& question,
                                             const Environment& environment);

// The text of a file that the command line names. INVALID_ARGUMENT when it can't be read or is
// larger than 4 MiB.
absl::StatusOr<std::string> ReadDescription(const std::string& path);

}  // namespace macrame::cli
