#include "runtime/process/termination_message.h"

#include <unistd.h>

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "proto/reasons.h"

namespace macrame::runtime::engine {

TerminationMessage::TerminationMessage(const v1::LaunchSpec& spec) {
  const std::string& model = spec.deployment().empty() ? spec.model().path() : spec.deployment();
  prefix_ = absl::StrCat("rankd: rank ", spec.rank(), " of model ", model, ": ");
}

bool TerminationMessage::Say(const absl::Status& why) {
  if (said_.exchange(true)) return false;
  std::string line = absl::StrCat(prefix_, ReasonOf(why).code(), ": ", why.message());
  std::replace(line.begin(), line.end(), '\n', ' ');
  line += '\n';
  // One write, so that lines of other threads don't mix in.
  const ssize_t written = write(STDERR_FILENO, line.data(), line.size());
  (void)written;
  return true;
}

absl::Status StalledStatus(const std::string& what, std::chrono::milliseconds limit) {
  const char* code = what == kConnectingToGang ? reasons::kInitStalled : reasons::kRankStalled;
  return ReasonStatus(absl::StatusCode::kDeadlineExceeded, code,
                      absl::StrCat(what, " took longer than ", limit.count(), " ms"));
}

}  // namespace macrame::runtime::engine
