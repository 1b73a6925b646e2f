#include "agentd/services/process_metrics.h"

#include <sys/resource.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

#include <fstream>
#include <optional>

#include "agentd/base/version.h"
#include "agentd/metrics/metric_names.h"

#ifdef __APPLE__
#include <mach/mach.h>
#endif

namespace macrame::agentd {
namespace {

namespace m = metrics;

double SecondsOf(const timeval& time) {
  return static_cast<double>(time.tv_sec) + static_cast<double>(time.tv_usec) * 1e-6;
}

std::optional<double> ResidentBytes() {
#ifdef __APPLE__
  mach_task_basic_info info{};
  mach_msg_type_number_t count = MACH_TASK_BASIC_INFO_COUNT;
  if (task_info(mach_task_self(), MACH_TASK_BASIC_INFO, reinterpret_cast<task_info_t>(&info),
                &count) != KERN_SUCCESS) {
    return std::nullopt;
  }
  return static_cast<double>(info.resident_size);
#else
  std::ifstream statm("/proc/self/statm");
  double all = 0, resident = 0;
  if (!(statm >> all >> resident)) return std::nullopt;
  return resident * static_cast<double>(sysconf(_SC_PAGESIZE));
#endif
}

}  // namespace

double ThreadCpuSeconds() {
  timespec time{};
  if (clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time) != 0) return 0;
  return static_cast<double>(time.tv_sec) + static_cast<double>(time.tv_nsec) * 1e-9;
}

void AddProcessMetrics(double started_unix_seconds, MetricSet& set) {
  set.Set(m::kBuildInfo, {kAgentVersion, kMlxVersion}, 1);
  set.Set(m::kProcessStart, {}, started_unix_seconds);
  rusage usage{};
  if (getrusage(RUSAGE_SELF, &usage) == 0) {
    set.Set(m::kProcessCpu, {}, SecondsOf(usage.ru_utime) + SecondsOf(usage.ru_stime));
  }
  rlimit files{};
  if (getrlimit(RLIMIT_NOFILE, &files) == 0) {
    set.Set(m::kProcessMaxFds, {}, static_cast<double>(files.rlim_cur));
  }
  if (const auto resident = ResidentBytes()) set.Set(m::kProcessMemory, {}, *resident);
}

}  // namespace macrame::agentd
