#pragma once

// The world around one run of clusterctl: streams, terminal, variables. Tests hand in their own.

#include <functional>
#include <iosfwd>
#include <string>

namespace macrame::cli {

struct TerminalSize {
  int columns = 80;
  int rows = 24;
};

struct Environment {
  std::istream* in = nullptr;
  std::ostream* out = nullptr;
  std::ostream* err = nullptr;
  bool in_is_terminal = false;
  bool out_is_terminal = false;
  bool err_is_terminal = false;
  // Whether `in` and `out` are this process's own terminal, one that can move its cursor.
  bool can_edit_lines = false;
  // Asked again for each repaint, so that a resized window is noticed.
  std::function<TerminalSize()> terminal_size;
  // Empty when the variable is not set.
  std::function<std::string(const char* name)> variable;
};

// Of this process.
Environment ProcessEnvironment();

// Columns that tables may take: the terminal's, or a fixed 120 when the output goes elsewhere.
int OutputColumns(const Environment& environment);

enum class ColorMode { kAuto, kAlways, kNever };

// `--color` decides; else NO_COLOR (off), CLICOLOR_FORCE or FORCE_COLOR (on), TERM=dumb (off), and
// whether stdout is a terminal.
bool UseColor(ColorMode mode, const Environment& environment);

}  // namespace macrame::cli
