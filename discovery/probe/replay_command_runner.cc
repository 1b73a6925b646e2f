#include <fstream>
#include <sstream>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "discovery/probe/command_runner.h"

namespace macrame::discovery {
namespace {

bool ReadWhole(const std::string& path, std::string& text) {
  std::ifstream in(path, std::ios::binary);
  if (!in) return false;
  std::ostringstream whole;
  whole << in.rdbuf();
  text = whole.str();
  return true;
}

bool ReadAnswer(const std::string& folder, const std::string& exit, const std::string& file,
                CommandResult& result) {
  if (exit == "timeout") {
    result.outcome = CommandOutcome::kTimedOut;
  } else if (exit == "missing") {
    result.outcome = CommandOutcome::kNotFound;
  } else {
    result.outcome = CommandOutcome::kExited;
    if (!absl::SimpleAtoi(exit, &result.exit_code)) return false;
  }
  if (file == "-") return true;
  const std::string path = absl::StrCat(folder, "/", file);
  const bool has_err = ReadWhole(path + ".err", result.err);
  return ReadWhole(path, result.out) || has_err;
}

}  // namespace

absl::StatusOr<ReplayCommandRunner> ReplayCommandRunner::Open(const std::string& folder) {
  std::ifstream index(folder + "/INDEX");
  if (!index) return absl::NotFoundError(absl::StrCat("no file ", folder, "/INDEX"));
  ReplayCommandRunner runner;
  std::string line;
  while (std::getline(index, line)) {
    if (line.empty() || line[0] == '#') continue;
    std::istringstream words(line);
    std::string exit;
    std::string file;
    std::string command_line;
    words >> exit >> file >> std::ws;
    std::getline(words, command_line);
    CommandResult result;
    if (command_line.empty() || !ReadAnswer(folder, exit, file, result)) {
      return absl::InvalidArgumentError(absl::StrCat(folder, "/INDEX: can't use: ", line));
    }
    runner.answers_[command_line] = std::move(result);
  }
  return runner;
}

CommandResult ReplayCommandRunner::Run(const Command& command) {
  const auto found = answers_.find(CommandLine(command));
  if (found != answers_.end()) return found->second;
  CommandResult missing;
  missing.outcome = CommandOutcome::kNotFound;
  return missing;
}

void ReplayCommandRunner::Set(const std::string& command_line, CommandResult result) {
  answers_[command_line] = std::move(result);
}

}  // namespace macrame::discovery
