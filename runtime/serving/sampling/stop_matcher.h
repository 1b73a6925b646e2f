#pragma once

// Finds stop strings in text that comes in pieces. Text that may be the beginning of a stop string
// is held back until it is clear; a stop string itself is never given out. Pure.

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"

namespace macrame::runtime::engine {

inline constexpr size_t kStopStringsMax = 16;
inline constexpr size_t kStopStringBytesMax = 1024;

// BAD_REQUEST above the bounds, or for an empty one.
absl::Status CheckStopStrings(const std::vector<std::string>& stops);

class StopMatcher {
 public:
  explicit StopMatcher(std::vector<std::string> stops) : stops_(std::move(stops)) {}

  // What may be given out now. After a stop string was found: nothing more.
  std::string Push(std::string_view text);
  // The text has ended: what was held back.
  std::string Finish();
  bool stopped() const { return stopped_; }
  // Which one it was: the one that is whole first; where several end at one place, the longest.
  // Empty: none.
  const std::string& found() const { return found_; }

 private:
  const std::vector<std::string> stops_;
  std::string held_;
  std::string found_;
  bool stopped_ = false;
};

}  // namespace macrame::runtime::engine
