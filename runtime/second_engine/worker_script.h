#pragma once

// mlx_lm_worker.py, as it is in this program: nothing of the source tree is needed to run it.

namespace macrame::runtime {

extern const char* const kMlxLmWorkerScript;

}  // namespace macrame::runtime
