#include "discovery/probe/command_runner.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "proto/utf8.h"
#include "transport/spawn_attributes.h"

namespace macrame::discovery {
namespace {

using SteadyClock = std::chrono::steady_clock;

constexpr std::chrono::milliseconds kPollSlice{20};
// A grandchild may keep the pipes open after the command itself has ended.
constexpr std::chrono::milliseconds kDrainAfterExit{200};
// A process in an uninterruptible call does not even die of SIGKILL; it is then left to itself.
constexpr std::chrono::milliseconds kDieAfterKill{2000};

class Descriptor {
 public:
  Descriptor() = default;
  explicit Descriptor(int fd) : fd_(fd) {}
  Descriptor(Descriptor&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}
  Descriptor& operator=(Descriptor&& other) noexcept {
    std::swap(fd_, other.fd_);
    return *this;
  }
  ~Descriptor() { Close(); }
  void Close() {
    if (fd_ >= 0) close(fd_);
    fd_ = -1;
  }
  int get() const { return fd_; }

 private:
  int fd_ = -1;
};

struct Pipe {
  Descriptor read;
  Descriptor write;
};

bool OpenPipe(Pipe& out) {
  int fds[2];
#ifdef __linux__
  if (pipe2(fds, O_CLOEXEC) != 0) return false;
#else
  if (pipe(fds) != 0) return false;
#endif
  out.read = Descriptor(fds[0]);
  out.write = Descriptor(fds[1]);
  // macOS has no pipe2.
  fcntl(fds[0], F_SETFD, FD_CLOEXEC);
  fcntl(fds[1], F_SETFD, FD_CLOEXEC);
  fcntl(fds[0], F_SETFL, O_NONBLOCK);
  return true;
}

std::string FindProgram(const std::string& name, const std::vector<std::string>& folders) {
  if (name.find('/') != std::string::npos) return access(name.c_str(), X_OK) == 0 ? name : "";
  for (const std::string& folder : folders) {
    const std::string path = absl::StrCat(folder, "/", name);
    if (access(path.c_str(), X_OK) == 0) return path;
  }
  return "";
}

// Starts the program in a process group of its own. Returns 0 or an errno.
int Spawn(const std::string& program, const Command& command, const std::string& path_folders,
          const Pipe& out, const Pipe& err, pid_t& pid) {
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_addopen(&actions, 0, "/dev/null", O_RDONLY, 0);
  posix_spawn_file_actions_adddup2(&actions, out.write.get(), 1);
  posix_spawn_file_actions_adddup2(&actions, err.write.get(), 2);
  const transport::SpawnAttributes attributes(transport::SpawnAttributes::Group::kOwn);

  std::vector<char*> argv;
  for (const std::string& argument : command.argv)
    argv.push_back(const_cast<char*>(argument.c_str()));
  argv.push_back(nullptr);
  const char* home = std::getenv("HOME");
  std::array<std::string, 3> environment = {"LC_ALL=C", absl::StrCat("PATH=", path_folders),
                                            absl::StrCat("HOME=", home == nullptr ? "/" : home)};
  std::vector<char*> envp;
  for (std::string& entry : environment) envp.push_back(entry.data());
  envp.push_back(nullptr);

  const int error =
      posix_spawn(&pid, program.c_str(), &actions, attributes.get(), argv.data(), envp.data());
  posix_spawn_file_actions_destroy(&actions);
  return error;
}

// Reads what is there. False at the end of the stream.
bool Drain(int fd, std::string& text, size_t bytes_max, bool& truncated) {
  std::array<char, 16384> buffer;
  for (;;) {
    const ssize_t got = read(fd, buffer.data(), buffer.size());
    if (got == 0) return false;
    if (got < 0) return errno == EAGAIN || errno == EINTR;
    const size_t room = bytes_max - std::min(bytes_max, text.size());
    const size_t kept = std::min(room, static_cast<size_t>(got));
    text.append(buffer.data(), kept);
    if (kept < static_cast<size_t>(got)) truncated = true;
  }
}

// One command being waited for.
class Execution {
 public:
  Execution(pid_t pid, Pipe out, Pipe err, const Command& command)
      : pid_(pid), out_(std::move(out.read)), err_(std::move(err.read)), command_(command) {}

  CommandResult Wait(const std::atomic<bool>& stopping) {
    const SteadyClock::time_point limit = SteadyClock::now() + command_.limit;
    bool killed = false;
    SteadyClock::time_point drain_until = SteadyClock::time_point::max();
    while (!reaped_ || out_.get() >= 0 || err_.get() >= 0) {
      const SteadyClock::time_point now = SteadyClock::now();
      if (now >= drain_until) break;
      if (!killed && (now >= limit || stopping.load())) {
        killed = true;
        result_.outcome = stopping.load() ? CommandOutcome::kNotRun : CommandOutcome::kTimedOut;
        KillGroup();
        drain_until = now + kDieAfterKill;
      }
      ReadSome();
      if (!reaped_ && Reap(killed)) drain_until = SteadyClock::now() + kDrainAfterExit;
    }
    KillGroup();  // whoever held the pipes open
    return std::move(result_);
  }

 private:
  // The leader may be gone while others of its group live on; an empty group gives ESRCH.
  void KillGroup() { kill(-pid_, SIGKILL); }

  void ReadSome() {
    std::array<pollfd, 2> wanted = {pollfd{out_.get(), POLLIN, 0}, pollfd{err_.get(), POLLIN, 0}};
    poll(wanted.data(), wanted.size(), static_cast<int>(kPollSlice.count()));
    if (wanted[0].revents != 0 &&
        !Drain(out_.get(), result_.out, command_.output_bytes_max, result_.truncated)) {
      out_.Close();
    }
    if (wanted[1].revents != 0 &&
        !Drain(err_.get(), result_.err, command_.output_bytes_max, result_.truncated)) {
      err_.Close();
    }
  }

  bool Reap(bool killed) {
    int status = 0;
    const pid_t got = waitpid(pid_, &status, WNOHANG);
    if (got == 0 || (got < 0 && errno == EINTR)) return false;
    reaped_ = true;
    if (killed) return true;
    if (got < 0) {  // somebody else collected it: what it said can't be trusted
      result_.outcome = CommandOutcome::kNotRun;
      result_.err = absl::StrCat("its end was not seen: ", std::strerror(errno));
    } else if (WIFEXITED(status)) {
      result_.outcome = CommandOutcome::kExited;
      result_.exit_code = WEXITSTATUS(status);
    } else if (WIFSIGNALED(status)) {
      result_.outcome = CommandOutcome::kSignalled;
      result_.signal = WTERMSIG(status);
    }
    return true;
  }

  pid_t pid_;
  Descriptor out_;
  Descriptor err_;
  const Command& command_;
  CommandResult result_;
  bool reaped_ = false;
};

constexpr size_t kWordsBytesMax = 200;

std::string FirstLineOf(const std::string& text) { return text.substr(0, text.find('\n')); }

}  // namespace

std::string CommandLine(const Command& command) { return absl::StrJoin(command.argv, " "); }

std::string DescribeOutcome(const Command& command, const CommandResult& result) {
  // What a program wrote may be of any bytes, and goes into messages.
  const std::string words = AsUtf8(CutToBytes(FirstLineOf(result.err), kWordsBytesMax), "?");
  const std::string tail = words.empty() ? "" : absl::StrCat(": ", words);
  switch (result.outcome) {
    case CommandOutcome::kNotFound:
      return "no such command";
    case CommandOutcome::kTimedOut:
      return absl::StrCat(
          "no answer within ",
          std::chrono::duration_cast<std::chrono::milliseconds>(command.limit).count(), " ms");
    case CommandOutcome::kSignalled:
      return absl::StrCat("ended by signal ", result.signal, tail);
    case CommandOutcome::kNotRun:
      return absl::StrCat("could not be run", tail);
    case CommandOutcome::kExited:
      break;
  }
  if (result.truncated) return "printed more than may be kept";
  return absl::StrCat("exit code ", result.exit_code, tail);
}

ProcessCommandRunner::ProcessCommandRunner()
    : ProcessCommandRunner({"/usr/bin", "/bin", "/usr/sbin", "/sbin"}) {}

ProcessCommandRunner::ProcessCommandRunner(std::vector<std::string> search_folders)
    : search_folders_(std::move(search_folders)) {}

CommandResult ProcessCommandRunner::Run(const Command& command) {
  CommandResult result;
  if (command.argv.empty() || stopping_.load()) {
    result.err = command.argv.empty() ? "no program named" : "the runner is stopping";
    return result;
  }
  const std::string program = FindProgram(command.argv[0], search_folders_);
  if (program.empty()) {
    result.outcome = CommandOutcome::kNotFound;
    return result;
  }
  Pipe out;
  Pipe err;
  if (!OpenPipe(out) || !OpenPipe(err)) {
    result.err = std::strerror(errno);
    return result;
  }
  pid_t pid = -1;
  const int error = Spawn(program, command, absl::StrJoin(search_folders_, ":"), out, err, pid);
  if (error != 0) {
    result.outcome = error == ENOENT ? CommandOutcome::kNotFound : CommandOutcome::kNotRun;
    result.err = std::strerror(error);
    return result;
  }
  out.write.Close();
  err.write.Close();
  return Execution(pid, std::move(out), std::move(err), command).Wait(stopping_);
}

}  // namespace macrame::discovery
