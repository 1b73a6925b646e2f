#include "tests/tidy/source_tree.h"

#include <array>
#include <cstdio>
#include <fstream>

#include "proto/check.h"

namespace macrame::tests {
namespace {

bool HasEnding(const std::string& path, const std::string& ending) {
  return path.size() >= ending.size() &&
         path.compare(path.size() - ending.size(), ending.size(), ending) == 0;
}

bool IsText(const std::string& path) {
  for (const char* ending : {".safetensors", ".png", ".lock", ".bin", "tokenizer.json", ".gz"}) {
    if (HasEnding(path, ending)) return false;
  }
  return true;
}

std::vector<std::string> ListFiles() {
  FILE* pipe = popen("git ls-files --cached --others --exclude-standard", "r");
  MACRAME_CHECK(pipe != nullptr) << "git could not be started";
  std::vector<std::string> paths;
  std::array<char, 4096> line;
  while (fgets(line.data(), line.size(), pipe) != nullptr) {
    std::string path(line.data());
    while (!path.empty() && path.back() == '\n') path.pop_back();
    if (!path.empty()) paths.push_back(path);
  }
  const int status = pclose(pipe);
  MACRAME_CHECK(status == 0 && paths.size() > 20) << "git ls-files found " << paths.size();
  return paths;
}

}  // namespace

std::vector<SourceFile> ReadSourceTree() {
  std::vector<SourceFile> files;
  for (const std::string& path : ListFiles()) {
    if (!IsText(path)) continue;
    std::ifstream in(path);
    if (!in) continue;  // deleted in the work tree
    SourceFile file{path, {}};
    for (std::string line; std::getline(in, line);) file.lines.push_back(line);
    files.push_back(std::move(file));
  }
  return files;
}

bool IsCpp(const SourceFile& file) {
  return HasEnding(file.path, ".h") || HasEnding(file.path, ".cc");
}

bool IsUnder(const SourceFile& file, const std::string& folder) {
  return file.path.rfind(folder + "/", 0) == 0;
}

std::string TopFolder(const std::string& path) { return path.substr(0, path.find('/')); }

}  // namespace macrame::tests
