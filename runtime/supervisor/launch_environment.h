#pragma once

// What a rank process inherits of the agent's environment: a short list, so that a rank runs alike
// whoever started the agent.

#include <string>
#include <vector>

namespace macrame::runtime {

// "NAME=value" of each variable of `environment` (as `environ` has them) that is passed on: PATH,
// HOME, USER, LOGNAME, TMPDIR, LANG, TZ, LC_*, OMP_NUM_THREADS, and MLX_* but for those that rankd
// sets itself; and MLX_METAL_FAST_SYNCH=1 unless `environment` says otherwise: without it a Mac's
// GPU and the ranks' wire wait a quarter of a millisecond for each other at every collective (274.8
// us instead of 21.2 us over RDMA, as published of two M3 Ultra). Needs macOS 15; older ones ignore
// it.
std::vector<std::string> LaunchEnvironment(const char* const* environment);

}  // namespace macrame::runtime
