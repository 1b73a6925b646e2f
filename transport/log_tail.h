#pragma once

// The end of a log file, and what is written to it from then on: for an agent that shows its log to
// others, and for clusterctl where no agent runs.
//
// Not thread-safe. Blocking, but short: at most kLogTailBytesMax are read at once.

#include <cstdint>
#include <string>

#include "absl/status/statusor.h"

namespace macrame::transport {

inline constexpr uint64_t kLogTailBytesMax = 256 * 1024;

// "~/.macrame/state", where agentd keeps what it must not lose when nothing else is configured.
std::string DefaultStateFolder();
// "agentd.log" in `state_folder`: where agentd writes its log when nothing else is configured.
std::string DefaultLogFile(const std::string& state_folder);

class LogTail {
 public:
  explicit LogTail(std::string path) : path_(std::move(path)) {}

  // The last `lines` whole lines, as many of them as the last kLogTailBytesMax hold. NOT_FOUND when
  // there is no such file.
  absl::StatusOr<std::string> Last(uint32_t lines);
  // Whole lines written since the last call, of at most kLogTailBytesMax; of a line that is longer
  // than that the beginning is left out. A file that became shorter was begun anew (rotated): it is
  // read from its start. A file that is gone for the moment has nothing new.
  std::string New();

 private:
  std::string ReadFrom(uint64_t offset, uint64_t size);

  const std::string path_;
  uint64_t offset_ = 0;  // behind the last line that was given out
};

}  // namespace macrame::transport
