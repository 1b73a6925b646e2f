#pragma once

// The one line that a failing rank leaves on stderr for its agent:
//   rankd: rank 1 of model knot-5m-4bit: MODEL_FILE_BROKEN: … . <what to do next>

#include <atomic>
#include <chrono>
#include <string>

#include "absl/status/status.h"
#include "macrame/v1/rank.pb.h"

namespace macrame::runtime::engine {

class TerminationMessage {
 public:
  explicit TerminationMessage(const v1::LaunchSpec& spec);

  // Any thread. Only the first call speaks: what comes later are consequences. True when it was
  // first.
  bool Say(const absl::Status& why);

 private:
  std::string prefix_;
  std::atomic<bool> said_ = false;
};

// What a rank is at while its gang forms.
inline constexpr char kConnectingToGang[] = "connecting to the gang";

// What did not come to an end within its limit: INIT_STALLED for kConnectingToGang, which another
// transport may not do; else RANK_STALLED.
absl::Status StalledStatus(const std::string& what, std::chrono::milliseconds limit);

}  // namespace macrame::runtime::engine
