#include "cli/repaint.h"

#include "absl/strings/str_cat.h"

namespace macrame::cli {
namespace {

constexpr char kHideCursor[] = "\x1b[?25l";
constexpr char kShowCursor[] = "\x1b[?25h";
constexpr char kClearToEndOfLine[] = "\x1b[K";
constexpr char kClearBelow[] = "\x1b[J";
constexpr char kClearWindow[] = "\x1b[2J\x1b[H";

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
  } else if (lines_drawn_ > 0) {
    absl::StrAppend(&frame, "\x1b[", lines_drawn_, "F");
  }
  size_ = size;
  const int lines_max = size.rows > 2 ? size.rows - 1 : 1;
  lines_drawn_ = 0;
  for (size_t begin = 0; begin < text.size() && lines_drawn_ < lines_max; ++lines_drawn_) {
    const size_t end = text.find('\n', begin);
    const std::string line = text.substr(begin, end - begin);
    begin = end == std::string::npos ? text.size() : end + 1;
    const bool cut = lines_drawn_ + 1 == lines_max && begin < text.size();
    absl::StrAppend(&frame, cut ? "(the window is too low for the rest)" : line, kClearToEndOfLine,
                    "\n");
  }
  out_ << frame << kClearBelow << std::flush;
  drawn_ = true;
}

void Repainter::Clear() {
  if (!terminal_ || lines_drawn_ == 0) return;
  out_ << "\x1b[" << lines_drawn_ << "F" << kClearBelow << std::flush;
  lines_drawn_ = 0;
}

}  // namespace macrame::cli
