#pragma once

// Model folders for tests: the committed tokenizers, and folders written on the spot.

#include <filesystem>
#include <fstream>
#include <string>

#include <gtest/gtest.h>

#include "tests/unit/fresh_folder.h"

namespace macrame::runtime::text {

// "byte_level", "byte_fallback" or "unigram". ctest runs tests in the root of the tree.
inline std::string Fixture(const std::string& name) {
  return "tests/unit/runtime/text/testdata/" + name;
}

inline std::string WriteFile(const std::string& path, const std::string& content) {
  std::filesystem::create_directories(std::filesystem::path(path).parent_path());
  std::ofstream(path, std::ios::binary) << content;
  return path;
}

// A new folder of this name.
inline std::string NewFolder(const std::string& name) {
  const std::string folder = FreshFolder() + "/" + name;
  std::filesystem::create_directories(folder);
  return folder;
}

// A folder that holds only this chat template.
inline std::string TemplateFolder(const std::string& name, const std::string& source) {
  const std::string folder = NewFolder(name);
  WriteFile(folder + "/chat_template.jinja", source);
  return folder;
}

}  // namespace macrame::runtime::text
