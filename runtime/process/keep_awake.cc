#include "runtime/process/keep_awake.h"

#include <fcntl.h>
#include <spawn.h>
#include <unistd.h>

#include <cstring>
#include <string>

#include "absl/strings/str_cat.h"
#include "transport/spawn_attributes.h"

extern char** environ;

namespace macrame::runtime::engine {

absl::Status KeepAwakeWhileRunning(const std::string& program) {
  const transport::SpawnAttributes attributes(transport::SpawnAttributes::Group::kParents);
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_addopen(&actions, STDIN_FILENO, "/dev/null", O_RDONLY, 0);
  posix_spawn_file_actions_addopen(&actions, STDOUT_FILENO, "/dev/null", O_WRONLY, 0);
  posix_spawn_file_actions_addopen(&actions, STDERR_FILENO, "/dev/null", O_WRONLY, 0);
#ifdef __GLIBC__
  posix_spawn_file_actions_addclosefrom_np(&actions, STDERR_FILENO + 1);
#endif
  std::string path = program, sleep = "-s", wait = "-w", pid = std::to_string(getpid());
  char* arguments[] = {path.data(), sleep.data(), wait.data(), pid.data(), nullptr};
  pid_t child = 0;
  const int error =
      posix_spawn(&child, path.c_str(), &actions, attributes.get(), arguments, environ);
  posix_spawn_file_actions_destroy(&actions);
  if (error == 0) return absl::OkStatus();
  return absl::NotFoundError(absl::StrCat(program, " can't be started: ", std::strerror(error)));
}

}  // namespace macrame::runtime::engine
