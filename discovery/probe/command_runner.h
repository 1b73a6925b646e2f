#pragma once

// The one way in which the product asks another program. No shell; LC_ALL=C; a time limit; bounded
// output; and "no such command", "took too long", "failed" and "said so" told apart, because what a
// missing command would have said is unknown, never "no".

#include <atomic>
#include <map>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "proto/monotonic_time.h"

namespace macrame::discovery {

inline constexpr Duration kCommandLimit = std::chrono::seconds(3);
inline constexpr Duration kSlowCommandLimit = std::chrono::seconds(10);  // system_profiler
inline constexpr size_t kCommandOutputBytesMax = size_t{4} << 20;

struct Command {
  std::vector<std::string> argv;
  Duration limit = kCommandLimit;
  size_t output_bytes_max = kCommandOutputBytesMax;  // of stdout and stderr each
};

enum class CommandOutcome {
  kExited,     // see exit_code
  kNotFound,   // no such program
  kTimedOut,   // its process group was killed
  kSignalled,  // ended by `signal`
  kNotRun,     // could not be started, or the runner is stopping; err says why
};

struct CommandResult {
  CommandOutcome outcome = CommandOutcome::kNotRun;
  int exit_code = -1;
  int signal = 0;
  std::string out;
  std::string err;
  bool truncated = false;  // more output came than may be kept

  bool Succeeded() const {
    return outcome == CommandOutcome::kExited && exit_code == 0 && !truncated;
  }
};

// "exit code 1: first line of stderr", "no such command", "no answer within 3 s".
std::string DescribeOutcome(const Command& command, const CommandResult& result);
// "sw_vers -productVersion"
std::string CommandLine(const Command& command);

class CommandRunner {
 public:
  virtual ~CommandRunner() = default;
  // Blocks for at most the command's limit (and a little more to reap). Any thread but an owner
  // thread.
  virtual CommandResult Run(const Command& command) = 0;
};

// Runs real processes, found only in the folders given. Each gets a process group of its own, which
// is killed at the limit.
class ProcessCommandRunner : public CommandRunner {
 public:
  // The system's own folders: what PATH says is no concern of a daemon.
  ProcessCommandRunner();
  explicit ProcessCommandRunner(std::vector<std::string> search_folders);

  CommandResult Run(const Command& command) override;
  // Ends what runs within some 20 ms; later calls return kNotRun. Any thread.
  void Stop() { stopping_.store(true); }

 private:
  std::vector<std::string> search_folders_;
  std::atomic<bool> stopping_{false};
};

// Answers from a folder of captured outputs. Its file INDEX has a line for each command:
//
//   EXIT FILE COMMAND LINE        0 sw_vers.txt sw_vers
//
// EXIT is an exit code, "timeout" or "missing"; FILE is "-" when nothing was printed; a file
// FILE.err beside it is stderr. A command that is not listed is kNotFound.
class ReplayCommandRunner : public CommandRunner {
 public:
  static absl::StatusOr<ReplayCommandRunner> Open(const std::string& folder);

  CommandResult Run(const Command& command) override;
  // Replaces or adds an answer; `command_line` as CommandLine() gives it.
  void Set(const std::string& command_line, CommandResult result);
  const std::map<std::string, CommandResult>& answers() const { return answers_; }

 private:
  std::map<std::string, CommandResult> answers_;
};

}  // namespace macrame::discovery
