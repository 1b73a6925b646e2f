#pragma once

// The tokens of a C++ source, for tests that read declarations. Comments and preprocessor lines
// are left out, and a literal's text is only its quotes, so that no brace or name inside them
// counts.

#include <cstddef>
#include <string>
#include <vector>

#include "tests/tidy/source_tree.h"

namespace macrame::tests {

struct CppToken {
  std::string text;     // a word, a number, one operator, or quotes for a literal
  size_t line = 0;      // from 0
  bool spaced = false;  // white space, a comment or a new line stands before it
};

bool IsWord(const CppToken& token);

// `>` is always a token of its own, since `>>` may close two templates.
std::vector<CppToken> CppTokens(const SourceFile& file);

}  // namespace macrame::tests
