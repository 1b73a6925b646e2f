#pragma once

// clusterctl as a function: a command line and an environment in, an exit code out.

#include <string>
#include <vector>

#include "cli/environment.h"

namespace macrame::cli {

// `arguments` without the program's name.
int RunClusterctl(const std::vector<std::string>& arguments, const Environment& environment);

}  // namespace macrame::cli
