#include "runtime/supervisor/child_process.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"
#include "proto/check.h"
#include "runtime/supervisor/last_lines.h"
#include "transport/spawn_attributes.h"

namespace macrame::runtime {
namespace {

constexpr int kPollMs = 60 * 1000;
constexpr size_t kDrainBytesMax = 1 << 20;  // read after the exit, from whoever else holds the pipe

struct Pipe {
  int read = -1;
  int write = -1;
};

bool MakePipe(Pipe* out) {
  int fds[2];
#ifdef __linux__
  if (pipe2(fds, O_CLOEXEC) != 0) return false;
#else
  if (pipe(fds) != 0) return false;
  for (int fd : fds) fcntl(fd, F_SETFD, FD_CLOEXEC);
#endif
  *out = {fds[0], fds[1]};
  return true;
}

void Close(int fd) {
  if (fd >= 0) close(fd);
}

struct Pipes {
  Pipe in, out, err, wake;
  bool Make() { return MakePipe(&in) && MakePipe(&out) && MakePipe(&err) && MakePipe(&wake); }
  void CloseAll() {
    for (const Pipe* pipe : {&in, &out, &err, &wake}) {
      Close(pipe->read);
      Close(pipe->write);
    }
  }
};

std::vector<char*> Pointers(const std::vector<std::string>& texts) {
  std::vector<char*> pointers;
  for (const std::string& text : texts) pointers.push_back(const_cast<char*>(text.c_str()));
  pointers.push_back(nullptr);
  return pointers;
}

// An ignored SIGCHLD, which may have been inherited, makes the system reap children by itself:
// their exit codes would be lost, and a pid that is signalled here could be another process's by
// then.
void KeepEndedChildren() {
  struct sigaction action {};
  if (sigaction(SIGCHLD, nullptr, &action) != 0) return;
  if (action.sa_handler != SIG_IGN && (action.sa_flags & SA_NOCLDWAIT) == 0) return;
  signal(SIGCHLD, SIG_DFL);
}

// Copies whose numbers are none that the process is to get: they are put in place one by one.
class Copies {
 public:
  explicit Copies(const std::vector<int>& fds) {
    const int first = kInheritedFdFirst + static_cast<int>(fds.size());
    for (const int fd : fds) copies_.push_back(fcntl(fd, F_DUPFD_CLOEXEC, first));
  }
  ~Copies() {
    for (const int fd : copies_) Close(fd);
  }
  Copies(const Copies&) = delete;
  Copies& operator=(const Copies&) = delete;
  const std::vector<int>& fds() const { return copies_; }

 private:
  std::vector<int> copies_;
};

// Own group, default signals, nothing open but the three pipes and what is handed on.
int Spawn(const ProcessCommand& command, const Pipes& pipes, pid_t* pid) {
  const transport::SpawnAttributes attributes(transport::SpawnAttributes::Group::kOwn);
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_adddup2(&actions, pipes.in.read, STDIN_FILENO);
  posix_spawn_file_actions_adddup2(&actions, pipes.out.write, STDOUT_FILENO);
  posix_spawn_file_actions_adddup2(&actions, pipes.err.write, STDERR_FILENO);
  const Copies inherited(command.inherited);
  int next = kInheritedFdFirst;
  for (const int fd : inherited.fds()) posix_spawn_file_actions_adddup2(&actions, fd, next++);
#ifdef __GLIBC__
  posix_spawn_file_actions_addclosefrom_np(&actions, next);
#endif
  const auto arguments = Pointers(command.arguments);
  const auto environment = Pointers(command.environment);
  const int error = posix_spawn(pid, arguments[0], &actions, attributes.get(), arguments.data(),
                                environment.data());
  posix_spawn_file_actions_destroy(&actions);
  return error;
}

// Reads both outputs until they end, or until the other end of `wake` says that the process is
// gone.
class OutputReader {
 public:
  OutputReader(const ProcessCommand& command, int out, int err, int wake)
      : log_(command.log_path, command.log_bytes_max, command.full_log),
        fds_({out, err, wake}),
        lines_({LastLines(command.last_lines_max), LastLines(command.last_lines_max)}) {
    for (int fd : {out, err}) fcntl(fd, F_SETFL, fcntl(fd, F_GETFL) | O_NONBLOCK);
  }

  void Run() {
    bool gone = false;
    while (!gone && (fds_[0] >= 0 || fds_[1] >= 0)) {
      std::array<pollfd, 3> polled = {
          {{fds_[0], POLLIN, 0}, {fds_[1], POLLIN, 0}, {fds_[2], POLLIN, 0}}};
      if (poll(polled.data(), polled.size(), kPollMs) < 0 && errno != EINTR) break;
      gone = polled[2].revents != 0;
      for (size_t i = 0; i < 2; ++i) {
        if (polled[i].revents != 0 && !gone) ReadSome(i);
      }
    }
    // What is in the pipes already belongs to its last lines.
    for (size_t i = 0; i < 2; ++i) {
      for (size_t read = 0; fds_[i] >= 0 && read < kDrainBytesMax;) {
        const ssize_t got = ReadSome(i);
        if (got <= 0) break;
        read += static_cast<size_t>(got);
      }
      Close(std::exchange(fds_[i], -1));
    }
    Close(std::exchange(fds_[2], -1));
  }

  std::string LastLinesOfOutput() const {
    const std::string errors = lines_[1].Text();
    return errors.empty() ? lines_[0].Text() : errors;
  }

 private:
  ssize_t ReadSome(size_t i) {
    std::array<char, 8192> buffer;
    const ssize_t got = read(fds_[i], buffer.data(), buffer.size());
    if (got > 0) {
      const std::string_view bytes(buffer.data(), static_cast<size_t>(got));
      log_.Write(bytes);
      lines_[i].Add(bytes);
    } else if (got == 0 || (errno != EAGAIN && errno != EINTR)) {
      Close(std::exchange(fds_[i], -1));
    }
    return got;
  }

  RankLog log_;
  std::array<int, 3> fds_;
  std::array<LastLines, 2> lines_;
};

struct Ending {
  int code = 0;
  int signal = 0;
};

// Blocks until the process has ended, and leaves it to be reaped: until then its pid, and that of
// its group, is nobody else's.
Ending WaitForEnd(pid_t pid) {
  siginfo_t info{};
  while (waitid(P_PID, static_cast<id_t>(pid), &info, WEXITED | WNOWAIT) != 0) {
    if (errno != EINTR) return {};
  }
  kill(-pid, SIGKILL);  // what it left behind
  if (info.si_code == CLD_EXITED) return {info.si_status, 0};
  return {0, info.si_status};
}

}  // namespace

absl::StatusOr<std::unique_ptr<ChildProcess>> ChildProcess::Start(
    const ProcessCommand& command, transport::Dispatcher* dispatcher,
    std::function<void(const ProcessExit&)> on_exit) {
  KeepEndedChildren();
  Pipes pipes;
  pid_t pid = -1;
  const int error = pipes.Make() ? Spawn(command, pipes, &pid) : errno;
  if (error != 0) {
    pipes.CloseAll();
    return absl::UnavailableError(
        absl::StrCat("can't start ", command.arguments[0], ": ", std::strerror(error)));
  }
  Close(pipes.in.read);
  Close(pipes.out.write);
  Close(pipes.err.write);
  std::unique_ptr<ChildProcess> process(new ChildProcess);
  process->pid_ = pid;
  process->stdin_fd_ = pipes.in.write;
  process->on_exit_ = std::move(on_exit);
  process->self_ = std::make_shared<ChildProcess*>(process.get());
  process->waiter_ = std::thread([command, pipes, pid, dispatcher, self = process->self_] {
    OutputReader output(command, pipes.out.read, pipes.err.read, pipes.wake.read);
    std::thread reader([&output] { output.Run(); });
    const Ending ending = WaitForEnd(pid);
    Close(pipes.wake.write);
    reader.join();
    dispatcher->Post([self, ending, words = output.LastLinesOfOutput()] {
      if (*self != nullptr) (*self)->Exited(ending.code, ending.signal, words);
    });
  });
  return process;
}

void ChildProcess::Exited(int code, int signal, const std::string& last_lines) {
  Reap();
  const auto on_exit = std::move(on_exit_);
  on_exit({code, signal, last_lines});  // may destroy this
}

void ChildProcess::Signal(int signal) {
  if (!reaped_) kill(-pid_, signal);
}

void ChildProcess::Reap() {
  if (reaped_) return;
  waiter_.join();
  while (waitpid(pid_, nullptr, 0) < 0 && errno == EINTR) {
  }
  reaped_ = true;
  Close(std::exchange(stdin_fd_, -1));
}

ChildProcess::~ChildProcess() {
  *self_ = nullptr;
  Signal(SIGKILL);
  Reap();
}

}  // namespace macrame::runtime
