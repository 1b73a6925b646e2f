#include "transport/memory_release.h"

#include <cstdlib>  // defines __GLIBC__, where that is the library

#ifdef __GLIBC__
#include <malloc.h>
#endif

namespace macrame::transport {

void ReleaseFreedMemory() {
#ifdef __GLIBC__
  malloc_trim(0);
#endif
}

}  // namespace macrame::transport
