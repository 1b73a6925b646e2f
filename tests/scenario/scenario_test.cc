// A file of data/ is a sequence of blocks: commands, a line "----", what they answer, an empty
// line. Lines that begin with # are comments. The file's name up to the first _ says which scenario
// interprets it.

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <sstream>

#include "tests/scenario/scenario.h"

namespace macrame::scenario {
namespace {

constexpr char kLine[] = "----";

std::vector<std::string> Files() {
  std::vector<std::string> files;
  for (const auto& file : std::filesystem::directory_iterator(MACRAME_SCENARIO_FOLDER)) {
    if (file.path().extension() == ".txt") files.push_back(file.path().stem().string());
  }
  std::sort(files.begin(), files.end());
  return files;
}

std::vector<std::string> Words(const std::string& line) {
  std::istringstream in(line);
  return {std::istream_iterator<std::string>(in), std::istream_iterator<std::string>()};
}

// The file as it would be if all that it expects were what is answered.
std::string Replay(const std::string& text, Scenario& scenario) {
  std::istringstream in(text);
  std::string line, out, answer;
  bool expecting = false;
  while (std::getline(in, line)) {
    if (expecting) {
      expecting = !line.empty();
      if (!expecting) out += "\n";
      continue;
    }
    out += line + "\n";
    if (line == kLine) {
      out += answer;
      answer.clear();
      expecting = true;
    } else if (!line.empty() && line[0] != '#') {
      answer += scenario.Run(Words(line));
    }
  }
  return out;
}

class ScenarioFile : public ::testing::TestWithParam<std::string> {};

TEST_P(ScenarioFile, AnswersAsWritten) {
  const std::string path = std::string(MACRAME_SCENARIO_FOLDER) + "/" + GetParam() + ".txt";
  std::ifstream in(path);
  const std::string text((std::istreambuf_iterator<char>(in)), std::istreambuf_iterator<char>());
  const bool election = GetParam().starts_with("election_");
  const auto scenario = election ? MakeElectionScenario() : MakeGangScenario();
  const std::string replayed = Replay(text, *scenario);
  if (std::getenv("MACRAME_REWRITE") != nullptr) {
    std::ofstream(path) << replayed;
  } else {
    EXPECT_EQ(replayed, text) << "MACRAME_REWRITE=1 writes what is answered now";
  }
}

INSTANTIATE_TEST_SUITE_P(Data, ScenarioFile, ::testing::ValuesIn(Files()),
                         [](const auto& info) { return info.param; });

}  // namespace
}  // namespace macrame::scenario
