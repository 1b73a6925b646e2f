#include "cli/planner_program.h"

#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <memory>
#include <thread>
#include <vector>

#include "absl/strings/str_cat.h"
#include "proto/reasons.h"
#include "transport/program_path.h"

extern char** environ;

namespace macrame::cli {
namespace {

constexpr std::chrono::seconds kAnswerMax{60};
constexpr std::chrono::milliseconds kLookInterval{2};
constexpr uintmax_t kDescriptionBytesMax = 4U << 20;

struct CloseFile {
  void operator()(std::FILE* file) const { std::fclose(file); }
};
using File = std::unique_ptr<std::FILE, CloseFile>;

absl::Status Broken(const std::string& program, const std::string& what) {
  return ReasonStatus(absl::StatusCode::kInternal, "INTERNAL",
                      absl::StrCat("the planner program ", program, " ", what));
}

// Waits for the process to end; kills it when it takes too long.
bool WaitFor(pid_t pid, int* status) {
  const auto deadline = std::chrono::steady_clock::now() + kAnswerMax;
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

int Spawn(const std::string& program, std::FILE* in, std::FILE* out, pid_t* pid) {
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_adddup2(&actions, fileno(in), 0);
  posix_spawn_file_actions_adddup2(&actions, fileno(out), 1);
  std::string name = program;
  char* const arguments[] = {name.data(), nullptr};
  const int error = posix_spawnp(pid, program.c_str(), &actions, nullptr, arguments, environ);
  posix_spawn_file_actions_destroy(&actions);
  return error;
}

}  // namespace

absl::StatusOr<v1::PlannerAnswer> AskPlanner(const v1::PlannerQuestion& question,
                                             const Environment& environment) {
  std::string program = environment.variable("MACRAME_PLANNER");
  if (program.empty()) program = transport::ProgramBesideThis("planner");
  const File in(std::tmpfile()), out(std::tmpfile());
  const std::string asked = question.SerializeAsString();
  if (in == nullptr || out == nullptr ||
      std::fwrite(asked.data(), 1, asked.size(), in.get()) != asked.size() ||
      std::fflush(in.get()) != 0) {
    return Broken(program, "can't be asked: no temporary file can be written");
  }
  std::rewind(in.get());
  pid_t pid = 0;
  if (const int error = Spawn(program, in.get(), out.get(), &pid); error != 0) {
    return Broken(program, absl::StrCat("can't be started: ", std::strerror(error)));
  }
  int status = 0;
  if (!WaitFor(pid, &status)) return Broken(program, "took longer than a minute");
  if (!WIFEXITED(status) || WEXITSTATUS(status) != 0)
    return Broken(program, "ended with a failure");
  std::fseek(out.get(), 0, SEEK_END);
  std::string answered(static_cast<size_t>(std::max(0L, std::ftell(out.get()))), '\0');
  std::rewind(out.get());
  v1::PlannerAnswer answer;
  if (std::fread(answered.data(), 1, answered.size(), out.get()) != answered.size() ||
      !answer.ParseFromString(answered)) {
    return Broken(program, "gave an answer that can't be read");
  }
  if (!answer.has_failure()) return answer;
  const bool absent = answer.failure().code() == "MODEL_NOT_FOUND";
  return ReasonStatus(absent ? absl::StatusCode::kNotFound : absl::StatusCode::kInvalidArgument,
                      answer.failure());
}

absl::StatusOr<std::string> ReadDescription(const std::string& path) {
  std::error_code error;
  const uintmax_t size = std::filesystem::file_size(path, error);
  std::ifstream file(path, std::ios::binary);
  if (error || !file) {
    return ReasonStatus(
        absl::StatusCode::kInvalidArgument, "BAD_REQUEST",
        absl::StrCat(path, " can't be read: ", error ? error.message() : std::strerror(errno)));
  }
  if (size > kDescriptionBytesMax) {
    return ReasonStatus(absl::StatusCode::kInvalidArgument, "BAD_REQUEST",
                        absl::StrCat(path, " is larger than 4 MiB"));
  }
  std::string text(static_cast<size_t>(size), '\0');
  file.read(text.data(), static_cast<std::streamsize>(text.size()));
  text.resize(static_cast<size_t>(file.gcount()));
  return text;
}

}  // namespace macrame::cli
