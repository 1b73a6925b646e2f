#pragma once

// What a command line could go on with. Pure: reads the option tree and says which names of the
// cluster belong there.

#include <CLI/CLI.hpp>
#include <string>
#include <string_view>
#include <vector>

namespace macrame::cli {

// Names that only the agent knows.
enum class LiveNames { kNone, kModels, kServed, kNodes, kCordoned };

struct Candidate {
  std::string word, description;
};
struct Candidates {
  std::vector<Candidate> words;  // that begin as the last word does
  LiveNames live = LiveNames::kNone;
  std::string prefix;  // of a list that was begun ("a,"): stands before each live name
};

// `words`: what was typed after the program's name; the last one is being typed, and may be empty.
Candidates CandidatesFor(CLI::App& root, const std::vector<std::string>& words);

// What `completion SHELL` prints; empty: no such shell.
std::string CompletionScript(std::string_view shell);

}  // namespace macrame::cli
