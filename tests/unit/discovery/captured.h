#pragma once

// Reads a file of tests/captures; tests run in the repository's root.

#include <gtest/gtest.h>

#include <fstream>
#include <sstream>
#include <string>

namespace macrame::tests {

inline std::string Captured(const std::string& path) {
  std::ifstream in("tests/captures/" + path, std::ios::binary);
  EXPECT_TRUE(in.good()) << path;
  std::ostringstream text;
  text << in.rdbuf();
  return text.str();
}

}  // namespace macrame::tests
