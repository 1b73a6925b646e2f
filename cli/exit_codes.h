#pragma once

// What clusterctl's exit code says. Part of the product's interface: scripts decide by them.

#include <string>

#include "absl/status/status.h"

namespace macrame::cli {

enum ExitCode : int {
  kExitOk = 0,
  kExitFailure = 1,           // it was tried and did not work; for `plan`: the model does not fit
  kExitUsage = 2,             // the command line is wrong
  kExitPartial = 3,           // done on some nodes, not on others
  kExitNotFound = 4,          // no such model, node or deployment
  kExitConflict = 5,          // the present state does not allow it
  kExitUnauthorised = 6,      // not permitted
  kExitUnreachable = 7,       // agentd does not answer, or no coordinator is agreed on
  kExitTimedOut = 8,          // took longer than --timeout
  kExitFindingWarning = 10,   // doctor: works, at a risk
  kExitFindingDegraded = 11,  // doctor: works on a lesser backend
  kExitFindingError = 12,     // doctor: does not work
  kExitInterrupted = 130,     // Ctrl-C
  kExitTerminated = 143,      // SIGTERM
};

ExitCode ExitCodeOf(const absl::Status& status);

// The list as --help prints it.
std::string ExitCodesText();

}  // namespace macrame::cli
