#include "agentd/node/model_describer.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "macrame/v1/planner.pb.h"
#include "proto/reasons.h"
#include "runtime/second_engine/engine_facts.h"

namespace macrame::agentd {
namespace {

using discovery::CommandOutcome;

// UNAVAILABLE: asked again by the next scan; else it stays until the folder's files change.
absl::Status Broken(const std::string& folder, const std::string& what,
                    absl::StatusCode code = absl::StatusCode::kDataLoss) {
  v1::Reason reason =
      MakeReason(reasons::kModelFileBroken,
                 absl::StrCat(folder, " can't be looked at: rankd --describe ", what));
  reason.set_remedy("get the model anew from a source that you trust, or remove the folder");
  return ReasonStatus(code, reason);
}

absl::Status Missing(const std::string& rankd) {
  v1::Reason reason = MakeReason(reasons::kEngineMissing,
                                 absl::StrCat("no model can be looked at without ", rankd));
  reason.set_remedy("install rankd beside agentd, or set rankd_path");
  return ReasonStatus(absl::StatusCode::kUnavailable, reason);
}

absl::Status Failed(v1::Reason reason) {
  const bool absent =
      reason.code() == reasons::kModelNotFound || reason.code() == reasons::kModelFileMissing;
  return ReasonStatus(absent ? absl::StatusCode::kNotFound : absl::StatusCode::kInvalidArgument,
                      reason);
}

}  // namespace

absl::StatusOr<v1::ModelDescription> ModelDescriber::Describe(
    const std::string& folder, const runtime::SecondEngine& second) const {
  discovery::Command command;
  command.argv = {rankd_, "--describe", folder, "--second-engine",
                  runtime::SecondEngineText(second)};
  command.limit = kDescribeLimit;
  const discovery::CommandResult result = runner_->Run(command);
  switch (result.outcome) {
    case CommandOutcome::kNotFound:
      return Missing(rankd_);
    case CommandOutcome::kNotRun:
      return absl::UnavailableError(absl::StrCat("rankd was not run: ", result.err));
    case CommandOutcome::kTimedOut:
      return Broken(folder, absl::StrCat("was ended: ", DescribeOutcome(command, result)));
    case CommandOutcome::kSignalled:
      // Its program may just have been replaced, or the machine have been out of memory.
      return Broken(folder, absl::StrCat("was ended: ", DescribeOutcome(command, result)),
                    absl::StatusCode::kUnavailable);
    case CommandOutcome::kExited:
      break;
  }
  if (!result.Succeeded()) return Broken(folder, DescribeOutcome(command, result));
  v1::ModelFolderAnswer answer;
  if (!answer.ParseFromString(result.out)) return Broken(folder, "gave no answer");
  if (answer.has_failure()) return Failed(answer.failure());
  if (!answer.has_model()) return Broken(folder, "gave no answer");
  return std::move(*answer.mutable_model());
}

}  // namespace macrame::agentd
