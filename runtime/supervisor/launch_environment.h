#pragma once

// What a rank process inherits of the agent's environment: a short list, so that a rank runs alike
// whoever started the agent.

#include <string>
#include <vector>

namespace macrame::runtime {

// How a Mac's GPU waits for the CPU, and so for the wire, in MLX. The fast way
// (MLX_METAL_FAST_SYNCH=1) spins on shared memory: a jaccl collective of 8 KB takes 21.2 us with it
// and 274.8 us without, as published of two M3 Ultra. It is also known to lock the GPU until the
// machine restarts (mlx issues 3142 and 3830; mlx pull request 4005 took it out of MLX's
// documentation in August 2026), on single machines too.
enum class FastSynch {
  kAuto,  // fast over jaccl, where collectives wait for the GPU at each layer; slow otherwise
  kOn,
  kOff,
};

// "NAME=value" of each variable of `environment` (as `environ` has them) that is passed on: PATH,
// HOME, USER, LOGNAME, TMPDIR, LANG, TZ, LC_*, OMP_NUM_THREADS, and MLX_* but for those that are
// set here or by rankd itself; and MLX_METAL_FAST_SYNCH=1 when `fast_synch`. Unset is MLX's slow
// way.
std::vector<std::string> LaunchEnvironment(const char* const* environment, bool fast_synch);

}  // namespace macrame::runtime
