#include "runtime/process/memory_bound.h"

#include <sys/resource.h>
#include <unistd.h>

#include <chrono>
#include <cstdio>
#include <fstream>
#include <string>
#include <thread>

#include "runtime/process/exit_codes.h"

namespace macrame::runtime::engine {
namespace {

constexpr std::chrono::milliseconds kLookPause{10};
// Of the system's own bound beside: what the libraries and the threads' stacks reserve is more than
// what they use.
constexpr uint64_t kReservedBytes = uint64_t{2} << 30;

uint64_t UsedBytes() {
#ifdef __APPLE__
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  return static_cast<uint64_t>(usage.ru_maxrss);
#else
  // Not ru_maxrss: what the process that started this one once took counts in that.
  std::ifstream statm("/proc/self/statm");
  uint64_t all = 0, resident = 0;
  statm >> all >> resident;
  return resident * static_cast<uint64_t>(sysconf(_SC_PAGESIZE));
#endif
}

}  // namespace

// Linux refuses memory beyond the bound itself; macOS takes the limit and does not keep it, so
// there it is this thread alone that looks, every 10 ms.
void BoundMemory(uint64_t memory_mib, std::string_view what) {
  rlimit limit{};
  limit.rlim_cur = limit.rlim_max = kReservedBytes + (memory_mib << 20);
  setrlimit(RLIMIT_DATA, &limit);
  std::thread([memory_mib, what = std::string(what)] {
    while (UsedBytes() <= memory_mib << 20) std::this_thread::sleep_for(kLookPause);
    std::fprintf(stderr, "rankd: %s takes more than %llu MiB of memory\n", what.c_str(),
                 static_cast<unsigned long long>(memory_mib));
    _exit(kExitOutOfMemory);
  }).detach();
}

}  // namespace macrame::runtime::engine
