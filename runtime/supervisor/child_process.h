#pragma once

// One child process: started with a pipe for its stdin, its output read to the end, its exit told
// to the owner thread. It leads a process group of its own; signals go to the whole group.
//
// Two threads stand behind each: one waits for the exit, one reads the output. They share nothing
// with the owner thread but what they Post.

#include <sys/types.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "absl/status/statusor.h"
#include "runtime/supervisor/rank_log.h"
#include "transport/dispatcher.h"

namespace macrame::runtime {

inline constexpr int kInheritedFdFirst = 3;

struct ProcessCommand {
  std::vector<std::string> arguments;    // [0] is the program's path
  std::vector<std::string> environment;  // "NAME=value"
  // Open descriptors that the process gets as kInheritedFdFirst, the next number, …; these stay
  // the caller's.
  std::vector<int> inherited{};
  std::string log_path;
  uint64_t log_bytes_max = 0;
  FullLog full_log = FullLog::kIsPutAside;
  size_t last_lines_max = 0;
};

struct ProcessExit {
  int code = 0;            // when it ended by itself
  int signal = 0;          // when a signal ended it
  std::string last_lines;  // the last lines of stderr; of stdout when stderr was silent
};

class ChildProcess {
 public:
  // `on_exit` runs once on the owner thread, unless the object has gone by then.
  static absl::StatusOr<std::unique_ptr<ChildProcess>> Start(
      const ProcessCommand& command, transport::Dispatcher* dispatcher,
      std::function<void(const ProcessExit&)> on_exit);

  // Owner thread. Kills the group when it still runs, and waits for its end.
  ~ChildProcess();
  ChildProcess(const ChildProcess&) = delete;
  ChildProcess& operator=(const ChildProcess&) = delete;

  pid_t pid() const { return pid_; }
  // To the whole group; nothing happens once on_exit has run.
  void Signal(int signal);

 private:
  ChildProcess() = default;
  void Exited(int code, int signal, const std::string& last_lines);
  void Reap();

  pid_t pid_ = -1;
  bool reaped_ = false;
  int stdin_fd_ = -1;
  std::function<void(const ProcessExit&)> on_exit_;
  std::thread waiter_;
  std::shared_ptr<ChildProcess*> self_;  // emptied by the destructor; read on the owner thread only
};

}  // namespace macrame::runtime
