#pragma once

// Where log lines go: the log file and (or, where that can't be written) standard error, kept to
// kLogBytesMax in kLogFilesMax files.

#include <string>

#include "absl/status/status.h"

namespace macrame::agentd {

inline constexpr size_t kLogBytesMax = 5 * 1024 * 1024;
inline constexpr size_t kLogFilesMax = 3;

// `level` as in the config. Called once, before anything is logged.
absl::Status StartLogging(const std::string& level, const std::string& file, bool to_stderr);

}  // namespace macrame::agentd
