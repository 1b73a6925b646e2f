#include "runtime/serving/sampling/stop_matcher.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "proto/reasons.h"

namespace macrame::runtime::engine {

absl::Status CheckStopStrings(const std::vector<std::string>& stops) {
  if (stops.size() > kStopStringsMax) {
    return ReasonStatus(absl::StatusCode::kInvalidArgument, reasons::kBadRequest,
                        absl::StrCat(stops.size(), " stop strings, above ", kStopStringsMax));
  }
  for (const std::string& stop : stops) {
    if (stop.empty() || stop.size() > kStopStringBytesMax) {
      return ReasonStatus(absl::StatusCode::kInvalidArgument, reasons::kBadRequest,
                          absl::StrCat("a stop string of ", stop.size(), " bytes, not in [1, ",
                                       kStopStringBytesMax, "]"));
    }
  }
  return absl::OkStatus();
}

std::string StopMatcher::Push(std::string_view text) {
  if (stopped_) return "";
  held_.append(text);
  // The one that is whole first, as if the text came byte by byte: how it is cut into tokens must
  // not matter.
  size_t first_end = std::string::npos;
  for (const std::string& stop : stops_) {
    const size_t at = held_.find(stop);
    if (at == std::string::npos) continue;
    const size_t end = at + stop.size();
    if (end > first_end || (end == first_end && stop.size() <= found_.size())) continue;
    first_end = end;
    found_ = stop;
  }
  if (first_end != std::string::npos) {
    stopped_ = true;
    std::string out = held_.substr(0, first_end - found_.size());
    held_.clear();
    return out;
  }
  size_t keep = 0;
  for (const std::string& stop : stops_) {
    for (size_t length = std::min(stop.size() - 1, held_.size()); length > keep; --length) {
      if (held_.compare(held_.size() - length, length, stop, 0, length) == 0) keep = length;
    }
  }
  std::string out = held_.substr(0, held_.size() - keep);
  held_.erase(0, held_.size() - keep);
  return out;
}

std::string StopMatcher::Finish() {
  std::string out;
  out.swap(held_);
  return out;
}

}  // namespace macrame::runtime::engine
