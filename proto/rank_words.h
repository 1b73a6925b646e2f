#pragma once

// What a rank says when it is another that failed: known by its words, since its code is that of
// any rank that ended.

#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "proto/reasons.h"

namespace macrame {

inline constexpr char kLinkFailedWords[] = "the link to a neighbouring rank failed";

// `why`: what the collective says of it, without a remedy.
inline absl::Status LinkFailed(std::string_view why) {
  v1::Reason reason =
      MakeReason(reasons::kRankExited,
                 absl::StrCat(kLinkFailedWords, ": ", absl::string_view(why.data(), why.size())));
  reason.set_remedy(
      "the ranks are launched again by themselves; 'clusterctl events' tells which failed first, "
      "and why");
  return ReasonStatus(absl::StatusCode::kUnavailable, reason);
}

inline bool TellsOfLink(const v1::Reason& reason) {
  return absl::StrContains(reason.message(), kLinkFailedWords);
}

}  // namespace macrame
