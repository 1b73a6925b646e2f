#include "transport/descriptor_limit.h"

#include <limits.h>
#include <sys/resource.h>

#include <algorithm>

namespace macrame::transport {

uint64_t RaiseDescriptorLimit() {
  rlimit limit{};
  if (getrlimit(RLIMIT_NOFILE, &limit) != 0) return 0;
  rlim_t wanted = kDescriptorsWanted;
#ifdef __APPLE__
  // More is refused, whatever the hard limit says (setrlimit(2)).
  wanted = std::min<rlim_t>(wanted, OPEN_MAX);
#endif
  if (limit.rlim_max != RLIM_INFINITY) wanted = std::min(wanted, limit.rlim_max);
  if (limit.rlim_cur >= wanted) return limit.rlim_cur;
  limit.rlim_cur = wanted;
  setrlimit(RLIMIT_NOFILE, &limit);
  getrlimit(RLIMIT_NOFILE, &limit);
  return limit.rlim_cur;
}

}  // namespace macrame::transport
