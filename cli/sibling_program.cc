#include "cli/sibling_program.h"

#include <fcntl.h>
#include <poll.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
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
constexpr std::chrono::milliseconds kSiblingLookInterval{2};
constexpr int kStreamPauseMs = 100;

struct CloseFile {
  void operator()(std::FILE* file) const { std::fclose(file); }
};
using File = std::unique_ptr<std::FILE, CloseFile>;

// Waits for the process to end; kills it when it takes too long.
bool WaitFor(pid_t pid, std::chrono::seconds limit, int* status) {
  const auto deadline = std::chrono::steady_clock::now() + limit;
  while (waitpid(pid, status, WNOHANG) == 0) {
    if (std::chrono::steady_clock::now() > deadline) {
      kill(pid, SIGKILL);
      waitpid(pid, status, 0);
      return false;
    }
    std::this_thread::sleep_for(kSiblingLookInterval);
  }
  return true;
}

int Spawn(const std::string& program, std::vector<std::string> arguments, int in, int out,
          pid_t* pid) {
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_adddup2(&actions, in, 0);
  posix_spawn_file_actions_adddup2(&actions, out, 1);
  std::string name = program;
  std::vector<char*> words = {name.data()};
  for (std::string& argument : arguments) words.push_back(argument.data());
  words.push_back(nullptr);
  const int error = posix_spawnp(pid, program.c_str(), &actions, nullptr, words.data(), environ);
  posix_spawn_file_actions_destroy(&actions);
  return error;
}

bool EndedWell(int status) { return WIFEXITED(status) && WEXITSTATUS(status) == 0; }

// "ended with a failure (exit code 3)", "… (signal 9)".
std::string FailureText(int status) {
  return WIFEXITED(status)
             ? absl::StrCat("ended with a failure (exit code ", WEXITSTATUS(status), ")")
             : absl::StrCat("ended with a failure (signal ", WTERMSIG(status), ")");
}

absl::Status NotStarted(const std::string& program, int error) {
  return ProgramBroken(program, absl::StrCat("can't be started: ", std::strerror(error),
                                             "; it is installed beside clusterctl"));
}

// A descriptor that is closed in the end and not inherited.
class Descriptor {
 public:
  explicit Descriptor(int fd) : fd_(fd) { fcntl(fd, F_SETFD, FD_CLOEXEC); }
  ~Descriptor() { Close(); }
  Descriptor(const Descriptor&) = delete;
  Descriptor& operator=(const Descriptor&) = delete;
  int get() const { return fd_; }
  void Close() {
    if (fd_ >= 0) close(fd_);
    fd_ = -1;
  }

 private:
  int fd_;
};

enum class StreamEnd { kEnded, kUnwanted, kIdle };

StreamEnd ReadStream(int fd, std::chrono::seconds idle_limit,
                     const std::function<bool(std::string_view)>& on_output) {
  std::array<char, 1 << 16> buffer;
  auto last_output = std::chrono::steady_clock::now();
  while (true) {
    pollfd wait{fd, POLLIN, 0};
    const int ready = poll(&wait, 1, kStreamPauseMs);
    const ssize_t count = ready > 0 ? read(fd, buffer.data(), buffer.size()) : 0;
    if (ready > 0 && count == 0) return StreamEnd::kEnded;
    if (count < 0 && errno != EINTR) return StreamEnd::kEnded;
    const auto now = std::chrono::steady_clock::now();
    if (count > 0) last_output = now;
    if (!on_output({buffer.data(), static_cast<size_t>(std::max<ssize_t>(count, 0))})) {
      return StreamEnd::kUnwanted;
    }
    if (now - last_output > idle_limit) return StreamEnd::kIdle;
  }
}

}  // namespace

absl::Status StreamOutputOf(const std::string& program, const std::vector<std::string>& arguments,
                            std::chrono::seconds idle_limit,
                            const std::function<bool(std::string_view)>& on_output) {
  int ends[2];
  if (pipe(ends) != 0) return NotStarted(program, errno);
  Descriptor from(ends[0]), to(ends[1]), nothing(open("/dev/null", O_RDONLY));
  pid_t pid = 0;
  if (const int error = Spawn(program, arguments, nothing.get(), to.get(), &pid); error != 0) {
    return NotStarted(program, error);
  }
  to.Close();
  const StreamEnd end = ReadStream(from.get(), idle_limit, on_output);
  from.Close();
  if (end == StreamEnd::kIdle) kill(pid, SIGKILL);
  int status = 0;
  const bool ended = WaitFor(pid, kStopLimit, &status);
  if (end == StreamEnd::kUnwanted) return absl::CancelledError(program + " was stopped");
  if (end == StreamEnd::kIdle) {
    return ProgramBroken(program, absl::StrCat("said nothing for ", idle_limit.count(), " s"));
  }
  return ended && EndedWell(status) ? absl::OkStatus()
                                    : ProgramBroken(program, FailureText(status));
}

absl::Status ProgramBroken(const std::string& program, const std::string& what) {
  return ReasonStatus(absl::StatusCode::kInternal, reasons::kInternal,
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
  if (const int error = Spawn(program, arguments, fileno(in.get()), fileno(out.get()), &pid);
      error != 0) {
    return NotStarted(program, error);
  }
  int status = 0;
  if (!WaitFor(pid, kOutputMax, &status)) {
    return ProgramBroken(program, "took longer than a minute");
  }
  if (!EndedWell(status)) return ProgramBroken(program, FailureText(status));
  std::fseek(out.get(), 0, SEEK_END);
  std::string written(static_cast<size_t>(std::max(0L, std::ftell(out.get()))), '\0');
  std::rewind(out.get());
  written.resize(std::fread(written.data(), 1, written.size(), out.get()));
  return written;
}

}  // namespace macrame::cli
