#include "cli/service_runner.h"

#include <fcntl.h>
#include <grp.h>
#include <pwd.h>
#include <spawn.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <memory>
#include <thread>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"

extern char** environ;

namespace macrame::cli {
namespace {

// `systemctl restart` waits for the agent's end (TimeoutStopSec) and its start.
constexpr std::chrono::seconds kCommandLimit{120};
constexpr std::chrono::milliseconds kRunnerLookInterval{5};
constexpr const char* kRunnerFolders[] = {"/usr/bin", "/bin", "/usr/sbin", "/sbin"};

struct CloseFile {
  void operator()(std::FILE* file) const { std::fclose(file); }
};
using File = std::unique_ptr<std::FILE, CloseFile>;

std::string Content(std::FILE* file) {
  std::string text(1 << 16, '\0');
  std::rewind(file);
  text.resize(std::fread(text.data(), 1, text.size(), file));
  return text;
}

int Spawn(const std::string& path, const std::vector<std::string>& words, int out, int err,
          pid_t* pid) {
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  if (out >= 0) {
    posix_spawn_file_actions_addopen(&actions, 0, "/dev/null", O_RDONLY, 0);
    posix_spawn_file_actions_adddup2(&actions, out, 1);
    posix_spawn_file_actions_adddup2(&actions, err, 2);
  }
  std::vector<std::string> copies = words;
  std::vector<char*> arguments;
  for (std::string& word : copies) arguments.push_back(word.data());
  arguments.push_back(nullptr);
  const int error = posix_spawn(pid, path.c_str(), &actions, nullptr, arguments.data(), environ);
  posix_spawn_file_actions_destroy(&actions);
  return error;
}

// Gives `file` to the step's user and group. False: errno says why not.
bool GiveAway(int file, const ServiceStep& step) {
  errno = 0;
  const passwd* user = ::getpwnam(step.user.c_str());
  const group* group = ::getgrnam(step.group.c_str());
  if (user == nullptr || group == nullptr) {
    if (errno == 0) errno = ENOENT;
    return false;
  }
  return ::fchown(file, user->pw_uid, group->gr_gid) == 0;
}

bool WriteAll(int file, const std::string& text) {
  size_t done = 0;
  while (done < text.size()) {
    const ssize_t wrote = ::write(file, text.data() + done, text.size() - done);
    if (wrote < 0 && errno == EINTR) continue;
    if (wrote < 0) return false;
    done += static_cast<size_t>(wrote);
  }
  return true;
}

// Whole, with its mode and its owner, or not at all; nobody else reads it before it has its mode.
absl::Status WriteFile(const ServiceStep& step) {
  const std::string fresh = step.path + ".new";
  ::unlink(fresh.c_str());
  const int file = ::open(fresh.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
  const bool written = file >= 0 && WriteAll(file, step.text) &&
                       (step.user.empty() || GiveAway(file, step)) &&
                       ::fchmod(file, static_cast<mode_t>(step.mode)) == 0;
  const int error = errno;
  if (file >= 0) ::close(file);
  errno = error;
  if (!written || ::rename(fresh.c_str(), step.path.c_str()) != 0) {
    return absl::InternalError(
        absl::StrCat(step.path, " can't be written: ", std::strerror(errno)));
  }
  return absl::OkStatus();
}

}  // namespace

ServiceRunner::ServiceRunner(const Environment& environment)
    : commands_folder_(environment.variable("MACRAME_COMMANDS_FOLDER")) {}

std::string ServiceRunner::Find(const std::string& program) const {
  std::vector<std::string> folders(std::begin(kRunnerFolders), std::end(kRunnerFolders));
  if (!commands_folder_.empty()) folders.insert(folders.begin(), commands_folder_);
  for (const std::string& folder : folders) {
    std::string path = absl::StrCat(folder, "/", program);
    if (access(path.c_str(), X_OK) == 0) return path;
  }
  return "";
}

CommandResult ServiceRunner::Run(const std::vector<std::string>& words) const {
  CommandResult result;
  const std::string path = Find(words[0]);
  const File out(std::tmpfile()), err(std::tmpfile());
  if (path.empty() || out == nullptr || err == nullptr) {
    result.errors = path.empty() ? absl::StrCat("this machine has no command ", words[0])
                                 : "no temporary file can be written";
    return result;
  }
  pid_t pid = 0;
  const int error = Spawn(path, words, fileno(out.get()), fileno(err.get()), &pid);
  if (error != 0) {
    result.errors = absl::StrCat(path, " can't be started: ", std::strerror(error));
    return result;
  }
  int status = 0;
  const auto deadline = std::chrono::steady_clock::now() + kCommandLimit;
  pid_t ended = 0;
  while ((ended = waitpid(pid, &status, WNOHANG)) != pid) {
    if (ended < 0 && errno != EINTR) {
      result.errors = absl::StrCat("how it ended is not known: ", std::strerror(errno));
      return result;
    }
    if (std::chrono::steady_clock::now() > deadline) {
      kill(pid, SIGKILL);
      waitpid(pid, &status, 0);
      result.errors = absl::StrCat("it took longer than ", kCommandLimit.count(), " s");
      return result;
    }
    std::this_thread::sleep_for(kRunnerLookInterval);
  }
  result.code = WIFEXITED(status) ? WEXITSTATUS(status) : -1;
  result.output = Content(out.get());
  result.errors = Content(err.get());
  return result;
}

int ServiceRunner::RunInFront(const std::vector<std::string>& words) const {
  const std::string path = Find(words[0]);
  pid_t pid = 0;
  if (path.empty() || Spawn(path, words, -1, -1, &pid) != 0) return -1;
  int status = 0;
  while (waitpid(pid, &status, 0) < 0) {
    if (errno != EINTR) return -1;
  }
  return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

absl::Status ServiceRunner::Once(const ServiceStep& step) const {
  if (step.command.empty()) return WriteFile(step);
  const CommandResult result = Run(step.command);
  if (result.code == 0 || step.may_fail) return absl::OkStatus();
  const std::string words(absl::StripAsciiWhitespace(result.errors));
  return absl::InternalError(absl::StrCat(
      ShellLine(step.command), result.code < 0 ? "" : absl::StrCat(": exit ", result.code),
      words.empty() ? "" : ": ", words));
}

absl::Status ServiceRunner::Carry(const ServiceStep& step) const {
  absl::Status done = Once(step);
  for (int tried = 0; !done.ok() && tried < step.patience_s; ++tried) {
    std::this_thread::sleep_for(std::chrono::seconds(1));
    done = Once(step);
  }
  return done;
}

}  // namespace macrame::cli
