#include "runtime/supervisor/last_lines.h"

#include "absl/strings/ascii.h"
#include "proto/utf8.h"

namespace macrame::runtime {
void LastLines::Add(std::string_view bytes) {
  for (const char c : bytes) {
    if (c == '\n') {
      if (!unfinished_.empty()) lines_.push_back(AsUtf8(unfinished_, "?"));
      unfinished_.clear();
      if (lines_.size() > lines_max_) lines_.pop_front();
    } else if (unfinished_.size() < kLineBytesMax) {
      const unsigned char byte = static_cast<unsigned char>(c);
      unfinished_ += (byte < 0x20 && c != '\t') || byte == 0x7f ? '?' : c;
    }
  }
}

std::string LastLines::Text() const {
  std::string text;
  for (const std::string& line : lines_) {
    if (!text.empty()) text += '\n';
    text += line;
  }
  if (unfinished_.empty()) return text;
  const std::string last = AsUtf8(unfinished_, "?");
  return text.empty() ? last : text + "\n" + last;
}

std::string ReportLine(absl::string_view text) {
  std::string line(text.substr(0, kReportLineBytesMax * 2));
  for (char& c : line) {
    if (absl::ascii_iscntrl(static_cast<unsigned char>(c))) c = ' ';
  }
  line = AsUtf8(line, "?");
  return std::string(CutToBytes(line, kReportLineBytesMax));
}

}  // namespace macrame::runtime
