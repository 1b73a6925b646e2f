#include "transport/core_dumps.h"

#include <sys/resource.h>

#ifdef __linux__
#include <sys/prctl.h>
#endif

namespace macrame::transport {

void TurnOffCoreDumps() {
  const rlimit none{0, 0};
  setrlimit(RLIMIT_CORE, &none);
#ifdef __linux__
  // A program that the kernel hands dumps to gets them whatever the limit says.
  prctl(PR_SET_DUMPABLE, 0);
#endif
}

}  // namespace macrame::transport
