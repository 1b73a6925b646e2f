// Runs a fuzz target over a corpus as an ordinary test:
//
//   fuzz_yaml FOLDER…
//   fuzz_network --captures FOLDER…    also what MACRAME_EXTRA_CAPTURES names
//
// Each file whole, cut at every byte (a long one at fewer), and damaged by a fixed seed; with
// sanitizers, any fault ends the process. Equal files (by content) are run once. The file at work
// is named when it ends badly.

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <random>
#include <set>
#include <sstream>
#include <string>
#include <vector>

#include "tests/unit/discovery/mutation.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size);

namespace {

constexpr size_t kFileBytesMax = 64 << 10;
// What all cuts of one file may have together: a longer file is cut at every second byte, every
// third, … Else the work would grow with the square of a file's length.
constexpr size_t kBytesOfCutsMax = 1 << 20;
constexpr int kMutationsPerFile = 60;

void RunOne(const std::string& input) {
  // Of its own size, so that a read past the end is seen.
  const std::vector<uint8_t> bytes(input.begin(), input.end());
  LLVMFuzzerTestOneInput(bytes.data(), bytes.size());
}

std::vector<std::string> FilesBelow(const std::string& folder) {
  std::set<std::string> files;  // sorted, so that the seed means the same everywhere
  for (const auto& entry : std::filesystem::recursive_directory_iterator(folder)) {
    const std::string kind = entry.path().extension().string();
    // What commands print, models, requests and YAML; descriptions and tables beside them are not.
    static const std::set<std::string> kKinds = {".txt",  ".json", ".err",        ".gguf",
                                                 ".http", ".yaml", ".safetensors"};
    if (!kKinds.contains(kind)) continue;
    if (entry.is_regular_file() && entry.file_size() <= kFileBytesMax) {
      files.insert(entry.path().string());
    }
  }
  return {files.begin(), files.end()};
}

std::string current;
void NameTheFile() {
  if (!current.empty()) std::fprintf(stderr, "while at work on %s\n", current.c_str());
}

}  // namespace

int main(int argc, char** argv) {
  std::vector<std::string> folders(argv + 1, argv + argc);
  if (std::erase(folders, "--captures") > 0) {
    const char* more = std::getenv("MACRAME_EXTRA_CAPTURES");
    if (more != nullptr && *more != '\0') folders.emplace_back(more);
  }
  std::atexit(NameTheFile);
  std::set<std::string> seen;
  std::mt19937_64 random(20261121);
  size_t inputs = 0;
  for (const std::string& folder : folders) {
    for (const std::string& file : FilesBelow(folder)) {
      std::ifstream in(file, std::ios::binary);
      std::ostringstream text;
      text << in.rdbuf();
      if (!seen.insert(text.str()).second) continue;
      current = file;
      const std::string whole = text.str();
      const size_t step = 1 + whole.size() * whole.size() / 2 / kBytesOfCutsMax;
      for (size_t cut = 0; cut <= whole.size(); cut += step, ++inputs) RunOne(whole.substr(0, cut));
      RunOne(whole);
      for (int i = 0; i < kMutationsPerFile; ++i, ++inputs) {
        RunOne(macrame::tests::Mutate(whole, random));
      }
    }
  }
  current.clear();
  std::printf("%zu files, %zu inputs\n", seen.size(), inputs);
  return seen.empty() ? 1 : 0;
}
