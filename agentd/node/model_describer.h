#pragma once

// Looks at model folders through `rankd --describe`, so that a folder which others made costs this
// agent neither its memory nor its time: the process is bounded
// (runtime/process/describe_command.h) and killed at kDescribeLimit. Blocking; one thread.

#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "discovery/probe/command_runner.h"
#include "macrame/v1/model.pb.h"
#include "runtime/second_engine/mlx_lm.h"

namespace macrame::agentd {

// A folder of 256 shards on a slow disk takes some seconds.
inline constexpr Duration kDescribeLimit = std::chrono::seconds(60);

class ModelDescriber {
 public:
  // `rankd`: the program's path.
  ModelDescriber(std::shared_ptr<discovery::CommandRunner> runner, std::string rankd)
      : runner_(std::move(runner)), rankd_(std::move(rankd)) {}

  // As runtime::DescribeModel; besides MODEL_FILE_BROKEN where the folder asks for more time or
  // memory than that may take, ENGINE_MISSING without rankd.
  absl::StatusOr<v1::ModelDescription> Describe(const std::string& folder,
                                                const runtime::SecondEngine& second) const;

 private:
  const std::shared_ptr<discovery::CommandRunner> runner_;
  const std::string rankd_;
};

}  // namespace macrame::agentd
