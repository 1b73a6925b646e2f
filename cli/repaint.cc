#include "cli/repaint.h"

#include <algorithm>
#include <string_view>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "cli/format/text.h"
#include "proto/utf8.h"

namespace macrame::cli {
namespace {

constexpr char kHideCursor[] = "\x1b[?25l";
constexpr char kShowCursor[] = "\x1b[?25h";
constexpr char kClearToEndOfLine[] = "\x1b[K";
constexpr char kClearBelow[] = "\x1b[J";
constexpr char kClearWindow[] = "\x1b[2J\x1b[H";

constexpr char kTooLow[] = "(the window is too low for the rest)";

// What a line takes of the window.
struct Drawn {
  int rows = 1;
  bool fills_row = false;  // the last one, to its last column
};

// The terminal wraps a line that is wider than it, and a wide character that does not fit into a
// row's rest: going back up has to count what was really drawn.
Drawn RowsOf(std::string_view line, int columns) {
  Drawn drawn;
  int used = 0;
  while (!line.empty()) {
    if (line[0] == '\x1b') {
      // A colour: ESC [ … letter takes no room.
      size_t end = 1;
      while (end < line.size() && !absl::ascii_isalpha(static_cast<unsigned char>(line[end]))) {
        ++end;
      }
      line.remove_prefix(std::min(end + 1, line.size()));
      continue;
    }
    const Utf8Character point = FirstCharacter(line);
    const int width = point.size == 0 ? 1 : ColumnsOf(point.value);
    if (columns > 0 && used > 0 && used + width > columns) {
      ++drawn.rows;
      used = 0;
    }
    used += width;
    line.remove_prefix(std::max<size_t>(point.size, 1));
  }
  drawn.fills_row = columns > 0 && used >= columns;
  return drawn;
}

// A terminal stays in the last column of a row that is full: to clear from there takes away the
// last character. Of a line of several rows, what was there goes first: it may not fill each.
void AppendLine(std::string_view line, const Drawn& drawn, std::string* frame) {
  if (drawn.rows > 1) *frame += kClearBelow;
  *frame += line;
  if (drawn.rows == 1 && !drawn.fills_row) *frame += kClearToEndOfLine;
  *frame += '\n';
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
    const Drawn drawn = RowsOf(line, size.columns);
    const int left = rows_max - rows_drawn_;
    const bool cut = drawn.rows > left || (drawn.rows == left && begin < text.size());
    if (cut) {
      const std::string told = size.columns > 0 ? CutToWidth(kTooLow, size.columns) : kTooLow;
      AppendLine(told, RowsOf(told, size.columns), &frame);
    } else {
      AppendLine(line, drawn, &frame);
    }
    rows_drawn_ += cut ? 1 : drawn.rows;
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
