#pragma once

// A block of lines that is drawn over itself, so that the window doesn't scroll.

#include <ostream>
#include <string>

#include "cli/environment.h"

namespace macrame::cli {

// On a terminal: hides the cursor while it lives and repaints in place, cutting what is higher than
// the window; after a resize it starts on a cleared one. Elsewhere: each text after the other, with
// an empty line between.
class Repainter {
 public:
  // Draws to stdout, or to stderr with `to_err`.
  explicit Repainter(const Environment& environment, bool to_err = false);
  // Leaves the last text where it is and shows the cursor again.
  ~Repainter();
  Repainter(const Repainter&) = delete;
  Repainter& operator=(const Repainter&) = delete;

  void Show(const std::string& text);
  // Removes what was drawn (terminals only).
  void Clear();

 private:
  std::ostream& out_;
  const Environment& environment_;
  const bool terminal_;
  TerminalSize size_;
  int rows_drawn_ = 0;
  bool drawn_ = false;
};

}  // namespace macrame::cli
