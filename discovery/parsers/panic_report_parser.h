#pragma once

// The report that macOS writes after a kernel panic (panic-full-DATE.panic). Pure; any bytes are
// safe, and a report may be cut off anywhere: what it told before still counts.

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace macrame::discovery {

// Of the first line of what the kernel said; the rest is left out.
inline constexpr size_t kPanicTextBytesMax = 400;

struct PanicReportText {
  uint64_t unix_ms = 0;  // of the panic; of its report where the kernel did not say
  uint64_t written_unix_ms = 0;
  std::string incident_id;  // of the boot that ended so: the same in all reports of one panic
  std::string text;         // plain; empty: the report does not say
};

// The first line of a report is a JSON object with bug_type "210" and a timestamp, the rest another
// one whose panicString (macOSPanicString on a Mac with a T2) is what the kernel said. nullopt:
// this is no such report.
std::optional<PanicReportText> ParsePanicReport(std::string_view report);

}  // namespace macrame::discovery
