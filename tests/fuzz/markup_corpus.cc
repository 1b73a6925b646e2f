// Writes the transcripts of each family as files for fuzz_markup:  markup_corpus FOLDER

#include <filesystem>
#include <fstream>

#include "tests/unit/runtime/serving/markup/transcripts.h"

int main(int argc, char** argv) {
  if (argc != 2) return 2;
  const std::filesystem::path folder = argv[1];
  std::filesystem::create_directories(folder);
  const auto& cases = macrame::runtime::markup::TranscriptCases();
  for (size_t i = 0; i < cases.size(); ++i) {
    std::ofstream file(folder / (std::to_string(i) + ".txt"), std::ios::binary);
    file << static_cast<char>(i) << static_cast<char>('0' + i % 7) << cases[i].text;
    if (!file.flush()) return 1;
  }
  return 0;
}
