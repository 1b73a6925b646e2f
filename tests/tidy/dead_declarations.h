#pragma once

// Finds what headers and messages declare and the product never uses.

#include <string>
#include <vector>

#include "tests/tidy/source_tree.h"

namespace macrame::tests {

struct DeadDeclaration {
  std::string name;
  std::string path;
  size_t line = 0;  // from 0
};

// Names that headers of `product` declare, and that no source of it has anywhere but where they
// are declared and defined. Names are compared without what qualifies them, so some that are dead
// are missed, and none that is used is found. An accessor of one line may be for `tests` to look
// at. What the language asks for by name, and overrides of others' functions, count as used.
std::vector<DeadDeclaration> DeadDeclarations(const std::vector<SourceFile>& product,
                                              const std::vector<SourceFile>& tests);

// Fields of messages in `protos` of which no source of `product` has an accessor.
std::vector<DeadDeclaration> DeadFields(const std::vector<SourceFile>& protos,
                                        const std::vector<SourceFile>& product);

}  // namespace macrame::tests
