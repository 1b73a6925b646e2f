#include "runtime/second_engine/worker_process.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <nlohmann/json.hpp>
#include <thread>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "proto/reasons.h"
#include "transport/spawn_attributes.h"

extern char** environ;

namespace macrame::runtime {
namespace {

using std::chrono::milliseconds;

// Nothing is imported from the folder that the process happens to stand in.
constexpr char kBootstrap[] =
    "import sys; sys.path[:] = [p for p in sys.path if p]; b = sys.stdin.buffer; "
    "exec(compile(b.read(int(b.readline())), 'mlx_lm_worker.py', 'exec'))";

// A model is on this machine or it is not: nothing is fetched.
constexpr const char* kSettings[] = {"HF_HUB_OFFLINE=1", "TRANSFORMERS_OFFLINE=1",
                                     "TOKENIZERS_PARALLELISM=false",
                                     "TRANSFORMERS_NO_ADVISORY_WARNINGS=1", "PYTHONUNBUFFERED=1"};

constexpr milliseconds kEndPoll{5};
constexpr milliseconds kStopPoll{50};

bool MakeSockets(int* ours, int* theirs) {
  int pair[2];
  if (socketpair(AF_UNIX, SOCK_STREAM, 0, pair) != 0) return false;
  for (const int fd : pair) fcntl(fd, F_SETFD, FD_CLOEXEC);
#ifdef SO_NOSIGPIPE
  const int on = 1;
  setsockopt(pair[0], SOL_SOCKET, SO_NOSIGPIPE, &on, sizeof(on));
#endif
  // A process that does not read would hold its parent up.
  const timeval limit{std::chrono::duration_cast<std::chrono::seconds>(kWorkerStartLimit).count(),
                      0};
  setsockopt(pair[0], SOL_SOCKET, SO_SNDTIMEO, &limit, sizeof(limit));
  *ours = pair[0];
  *theirs = pair[1];
  return true;
}

int Spawn(const std::string& python, int socket, bool shows_errors, pid_t* pid) {
  const transport::SpawnAttributes attributes(transport::SpawnAttributes::Group::kParents);
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_adddup2(&actions, socket, STDIN_FILENO);
  posix_spawn_file_actions_adddup2(&actions, socket, STDOUT_FILENO);
  if (shows_errors) {
#ifdef POSIX_SPAWN_CLOEXEC_DEFAULT
    posix_spawn_file_actions_addinherit_np(&actions, STDERR_FILENO);
#endif
    posix_spawn_file_actions_adddup2(&actions, STDERR_FILENO, STDERR_FILENO);
  } else {
    posix_spawn_file_actions_addopen(&actions, STDERR_FILENO, "/dev/null", O_WRONLY, 0);
  }
#ifdef __GLIBC__
  posix_spawn_file_actions_addclosefrom_np(&actions, STDERR_FILENO + 1);
#endif
  std::vector<std::string> variables;
  // Of two of a name the first one counts.
  for (const char* setting : kSettings) variables.emplace_back(setting);
  for (char** at = environ; *at != nullptr; ++at) variables.emplace_back(*at);
  std::vector<char*> environment;
  for (std::string& variable : variables) environment.push_back(variable.data());
  environment.push_back(nullptr);
  std::string program = python, option = "-c", bootstrap = kBootstrap;
  char* arguments[] = {program.data(), option.data(), bootstrap.data(), nullptr};
  const int error =
      posix_spawnp(pid, program.c_str(), &actions, attributes.get(), arguments, environment.data());
  posix_spawn_file_actions_destroy(&actions);
  return error;
}

absl::Status Missing(const std::string& python, const std::string& why) {
  v1::Reason reason =
      MakeReason(reasons::kEngineMissing,
                 absl::StrCat("the mlx-lm worker can't be started: ", python, ": ", why));
  reason.set_remedy("set mlx_lm_python to a Python interpreter that has mlx-lm");
  return ReasonStatus(absl::StatusCode::kFailedPrecondition, reason);
}

bool SendAll(int socket, std::string_view bytes) {
  int flags = 0;
#ifdef MSG_NOSIGNAL
  flags = MSG_NOSIGNAL;
#endif
  while (!bytes.empty()) {
    const ssize_t sent = send(socket, bytes.data(), bytes.size(), flags);
    if (sent < 0 && errno == EINTR) continue;
    if (sent <= 0) return false;
    bytes.remove_prefix(static_cast<size_t>(sent));
  }
  return true;
}

absl::Status StatusOf(const std::string& payload, const std::string& name) {
  const auto said = nlohmann::json::parse(payload, nullptr, /*allow_exceptions=*/false);
  std::string code, message = "it gave no reason", remedy;
  const auto take = [&](const char* key, std::string& into) {
    const auto found = said.is_object() ? said.find(key) : said.end();
    if (found != said.end() && found->is_string()) into = found->get<std::string>();
  };
  take("code", code);
  take("message", message);
  take("remedy", remedy);
  const bool is_known = FindReasonCode(code) != nullptr;
  v1::Reason reason = MakeReason(is_known ? code : reasons::kEngineFailed,
                                 is_known ? message : absl::StrCat(name, ": ", message));
  if (!remedy.empty()) reason.set_remedy(remedy);
  return ReasonStatus(absl::StatusCode::kFailedPrecondition, reason);
}

}  // namespace

absl::StatusOr<std::unique_ptr<WorkerProcess>> WorkerProcess::Start(const std::string& python,
                                                                    std::string_view script,
                                                                    bool shows_errors) {
  if (python.empty()) return Missing("mlx_lm_python", "no Python with mlx-lm is known here");
  int theirs = -1;
  std::unique_ptr<WorkerProcess> worker(new WorkerProcess);
  worker->python_ = python;
  if (!MakeSockets(&worker->socket_, &theirs)) return Missing(python, std::strerror(errno));
  const int error = Spawn(python, theirs, shows_errors, &worker->pid_);
  close(theirs);
  if (error != 0) {
    worker->pid_ = -1;
    return Missing(python, std::strerror(error));
  }
  if (!SendAll(worker->socket_, absl::StrCat(script.size(), "\n", std::string(script)))) {
    return worker->Gone();
  }
  return worker;
}

std::string WorkerProcess::Name() const {
  return absl::StrCat("the mlx-lm worker (", python_, ", process ", pid_, ")");
}

absl::Status WorkerProcess::Gone() {
  std::string how = "closed its connection";
  // It may be about to end.
  const auto until = std::chrono::steady_clock::now() + kWorkerStopLimit;
  while (!is_reaped_ && std::chrono::steady_clock::now() < until) {
    is_reaped_ = waitpid(pid_, &end_state_, WNOHANG) == pid_;
    if (!is_reaped_) std::this_thread::sleep_for(kEndPoll);
  }
  if (is_reaped_ && WIFSIGNALED(end_state_)) {
    how = absl::StrCat("was ended by signal ", WTERMSIG(end_state_));
  }
  if (is_reaped_ && WIFEXITED(end_state_)) {
    how = absl::StrCat("ended with code ", WEXITSTATUS(end_state_));
  }
  return ReasonStatus(absl::StatusCode::kUnavailable, reasons::kEngineFailed,
                      absl::StrCat(Name(), " ", how));
}

absl::Status WorkerProcess::AwaitEnd(pid_t pid) {
  siginfo_t end{};
  while (waitid(P_PID, static_cast<id_t>(pid), &end, WEXITED | WNOWAIT) != 0) {
    if (errno != EINTR) return absl::OkStatus();
  }
  return ReasonStatus(
      absl::StatusCode::kUnavailable, reasons::kEngineFailed,
      absl::StrCat("the mlx-lm worker (process ", pid, ") ",
                   end.si_code == CLD_EXITED ? "ended with code " : "was ended by signal ",
                   end.si_status));
}

absl::Status WorkerProcess::Send(char kind, std::string_view payload) {
  std::string head(1 + sizeof(uint64_t), kind);
  const uint64_t size = payload.size();
  for (size_t i = 0; i < sizeof(size); ++i) {
    head[1 + i] = static_cast<char>((size >> (8 * i)) & 0xff);
  }
  return SendAll(socket_, head) && SendAll(socket_, payload) ? absl::OkStatus() : Gone();
}

// Until there is something to read, or the end of it.
absl::Status WorkerProcess::AwaitBytes(milliseconds limit) const {
  const auto begun = std::chrono::steady_clock::now();
  while (true) {
    pollfd polled = {socket_, POLLIN, 0};
    const bool is_timed = stop_ != nullptr || limit.count() > 0;
    if (poll(&polled, 1, is_timed ? static_cast<int>(kStopPoll.count()) : -1) > 0) {
      return absl::OkStatus();
    }
    if (stop_ != nullptr && stop_->load()) return absl::CancelledError("nobody waits any more");
    if (limit.count() == 0 || std::chrono::steady_clock::now() - begun < limit) continue;
    return ReasonStatus(absl::StatusCode::kDeadlineExceeded, reasons::kEngineFailed,
                        absl::StrCat(Name(), " said nothing for ", limit.count() / 1000, " s"));
  }
}

absl::Status WorkerProcess::ReadAll(char* out, size_t bytes, milliseconds limit) {
  while (bytes > 0) {
    const absl::Status come = AwaitBytes(limit);
    if (!come.ok()) return come;
    const ssize_t got = read(socket_, out, bytes);
    if (got < 0 && errno == EINTR) continue;
    if (got <= 0) return Gone();
    out += got;
    bytes -= static_cast<size_t>(got);
  }
  return absl::OkStatus();
}

absl::StatusOr<WorkerFrame> WorkerProcess::Receive(milliseconds limit) {
  char head[1 + sizeof(uint64_t)];
  absl::Status read = ReadAll(head, sizeof(head), limit);
  if (!read.ok()) return read;
  uint64_t size = 0;
  for (size_t i = 0; i < sizeof(size); ++i) {
    size |= uint64_t{static_cast<unsigned char>(head[1 + i])} << (8 * i);
  }
  if (size > kWorkerFrameBytesMax) {
    return ReasonStatus(absl::StatusCode::kInternal, reasons::kEngineFailed,
                        absl::StrCat(Name(), " announces ", size, " bytes"));
  }
  WorkerFrame frame{head[0], std::string(size, '\0')};
  read = ReadAll(frame.payload.data(), size, limit);
  if (!read.ok()) return read;
  if (frame.kind == 'E') return StatusOf(frame.payload, Name());
  return frame;
}

WorkerProcess::~WorkerProcess() {
  if (socket_ >= 0) close(socket_);
  if (pid_ < 0) return;
  const auto until = std::chrono::steady_clock::now() + kWorkerStopLimit;
  while (!is_reaped_ && std::chrono::steady_clock::now() < until) {
    is_reaped_ = waitpid(pid_, nullptr, WNOHANG) == pid_;
    if (!is_reaped_) std::this_thread::sleep_for(kEndPoll);
  }
  if (is_reaped_) return;
  kill(pid_, SIGKILL);
  while (waitpid(pid_, nullptr, 0) < 0 && errno == EINTR) {
  }
}

}  // namespace macrame::runtime
