#include "runtime/process/describe_command.h"

#include <sys/resource.h>
#include <unistd.h>

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <optional>
#include <thread>

#include "macrame/v1/planner.pb.h"
#include "proto/reasons.h"
#include "runtime/model_files/model_description.h"
#include "runtime/process/exit_codes.h"
#include "runtime/second_engine/engine_facts.h"
#include "runtime/second_engine/mlx_lm.h"

namespace macrame::runtime::engine {
namespace {

constexpr std::chrono::milliseconds kLookPause{10};
constexpr unsigned kDescribeSecondsMax = 300;
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

// Linux refuses memory beyond the bound itself; macOS takes the limit and does not keep it, so
// there it is this thread alone that looks, every 10 ms.
void BoundMemory(uint64_t memory_mib) {
  rlimit limit{};
  limit.rlim_cur = limit.rlim_max = kReservedBytes + (memory_mib << 20);
  setrlimit(RLIMIT_DATA, &limit);
  std::thread([memory_mib] {
    while (UsedBytes() <= memory_mib << 20) std::this_thread::sleep_for(kLookPause);
    std::fprintf(stderr, "rankd: looking at the model takes more than %llu MiB of memory\n",
                 static_cast<unsigned long long>(memory_mib));
    _exit(kExitOutOfMemory);
  }).detach();
}

SecondEngine AskForSecond(const std::string& python) {
  const char* setting = std::getenv("MACRAME_MLX_LM_PYTHON");  // the agent's
  return FindMlxLm(python.empty() && setting != nullptr ? setting : python);
}

}  // namespace

int RunDescribeCommand(const DescribeOptions& options) {
  BoundMemory(options.memory_mib);
  // Whoever asked may be gone, and the folder on a disk that never answers.
  alarm(kDescribeSecondsMax);
  v1::ModelFolderAnswer answer;
  std::optional<SecondEngine> second;
  if (!options.second_engine.empty()) {
    second = ParseSecondEngine(options.second_engine);
    if (!second.has_value()) {
      std::fprintf(stderr, "rankd: --second-engine can't be read\n");
      return kExitUsage;
    }
  }
  auto model = DescribeModel(options.folder, second.value_or(SecondEngine{}));
  if (!second.has_value() &&
      ReasonOf(model.status()).code() == reasons::kModelArchitectureUnknown) {
    model = DescribeModel(options.folder, AskForSecond(options.python));
  }
  if (model.ok()) {
    *answer.mutable_model() = *std::move(model);
  } else {
    *answer.mutable_failure() = ReasonOf(model.status());
  }
  return answer.SerializeToFileDescriptor(STDOUT_FILENO) ? kExitOrderly : kExitInternal;
}

}  // namespace macrame::runtime::engine
