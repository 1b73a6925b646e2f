#pragma once

// A shell script's lines without what is no code, for shell_scripts.h.

#include <cstddef>
#include <string>
#include <vector>

namespace macrame::tests {

struct ShellLine {
  std::string text;      // without comments and quoted here-documents
  std::string expanded;  // and without 'single-quoted' text: what the shell expands is in here
  std::string code;  // and with '_' for each character of "double-quoted" text that is no $(…)
  // Faults that are seen on the way only:
  bool case_pattern_in_substitution = false;   // $(case x in a) …): its ')' ends the $(
  bool signs_in_substituted_document = false;  // quotes or parentheses in a here-document in $(…)
};

std::vector<ShellLine> ReadShellLines(const std::vector<std::string>& lines);

}  // namespace macrame::tests
