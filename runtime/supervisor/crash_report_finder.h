#pragma once

// Looks for the report of one process that crashed among those of the machine. macOS writes it some
// time after the death, so one looks again until it is there.

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "runtime/supervisor/crash_report.h"

namespace macrame::runtime {

struct FoundCrashReport {
  std::string path;
  CrashReport report;
};

// One thread.
class CrashReportFinder {
 public:
  // `program`: the file's name begins so, with '-' or '_' after it. `started_unix_ms`: older files
  // are of earlier processes, which may have had the same pid.
  CrashReportFinder(std::vector<std::string> folders, std::string program, uint64_t pid,
                    uint64_t started_unix_ms);

  // Reads a few files at most, none larger than kCrashReportBytesMax, and none a second time that
  // has not changed. Links, pipes and what can't be read are passed over.
  std::optional<FoundCrashReport> Look();

 private:
  struct Candidate {
    std::string path;
    int64_t modified_s = 0;
    uint64_t bytes = 0;
  };
  void List(const std::string& folder, std::vector<Candidate>& candidates) const;
  bool IsNamedRight(const std::string& name) const;

  const std::vector<std::string> folders_;
  const std::string program_;
  const uint64_t pid_;
  const uint64_t started_unix_ms_;
  std::map<std::string, std::pair<int64_t, uint64_t>> passed_over_;  // time and size, by path
};

}  // namespace macrame::runtime
