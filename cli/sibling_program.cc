#include "cli/sibling_program.h"

#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <cstring>
#include <memory>
#include <thread>

#include "absl/strings/str_cat.h"
#include "proto/reasons.h"

extern char** environ;

namespace macrame::cli {
namespace {

constexpr std::chrono::seconds kOutputMax{60};
constexpr std::chrono::milliseconds kLookInterval{2};

struct CloseFile {
  void operator()(std::FILE* file) const { std::fclose(file); }
};
using File = std::unique_ptr<std::FILE, CloseFile>;

// Waits for the process to end; kills it when it takes too long.
bool WaitFor(pid_t pid, int* status) {
  const auto deadline = std::chrono::steady_clock::now() + kOutputMax;
  while (waitpid(pid, status, WNOHANG) == 0) {
    if (std::chrono::steady_clock::now() > deadline) {
      kill(pid, SIGKILL);
      waitpid(pid, status, 0);
      return false;
    }
    std::this_thread::sleep_for(kLookInterval);
  }
  return true;
}

int Spawn(const std::string& program, std::vector<std::string> arguments, std::FILE* in,
          std::FILE* out, pid_t* pid) {
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_adddup2(&actions, fileno(in), 0);
  posix_spawn_file_actions_adddup2(&actions, fileno(out), 1);
  std::string name = program;
  std::vector<char*> words = {name.data()};
  for (std::string& argument : arguments) words.push_back(argument.data());
  words.push_back(nullptr);
  const int error = posix_spawnp(pid, program.c_str(), &actions, nullptr, words.data(), environ);
  posix_spawn_file_actions_destroy(&actions);
  return error;
}

}  // namespace

absl::Status ProgramBroken(const std::string& program, const std::string& what) {
  return ReasonStatus(absl::StatusCode::kInternal, "INTERNAL",
                      absl::StrCat("the program ", program, " ", what));
}

absl::StatusOr<std::string> OutputOf(const std::string& program,
                                     const std::vector<std::string>& arguments,
                                     const std::string& input) {
  const File in(std::tmpfile()), out(std::tmpfile());
  if (in == nullptr || out == nullptr ||
      std::fwrite(input.data(), 1, input.size(), in.get()) != input.size() ||
      std::fflush(in.get()) != 0) {
    return ProgramBroken(program, "can't be asked: no temporary file can be written");
  }
  std::rewind(in.get());
  pid_t pid = 0;
  if (const int error = Spawn(program, arguments, in.get(), out.get(), &pid); error != 0) {
    return ProgramBroken(program, absl::StrCat("can't be started: ", std::strerror(error),
                                               "; it is installed beside clusterctl"));
  }
  int status = 0;
  if (!WaitFor(pid, &status)) return ProgramBroken(program, "took longer than a minute");
  if (!WIFEXITED(status) || WEXITSTATUS(status) != 0) {
    return ProgramBroken(program, "ended with a failure");
  }
  std::fseek(out.get(), 0, SEEK_END);
  std::string written(static_cast<size_t>(std::max(0L, std::ftell(out.get()))), '\0');
  std::rewind(out.get());
  written.resize(std::fread(written.data(), 1, written.size(), out.get()));
  return written;
}

}  // namespace macrame::cli
