#include "cli/exit_codes.h"

#include "proto/reasons.h"

namespace macrame::cli {

ExitCode ExitCodeOf(const absl::Status& status) {
  const std::string code = ReasonOf(status).code();
  if (code == reasons::kNotReady || code == reasons::kClusterPaused) {
    return absl::IsDeadlineExceeded(status) ? kExitTimedOut : kExitConflict;
  }
  if (code == reasons::kNodeNotFound || code == reasons::kNodeAmbiguous) return kExitNotFound;
  if (code == reasons::kBadRequest) return kExitUsage;
  if (code == reasons::kAgentUnreachable || code == reasons::kNoCoordinator)
    return kExitUnreachable;
  switch (status.code()) {
    case absl::StatusCode::kOk:
      return kExitOk;
    case absl::StatusCode::kNotFound:
      return kExitNotFound;
    case absl::StatusCode::kAlreadyExists:
    case absl::StatusCode::kFailedPrecondition:
    case absl::StatusCode::kAborted:
      return kExitConflict;
    case absl::StatusCode::kPermissionDenied:
    case absl::StatusCode::kUnauthenticated:
      return kExitUnauthorised;
    case absl::StatusCode::kUnavailable:
      return kExitUnreachable;
    case absl::StatusCode::kDeadlineExceeded:
      return kExitTimedOut;
    default:
      return kExitFailure;
  }
}

std::string ExitCodesText() {
  return "Exit codes:\n"
         "  0    done\n"
         "  1    failed; for 'plan': the model does not fit\n"
         "  2    the command line is wrong\n"
         "  3    done on some nodes only\n"
         "  4    no such model, node or deployment\n"
         "  5    the present state does not allow it\n"
         "  6    not permitted\n"
         "  7    agentd does not answer, or the cluster has no coordinator\n"
         "  8    timed out\n"
         "  10   doctor: warnings (11: degraded, 12: errors)\n"
         "  130  interrupted (143: terminated)\n";
}

}  // namespace macrame::cli
