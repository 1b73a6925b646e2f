#pragma once

// What `clusterctl service` does, as text and steps: pure, held by tests/golden. cli/service.cc
// finds out what is there (ServiceFound) and carries the steps out.

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

namespace macrame::cli {

enum class ServiceManager { kSystemd, kLaunchd };

// Where everything of the service is; the same on every machine of one kind.
struct ServicePlaces {
  std::string label;     // what systemd or launchd calls it
  std::string unit;      // its unit or property list
  std::string programs;  // bin/, mlx/: replaced by every install, nobody's but root's
  std::string settings;  // agentd.yaml: written once, then the user's
  std::string data;      // what uninstall leaves: state (with secret or membership) and models
  std::string state;
  std::string models;
  std::string logs;    // folder
  std::string log;     // what agentd writes and rotates
  std::string errors;  // launchd: what comes before that log; "" where the journal has it
  std::string socket;
};
ServicePlaces PlacesOf(ServiceManager manager);

struct ServiceSettings {
  ServiceManager manager = ServiceManager::kSystemd;
  std::string user;                        // whom the agent runs as
  std::string group;                       // who may open its socket
  std::string member;                      // becomes one of the group; "": nobody
  std::vector<std::string> model_folders;  // besides the service's own
  std::string secret_file;                 // copied into the state folder; "": none
  // Of an agent that was started by hand and has ended: the service goes on as the same node. "":
  // the service keeps its own.
  std::string taken_state;
  std::string taken_membership;  // "node.membership" beside that agent's secret; "": none
  std::string built;             // the folder whose bin/ and mlx/ are installed
};

// What is there before anything is done.
struct ServiceFound {
  bool user = false;  // of that name
  bool group = false;
  bool member = false;  // is in the group
  bool settings = false;
  bool programs = false;  // of an earlier install
  bool unit = false;
  bool loaded = false;    // launchd knows it
  bool mlx = false;       // `built` has an mlx/ of its own
  bool mlx_libs = false;  // and mlx_cpu.libs beside it
};

// One thing to do: a command, or a file to write.
struct ServiceStep {
  std::string what;                  // "make the user macrame"
  std::vector<std::string> command;  // its words; empty: write `text` to `path`
  std::string path;
  std::string text;
  int mode = 0644;
  std::string user;  // whose the file is; "": root's
  std::string group;
  // The command line that takes it back; "": nothing is left of it.
  std::string undo;
  // A failure is tried again each second for so long: launchd lets go of a daemon slowly.
  int patience_s = 0;
  bool may_fail = false;
};

// The files, each ending in a line feed.
std::string SystemdUnit(const ServiceSettings& settings);
std::string LaunchdPlist(const ServiceSettings& settings);
std::string AgentSettings(const ServiceSettings& settings);
// Rotates what launchd collects of the agent's standard error.
std::string NewsyslogRules(const ServiceSettings& settings);

// Those that a service has in its bin/, as the packages have: cmake/install_rules.cmake's list.
std::vector<std::string> InstalledPrograms();
// Of a Mac's program, its file or the first kMachHeaderBytesMax of it: a library of Homebrew's that
// it loads, by its path. `brew upgrade` replaces those. "": it loads none, or is no Mac's program.
// (mach-o/loader.h: a header of 32 bytes, then the load commands, whose size stands at byte 20.)
inline constexpr size_t kMachHeaderBytesMax = 64 << 10;
std::string HomebrewLibraryOf(std::string_view program);

// Installs, or upgrades what is there; settings, state and models stay.
std::vector<ServiceStep> InstallSteps(const ServiceSettings& settings, const ServiceFound& found);
// Leaves settings, data and logs, and the user who owns them.
std::vector<ServiceStep> UninstallSteps(ServiceManager manager, const ServiceFound& found);
std::vector<ServiceStep> RestartSteps(ServiceManager manager, const ServiceFound& found);

// As a shell takes it.
std::string ShellLine(const std::vector<std::string>& words);
// What --dry-run prints: each step as a shell would do it, files in full.
std::string StepsText(const std::vector<ServiceStep>& steps);
// After a step failed: what was done before it, and how it is taken back, last thing first.
std::string UndoText(const std::vector<ServiceStep>& done);

}  // namespace macrame::cli
