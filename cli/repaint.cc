#include "cli/repaint.h"

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "cli/format/text.h"

namespace macrame::cli {
namespace {

constexpr char kHideCursor[] = "\x1b[?25l";
constexpr char kShowCursor[] = "\x1b[?25h";
constexpr char kClearToEndOfLine[] = "\x1b[K";
constexpr char kClearBelow[] = "\x1b[J";
constexpr char kClearWindow[] = "\x1b[2J\x1b[H";

// The terminal wraps a line that is wider than it: going back up has to count what was really
// drawn.
int RowsOf(const std::string& line, int columns) {
  std::string visible;
  for (size_t i = 0; i < line.size(); ++i) {
    if (line[i] != '\x1b') {
      visible += line[i];
      continue;
    }
    // A colour: ESC [ … letter takes no room.
    while (i < line.size() && !absl::ascii_isalpha(line[i])) ++i;
  }
  const int width = DisplayWidth(visible);
  return columns < 1 || width <= columns ? 1 : (width + columns - 1) / columns;
}

}  // namespace

Repainter::Repainter(const Environment& environment, bool to_err)
    : out_(to_err ? *environment.err : *environment.out),
      environment_(environment),
      terminal_(to_err ? environment.err_is_terminal : environment.out_is_terminal) {}

Repainter::~Repainter() {
  if (terminal_ && drawn_) out_ << kShowCursor << std::flush;
}

void Repainter::Show(const std::string& text) {
  if (!terminal_) {
    out_ << (drawn_ ? "\n" : "") << text << std::flush;
    drawn_ = true;
    return;
  }
  const TerminalSize size = environment_.terminal_size();
  std::string frame = drawn_ ? "" : kHideCursor;
  const bool resized = drawn_ && (size.columns != size_.columns || size.rows != size_.rows);
  if (resized) {
    frame += kClearWindow;
  } else if (rows_drawn_ > 0) {
    absl::StrAppend(&frame, "\x1b[", rows_drawn_, "F");
  }
  size_ = size;
  const int rows_max = size.rows > 2 ? size.rows - 1 : 1;
  rows_drawn_ = 0;
  for (size_t begin = 0; begin < text.size() && rows_drawn_ < rows_max;) {
    const size_t end = text.find('\n', begin);
    const std::string line = text.substr(begin, end - begin);
    begin = end == std::string::npos ? text.size() : end + 1;
    const int rows = RowsOf(line, size.columns);
    const int left = rows_max - rows_drawn_;
    const bool cut = rows > left || (rows == left && begin < text.size());
    absl::StrAppend(&frame, cut ? "(the window is too low for the rest)" : line, kClearToEndOfLine,
                    "\n");
    rows_drawn_ += cut ? 1 : rows;
    if (cut) break;
  }
  out_ << frame << kClearBelow << std::flush;
  drawn_ = true;
}

void Repainter::Clear() {
  if (!terminal_ || rows_drawn_ == 0) return;
  out_ << "\x1b[" << rows_drawn_ << "F" << kClearBelow << std::flush;
  rows_drawn_ = 0;
}

}  // namespace macrame::cli
