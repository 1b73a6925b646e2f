#pragma once

// The last lines of what a process wrote, however much it wrote; single lines of what the system
// wrote about it.

#include <cstddef>
#include <deque>
#include <string>
#include <string_view>

#include "absl/strings/string_view.h"

namespace macrame::runtime {

inline constexpr size_t kLineBytesMax = 512;  // the rest of a longer line is dropped

// Not thread-safe.
class LastLines {
 public:
  explicit LastLines(size_t lines_max) : lines_max_(lines_max) {}

  // Any pieces, as they come from a pipe. Control characters but tab become '?', and so does each
  // byte that is not part of a UTF-8 character: messages carry nothing else.
  void Add(std::string_view bytes);
  // The last lines, an unfinished one included, joined by newlines.
  std::string Text() const;

 private:
  const size_t lines_max_;
  std::deque<std::string> lines_;
  std::string unfinished_;
};

inline constexpr size_t kReportLineBytesMax = 200;

// A line of a report, fit for messages: control characters become spaces, what is not UTF-8 '?',
// and what is beyond kReportLineBytesMax is cut.
std::string ReportLine(absl::string_view text);

}  // namespace macrame::runtime
