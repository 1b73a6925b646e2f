#pragma once

// Carries out the steps of cli/service/service_plan.h: commands without a shell, from the system's
// own folders whatever PATH says, each within a limit; files written beside themselves and renamed.

#include <string>
#include <vector>

#include "absl/status/status.h"
#include "cli/environment.h"
#include "cli/service/service_plan.h"

namespace macrame::cli {

struct CommandResult {
  int code = -1;  // -1: it could not be run, or did not end in time
  std::string output;
  std::string errors;
};

class ServiceRunner {
 public:
  explicit ServiceRunner(const Environment& environment);

  // MACRAME_COMMANDS_FOLDER comes before the system's folders, for tests.
  std::string Find(const std::string& program) const;  // "" when it is nowhere
  CommandResult Run(const std::vector<std::string>& words) const;
  // With this process's own streams, for as long as it takes; its exit code, -1 as above.
  int RunInFront(const std::vector<std::string>& words) const;

  // What went wrong in the system's raw output; OK also after a failure that a step allows.
  absl::Status Carry(const ServiceStep& step) const;

 private:
  absl::Status Once(const ServiceStep& step) const;
  std::string commands_folder_;
};

}  // namespace macrame::cli
