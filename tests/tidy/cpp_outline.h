#pragma once

// What a C++ source defines. Every function is found by its braces: wherever the signature is
// wrapped, whatever stands between it and the body. For code that clang-format has formatted.

#include <cstddef>
#include <string>
#include <vector>

#include "tests/tidy/cpp_tokens.h"
#include "tests/tidy/source_tree.h"

namespace macrame::tests {

struct CppFunction {
  std::string name;      // as defined: "Node::Start", "operator()", "lambda"
  size_t line = 0;       // of its signature's first word, from 0
  size_t last_line = 0;  // of the brace that closes it, from 0
  // Cyclomatic complexity: 1, and 1 for each if, loop, case, catch, ?, && and ||.
  size_t complexity = 1;
};

struct CppDeclaration {
  std::string name;           // without what qualifies it
  std::vector<size_t> words;  // the tokens of it and of what qualifies it
  bool is_override = false;
  bool is_accessor = false;  // a function whose body follows on the same line
};

struct CppOutline {
  // Lambdas and classes inside a function are part of it. A lambda elsewhere, in a table's row for
  // example, is a function.
  std::vector<CppFunction> functions;
  // Functions, variables, fields, types and aliases outside of functions, whether or not they are
  // defined too.
  std::vector<CppDeclaration> declared;
  std::vector<CppToken> tokens;
};

CppOutline OutlineOf(const SourceFile& file);

}  // namespace macrame::tests
