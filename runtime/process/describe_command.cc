#include "runtime/process/describe_command.h"

#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <optional>

#include "macrame/v1/planner.pb.h"
#include "proto/reasons.h"
#include "runtime/model_files/model_description.h"
#include "runtime/process/exit_codes.h"
#include "runtime/process/memory_bound.h"
#include "runtime/second_engine/engine_facts.h"
#include "runtime/second_engine/mlx_lm.h"

namespace macrame::runtime::engine {
namespace {

constexpr unsigned kDescribeSecondsMax = 300;

SecondEngine AskForSecond(const std::string& python) {
  const char* setting = std::getenv("MACRAME_MLX_LM_PYTHON");  // the agent's
  return FindMlxLm(python.empty() && setting != nullptr ? setting : python);
}

}  // namespace

int RunDescribeCommand(const DescribeOptions& options) {
  BoundMemory(options.memory_mib, "looking at the model");
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
