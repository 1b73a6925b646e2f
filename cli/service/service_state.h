#pragma once

// What systemd or launchd says of the service, read from what their commands print. Pure.

#include <cstdint>
#include <string>
#include <vector>

#include "cli/service/service_plan.h"

namespace macrame::cli {

struct ServiceState {
  bool known = false;  // installed, as far as the manager is concerned
  bool running = false;
  bool at_boot = false;
  int64_t pid = 0;         // 0: none
  std::string state;       // as the manager says it: "active (running)", "not running"
  std::string since;       // "" where it does not say
  int64_t starts = -1;     // -1: it does not say
  int64_t exit_code = -1;  // of the run before this one, or of the last; -1: none ended
};

// The command whose output is read.
std::vector<std::string> StateCommand(ServiceManager manager);
// Of its standard output.
ServiceState ReadState(ServiceManager manager, const std::string& output);

}  // namespace macrame::cli
