#pragma once

// One real agentd, started, watched and killed by its process id.

#include <sys/types.h>

#include <optional>
#include <string>
#include <vector>

namespace macrame::tests {

class AgentProcess {
 public:
  // `folder` is made; it holds config, state, socket and log. Settings are "key: value" lines.
  AgentProcess(std::string folder, std::vector<std::string> settings);
  // Kills what still runs.
  ~AgentProcess();
  AgentProcess(const AgentProcess&) = delete;
  AgentProcess& operator=(const AgentProcess&) = delete;

  void Start();
  // Sends the signal and waits until the process is gone.
  void Kill(int signal);
  // The exit code (128 + signal when it was killed), waiting at most `limit_ms`; nullopt: still
  // running.
  std::optional<int> WaitForExit(int limit_ms);
  bool IsRunning();

  pid_t pid() const { return pid_; }
  std::string socket_path() const { return folder_ + "/a.sock"; }
  std::string log_path() const { return folder_ + "/agentd.log"; }
  const std::string& folder() const { return folder_; }
  std::string Log() const;
  // From /proc: kB of resident memory and seconds of CPU so far.
  double ResidentMiB() const;
  double CpuSeconds() const;

 private:
  std::string folder_;
  pid_t pid_ = 0;
  std::optional<int> exit_code_;
};

std::string ReadWholeFile(const std::string& path);

}  // namespace macrame::tests
