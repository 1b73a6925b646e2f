#pragma once

// What bash 3.2, the bash of every Mac, can't run, and options that macOS's tools don't have, found
// in the text of a script. Not a parser: it follows quotes, comments, here-documents and $(…), and
// looks for words and signs. Its limits: it does not follow which branch is taken (an array that
// may be empty is a fault wherever it is expanded plainly), does not read what eval, trap or a
// sourced file run, nor commands within `…` or within a here-document's $(…); and where bash 3.2
// differs without any sign of it in the text, it says nothing: there `set -e` passes over a failing
// (…),
// [[ … ]] or ((…)).

#include <cstddef>
#include <string>
#include <vector>

#include "tests/tidy/source_tree.h"

namespace macrame::tests {

struct ShellFault {
  size_t index = 0;     // of the line, from 0
  std::string what;     // the construct
  std::string instead;  // what to write
};

// Does its first line name sh or bash?
bool IsShellScript(const SourceFile& file);

// What bash 3.2 refuses, or takes for something else.
std::vector<ShellFault> FaultsUnderBash32(const std::vector<std::string>& lines);

// Programs and options that a Mac lacks. A program that the script looks for with `command -v` is
// left out.
std::vector<ShellFault> FaultsOnMacOs(const std::vector<std::string>& lines);

}  // namespace macrame::tests
