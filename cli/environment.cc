#include "cli/environment.h"

#include <sys/ioctl.h>
#include <unistd.h>

#include <cstdlib>
#include <iostream>

namespace macrame::cli {
namespace {

constexpr int kColumnsWithoutTerminal = 120;
constexpr int kColumnsMin = 40;

TerminalSize AskTerminalSize() {
  winsize size{};
  for (const int descriptor : {STDOUT_FILENO, STDERR_FILENO}) {
    if (ioctl(descriptor, TIOCGWINSZ, &size) == 0 && size.ws_col > 0) {
      return {size.ws_col, size.ws_row};
    }
  }
  return {};
}

}  // namespace

Environment ProcessEnvironment() {
  Environment environment;
  environment.in = &std::cin;
  environment.out = &std::cout;
  environment.err = &std::cerr;
  environment.in_is_terminal = isatty(STDIN_FILENO) == 1;
  environment.out_is_terminal = isatty(STDOUT_FILENO) == 1;
  environment.err_is_terminal = isatty(STDERR_FILENO) == 1;
  environment.terminal_size = AskTerminalSize;
  environment.variable = [](const char* name) {
    const char* value = getenv(name);
    return std::string(value == nullptr ? "" : value);
  };
  const std::string terminal = environment.variable("TERM");
  environment.can_edit_lines = environment.in_is_terminal && environment.out_is_terminal &&
                               !terminal.empty() && terminal != "dumb";
  return environment;
}

int OutputColumns(const Environment& environment) {
  if (!environment.out_is_terminal) return kColumnsWithoutTerminal;
  const int columns = environment.terminal_size().columns;
  return columns < kColumnsMin ? kColumnsMin : columns;
}

bool UseColor(ColorMode mode, const Environment& environment) {
  if (mode != ColorMode::kAuto) return mode == ColorMode::kAlways;
  if (!environment.variable("NO_COLOR").empty()) return false;
  for (const char* name : {"CLICOLOR_FORCE", "FORCE_COLOR"}) {
    const std::string value = environment.variable(name);
    if (!value.empty() && value != "0") return true;
  }
  return environment.out_is_terminal && environment.variable("TERM") != "dumb";
}

}  // namespace macrame::cli
