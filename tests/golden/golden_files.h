#pragma once

// Texts held against files. After a change that is meant: MACRAME_REWRITE=1
// build/release/tests/golden_test, then read the difference.

#include <gtest/gtest.h>

#include <cstdlib>
#include <fstream>
#include <sstream>
#include <string>

#include "cli/format/text.h"

namespace macrame::cli {

// ctest runs tests at the repository's root.
inline constexpr char kGoldenFolder[] = "tests/golden/";

inline void ExpectGolden(const std::string& name, const std::string& text) {
  const std::string path = kGoldenFolder + name;
  if (std::getenv("MACRAME_REWRITE") != nullptr) {
    std::ofstream(path) << text;
    return;
  }
  std::ifstream in(path);
  ASSERT_TRUE(in.good()) << path << " is missing; MACRAME_REWRITE=1 makes it";
  std::stringstream golden;
  golden << in.rdbuf();
  EXPECT_EQ(text, golden.str()) << path;
}

inline void ExpectWithin(int width, const std::string& text) {
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line);) {
    // Sentences wrap as the terminal does; tables do not.
    if (line.find("  ") == std::string::npos) continue;
    if (line.rfind("  ", 0) == 0) continue;
    EXPECT_LE(DisplayWidth(line), width) << line;
  }
}

}  // namespace macrame::cli
