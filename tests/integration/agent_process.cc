#include "tests/integration/agent_process.h"

#include <fcntl.h>
#include <signal.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <thread>

#include "proto/check.h"

extern char** environ;

namespace macrame::tests {

std::string ReadWholeFile(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  std::ostringstream text;
  text << file.rdbuf();
  return text.str();
}

AgentProcess::AgentProcess(std::string folder, std::vector<std::string> settings)
    : folder_(std::move(folder)) {
  std::filesystem::create_directories(folder_);
  std::ofstream config(folder_ + "/agentd.yaml");
  config << "state_folder: " << folder_ << "/s\nsocket_path: " << socket_path()
         << "\nlog_file: " << log_path() << "\n";
  for (const std::string& setting : settings) config << setting << "\n";
}

AgentProcess::~AgentProcess() {
  if (IsRunning()) Kill(SIGKILL);
}

void AgentProcess::Start() {
  MACRAME_CHECK(!IsRunning()) << "it runs already";
  exit_code_.reset();
  const std::string binary = MACRAME_BIN "/agentd";
  const std::string config = folder_ + "/agentd.yaml";
  const std::string out = folder_ + "/out.log";
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_addopen(&actions, 0, "/dev/null", O_RDONLY, 0);
  posix_spawn_file_actions_addopen(&actions, 1, out.c_str(), O_WRONLY | O_CREAT | O_APPEND, 0600);
  posix_spawn_file_actions_adddup2(&actions, 1, 2);
  std::vector<std::string> words = {binary, "--config", config};
  std::vector<char*> argv;
  for (std::string& word : words) argv.push_back(word.data());
  argv.push_back(nullptr);
  const int error = posix_spawn(&pid_, binary.c_str(), &actions, nullptr, argv.data(), environ);
  posix_spawn_file_actions_destroy(&actions);
  MACRAME_CHECK(error == 0) << binary << " can't be started";
}

bool AgentProcess::IsRunning() { return pid_ != 0 && !WaitForExit(0).has_value(); }

std::optional<int> AgentProcess::WaitForExit(int limit_ms) {
  if (exit_code_.has_value()) return exit_code_;
  const auto end = std::chrono::steady_clock::now() + std::chrono::milliseconds(limit_ms);
  while (true) {
    int status = 0;
    const pid_t got = ::waitpid(pid_, &status, WNOHANG);
    if (got == pid_) {
      exit_code_ = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
      return exit_code_;
    }
    if (std::chrono::steady_clock::now() >= end) return std::nullopt;
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  }
}

void AgentProcess::Kill(int signal) {
  ::kill(pid_, signal);
  MACRAME_CHECK(WaitForExit(15'000).has_value()) << "agentd did not end after signal " << signal;
}

std::string AgentProcess::Log() const { return ReadWholeFile(folder_ + "/out.log"); }

double AgentProcess::ResidentMiB() const {
  std::istringstream statm(ReadWholeFile("/proc/" + std::to_string(pid_) + "/statm"));
  double total = 0;
  double resident = 0;
  statm >> total >> resident;
  return resident * static_cast<double>(::sysconf(_SC_PAGESIZE)) / (1 << 20);
}

double AgentProcess::CpuSeconds() const {
  const std::string stat = ReadWholeFile("/proc/" + std::to_string(pid_) + "/stat");
  const size_t name_end = stat.rfind(')');
  if (name_end == std::string::npos) return 0;
  std::istringstream fields(stat.substr(name_end + 2));
  std::string skipped;
  for (int i = 0; i < 11; ++i) fields >> skipped;
  double user = 0;
  double system = 0;
  fields >> user >> system;
  return (user + system) / static_cast<double>(::sysconf(_SC_CLK_TCK));
}

}  // namespace macrame::tests
