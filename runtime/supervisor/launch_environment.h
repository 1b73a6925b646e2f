#pragma once

// What a rank process inherits of the agent's environment: a short list, so that a rank runs alike
// whoever started the agent.

#include <string>
#include <vector>

namespace macrame::runtime {

// "NAME=value" of each variable of `environment` (as `environ` has them) that is passed on: PATH,
// HOME, USER, LOGNAME, TMPDIR, LANG, TZ, LC_*, OMP_NUM_THREADS, and MLX_* but for those that rankd
// sets itself.
std::vector<std::string> LaunchEnvironment(const char* const* environment);

}  // namespace macrame::runtime
