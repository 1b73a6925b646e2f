#pragma once

// A Mac's reports of kernel panics: which of them are of the last 24 hours. macOS writes one some
// minutes after the restart, and moves it to the folder Retired later on.

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "discovery/parsers/panic_report_parser.h"
#include "macrame/v1/link.pb.h"
#include "proto/monotonic_time.h"

namespace macrame::discovery {

inline constexpr char kPanicReportsFolder[] = "/Library/Logs/DiagnosticReports";
inline constexpr Duration kPanicsKept = std::chrono::hours(24);
inline constexpr size_t kPanicsMax = 8;
// The newest of one folder, by the dates in their names.
inline constexpr size_t kPanicFilesMax = 64;
// Of each at most so much is read. Whole ones take about 3 MB, nearly all of it behind what counts.
inline constexpr size_t kPanicFileBytesMax = size_t{1} << 20;

class PanicReports {
 public:
  explicit PanicReports(std::string folder) : folder_(std::move(folder)) {}

  // Lists the folder and reads what is new in it. Sets `panics` of `facts`, oldest first, or says
  // in `unknown` why they are not known. Two reports of one panic are one. Worker thread.
  void Read(uint64_t now_unix_ms, v1::LinkFacts& facts);

 private:
  struct Known {
    uint64_t size = 0;
    int64_t changed = 0;  // the file's time, in its own unit
    bool is_readable = true;
    std::optional<PanicReportText> report;  // nullopt: it is none
  };
  // Adds to `found`. Gives an errno; 0 also where there is no such folder.
  int List(const std::string& folder, uint64_t now_unix_ms, std::map<std::string, Known>& found);

  const std::string folder_;
  std::map<std::string, Known> known_;  // by path
};

}  // namespace macrame::discovery
