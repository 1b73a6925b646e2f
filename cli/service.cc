#include <fcntl.h>
#include <grp.h>
#include <pwd.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <chrono>
#include <filesystem>
#include <memory>
#include <thread>

#include "absl/strings/str_cat.h"
#include "cli/command.h"
#include "cli/service/service_plan.h"
#include "cli/service/service_state.h"
#include "cli/service_runner.h"
#include "proto/reasons.h"
#include "transport/private_file.h"
#include "transport/program_path.h"
#include "transport/regular_file.h"
#include "transport/trust.h"

namespace macrame::cli {
namespace {

namespace fs = std::filesystem;

// Longer than the old agent may take to end under launchd (ExitTimeOut).
constexpr std::chrono::seconds kStartLimit{60};
constexpr std::chrono::milliseconds kAskInterval{200};
constexpr uint32_t kJournalLinesMax = 10000;

struct ServiceOptions {
  std::string manager;
  ServiceSettings settings;
  bool new_state = false;
  bool dry_run = false;
  uint32_t lines = 100;
  bool follow = false;
};

absl::Status Trouble(absl::StatusCode status, const std::string& message, const std::string& next) {
  return absl::Status(status, absl::StrCat(message, ": ", next));
}

ServiceManager ManagerOf(const ServiceOptions& options) {
#ifdef __APPLE__
  const bool launchd = options.manager != "systemd";
#else
  const bool launchd = options.manager == "launchd";
#endif
  return launchd ? ServiceManager::kLaunchd : ServiceManager::kSystemd;
}

absl::Status CheckRoot(const std::string& what) {
  if (geteuid() == 0) return absl::OkStatus();
  return ReasonStatus(absl::StatusCode::kPermissionDenied, reasons::kNotRoot,
                      absl::StrCat("the service is ", what, " as root only"));
}

bool IsThere(const std::string& path) {
  std::error_code error;
  return fs::exists(path, error);
}

std::string OwnerOf(const std::string& path) {
  struct stat info {};
  if (::stat(path.c_str(), &info) != 0) return "";
  const passwd* user = ::getpwuid(info.st_uid);
  return user == nullptr ? "" : user->pw_name;
}

std::string GroupOf(const std::string& path) {
  struct stat info {};
  if (::stat(path.c_str(), &info) != 0) return "";
  const group* found = ::getgrgid(info.st_gid);
  return found == nullptr ? "" : found->gr_name;
}

// An earlier install's user and group stay, since the state belongs to them. Else on Linux a user
// of the service's own; on a Mac, where that takes more than a command, whoever typed sudo.
absl::Status ChooseUser(const Invocation& run, ServiceSettings* settings) {
  const bool launchd = settings->manager == ServiceManager::kLaunchd;
  const ServicePlaces places = PlacesOf(settings->manager);
  const std::string typed = run.environment.variable("SUDO_USER");
  const std::string owner = OwnerOf(places.state);
  if (!owner.empty() && !settings->user.empty() && owner != settings->user) {
    return Trouble(absl::StatusCode::kFailedPrecondition,
                   absl::StrCat("the state in ", places.state, " belongs to the user ", owner,
                                ", and --user names ", settings->user),
                   absl::StrCat("leave --user out, or give the folders to that user first"));
  }
  if (!owner.empty()) settings->user = owner;
  if (settings->group.empty()) settings->group = GroupOf(places.models);
  if (settings->user.empty()) settings->user = launchd ? typed : "macrame";
  if (settings->group.empty()) settings->group = launchd ? "admin" : "macrame";
  if (settings->user.empty() || settings->user == "root") {
    return Trouble(absl::StatusCode::kInvalidArgument,
                   "the agent doesn't run as root, and nobody else is named",
                   "name the user whose models it serves with --user");
  }
  if (launchd && ::getpwnam(settings->user.c_str()) == nullptr &&
      run.environment.variable("MACRAME_COMMANDS_FOLDER").empty()) {
    return Trouble(absl::StatusCode::kNotFound,
                   absl::StrCat("this Mac has no user ", settings->user),
                   "name one that it has with --user");
  }
  if (!launchd && typed != "root" && typed != settings->user) settings->member = typed;
  return absl::OkStatus();
}

bool IsMember(const std::string& user, const std::string& group_name) {
  const group* found = ::getgrnam(group_name.c_str());
  for (char** name = found == nullptr ? nullptr : found->gr_mem;
       name != nullptr && *name != nullptr; ++name) {
    if (user == *name) return true;
  }
  return false;
}

ServiceFound WhatIsThere(const ServiceSettings& settings, const ServiceRunner& runner) {
  const ServicePlaces places = PlacesOf(settings.manager);
  ServiceFound found;
  found.user = ::getpwnam(settings.user.c_str()) != nullptr;
  found.group = ::getgrnam(settings.group.c_str()) != nullptr;
  found.member = IsMember(settings.member, settings.group);
  found.settings = IsThere(places.settings);
  found.programs = IsThere(places.programs);
  found.unit = IsThere(places.unit);
  found.mlx = IsThere(settings.built + "/mlx/lib");
  found.mlx_libs = IsThere(settings.built + "/mlx_cpu.libs");
  if (settings.manager == ServiceManager::kLaunchd) {
    found.loaded = runner.Run(StateCommand(settings.manager)).code == 0;
  }
  return found;
}

constexpr char kStateFile[] = "/state.db";  // that every state folder has

// The folder of an agent that whoever typed this started by hand; "": there is none.
std::string StateOfHandStarted(const Environment& environment) {
  std::string home = environment.variable("HOME");
  const std::string typed = environment.variable("SUDO_USER");
  if (const passwd* user = typed.empty() ? nullptr : ::getpwnam(typed.c_str())) {
    home = user->pw_dir;
  }
  const std::string state = home + "/.macrame/state";
  return !home.empty() && IsThere(state + kStateFile) ? state : "";
}

// The agent that has this folder, as its lock says; "": none has.
std::string HolderOf(const std::string& state) {
  const int lock = ::open((state + "/state.lock").c_str(), O_RDWR | O_CLOEXEC);
  if (lock < 0) return "";
  const bool is_free = ::flock(lock, LOCK_EX | LOCK_NB) == 0;
  char pid[24] = {};
  const bool is_told = !is_free && ::pread(lock, pid, sizeof(pid) - 1, 0) > 0;
  ::close(lock);
  if (is_free) return "";
  return is_told ? absl::StrCat("process ", pid) : "a process";
}

// Its secret and membership go along: as its record says, else where agents look by default.
void FindMembership(ServiceSettings* settings) {
  const fs::path state = settings->taken_state;
  fs::path secret = state.parent_path() / "cluster.secret";
  const std::string record_path = (state / "membership.json").string();
  const std::string text =
      transport::ReadRegularFile(record_path, transport::kPrivateFileBytesMax).value_or("");
  const Json record = Json::parse(text, nullptr, /*allow_exceptions=*/false);
  if (record.is_object() && record.contains("cluster_secret_file") &&
      record["cluster_secret_file"].is_string()) {
    secret = record["cluster_secret_file"].get<std::string>();
  }
  if (settings->secret_file.empty() && IsThere(secret)) settings->secret_file = secret;
  const std::string membership = transport::NodeMembershipPath(secret);
  if (IsThere(membership)) settings->taken_membership = membership;
}

absl::Status CheckTakenState(const ServiceOptions& options, const ServicePlaces& places) {
  const std::string& state = options.settings.taken_state;
  if (!IsThere(state + kStateFile)) {
    return Trouble(absl::StatusCode::kNotFound, absl::StrCat(state, " is no agent's state folder"),
                   "an agent keeps its state in ~/.macrame/state, or where its state_folder says");
  }
  if (IsThere(places.state + kStateFile)) {
    return Trouble(absl::StatusCode::kAlreadyExists,
                   absl::StrCat("the service has a state already, in ", places.state),
                   "leave --state out, or remove that folder first");
  }
  if (const std::string holder = HolderOf(state); !holder.empty()) {
    return Trouble(absl::StatusCode::kFailedPrecondition,
                   absl::StrCat("an agent (", holder, ") still uses ", state),
                   "stop that agent first: one node can't have two");
  }
  return absl::OkStatus();
}

// A first install beside a state that is there: a new node, which the cluster does not know, is
// seldom what is wanted. "": nothing is to be said.
std::string StateLeftBehind(const Environment& environment, const ServiceOptions& options) {
  const bool is_said = options.new_state || !options.settings.taken_state.empty();
  if (is_said || IsThere(PlacesOf(options.settings.manager).state + kStateFile)) return "";
  const std::string state = StateOfHandStarted(environment);
  if (state.empty()) return "";
  return absl::StrCat("an agent that was started by hand has its node id and membership in ", state,
                      ", and the service would begin as a new node");
}

// What can't be done is found out before anything is.
absl::Status CheckInstall(const ServiceOptions& options, const ServiceFound& found) {
  const ServiceSettings& settings = options.settings;
  const ServicePlaces places = PlacesOf(settings.manager);
  for (const std::string& program : InstalledPrograms()) {
    const std::string path = absl::StrCat(settings.built, "/bin/", program);
    if (access(path.c_str(), X_OK) == 0) continue;
    return Trouble(absl::StatusCode::kNotFound,
                   absl::StrCat("there is no program ", path, " to install"),
                   "build it: ninja -C build/release programs");
  }
  if (!settings.taken_state.empty()) {
    if (absl::Status taken = CheckTakenState(options, places); !taken.ok()) return taken;
  }
  if (found.settings && !settings.model_folders.empty()) {
    return Trouble(absl::StatusCode::kFailedPrecondition,
                   absl::StrCat("settings are there already, and --models would change them"),
                   absl::StrCat("write the folder into model_folders in ", places.settings));
  }
  if (!settings.secret_file.empty() && !IsThere(settings.secret_file)) {
    return Trouble(absl::StatusCode::kNotFound,
                   absl::StrCat("there is no secret file ", settings.secret_file),
                   "'clusterctl cluster init --out FILE' makes one");
  }
  if (!settings.secret_file.empty() && IsThere(places.state + "/cluster.secret")) {
    return Trouble(
        absl::StatusCode::kAlreadyExists,
        absl::StrCat("the service has a secret already: ", places.state, "/cluster.secret"),
        "leave --secret out, or remove that file first");
  }
  return absl::OkStatus();
}

// What these programs need stays Homebrew's, though they are copied. "": nothing is to be said.
std::string WhatHomebrewMayTake(const ServiceSettings& settings) {
  if (settings.manager != ServiceManager::kLaunchd) return "";
  const std::string library = HomebrewLibraryOf(
      transport::ReadBeginning(settings.built + "/bin/agentd", kMachHeaderBytesMax).value_or(""));
  if (library.empty()) return "";
  return absl::StrCat(
      "warning: these programs load Homebrew's libraries (", Printable(library),
      " and others), which 'brew upgrade' replaces: the service then stops at its next start\n  "
      "next:   'brew pin grpc protobuf abseil' keeps them; else build and install again after each "
      "upgrade, or install from the archive for Macs, whose programs need none of them\n");
}

// Each step is said before it is taken; of a failure, how all before it is taken back.
int CarryOut(const Invocation& run, const ServiceRunner& runner,
             const std::vector<ServiceStep>& steps) {
  std::vector<ServiceStep> done;
  for (const ServiceStep& step : steps) {
    if (!run.options.quiet) *run.environment.err << step.what << "\n" << std::flush;
    const absl::Status status = runner.Carry(step);
    if (!status.ok()) {
      *run.environment.err << "error: can't " << step.what << ": "
                           << Printable(std::string(status.message())) << "\n"
                           << UndoText(done);
      return kExitFailure;
    }
    done.push_back(step);
  }
  return kExitOk;
}

// It ended since `before`, and is not started again: a wrong setting, as a rule.
bool GaveUp(ServiceManager manager, const ServiceState& before, const ServiceState& now) {
  if (!now.known || now.running) return false;
  if (manager == ServiceManager::kSystemd) return now.exit_code == 2;
  return now.exit_code == 0 && now.starts > before.starts;
}

// Another process than `before`, since launchd lets the old one end in its own time.
bool Answers(ServiceManager manager, const ServiceRunner& runner, const ServiceState& before) {
  const auto deadline = std::chrono::steady_clock::now() + kStartLimit;
  while (std::chrono::steady_clock::now() < deadline) {
    const ServiceState now = ReadState(manager, runner.Run(StateCommand(manager)).output);
    if (GaveUp(manager, before, now)) return false;
    if (now.running && now.pid != 0 && now.pid != before.pid) {
      AgentClient client(AgentPlace{PlacesOf(manager).socket, "", ""});
      if (client.GetStatus().ok()) return true;
    }
    std::this_thread::sleep_for(kAskInterval);
  }
  return false;
}

int ReportStart(const Invocation& run, ServiceManager manager, const ServiceRunner& runner,
                const ServiceState& before) {
  const std::string socket = PlacesOf(manager).socket;
  if (!Answers(manager, runner, before)) {
    *run.environment.err
        << "error: the service is there, and its agent does not answer at " << socket
        << "\n  next:   'sudo /opt/macrame/bin/clusterctl service logs' says why; once that is "
           "set right, 'sudo /opt/macrame/bin/clusterctl service restart'\n";
    return kExitUnreachable;
  }
  *run.environment.out << "The agent runs and answers at " << socket << "\n";
  return kExitOk;
}

int RunInstall(const Invocation& run, const ServiceOptions& given) {
  // What is copied can be read by the service's user, whatever this shell keeps from others.
  ::umask(022);
  ServiceOptions options = given;
  ServiceSettings& settings = options.settings;
  settings.manager = ManagerOf(options);
  if (settings.built.empty()) {
    settings.built =
        fs::path(transport::ProgramBesideThis("agentd")).parent_path().parent_path().string();
  }
  for (std::string& folder : settings.model_folders) folder = fs::absolute(folder).string();
  if (!settings.taken_state.empty()) {
    settings.taken_state = fs::absolute(settings.taken_state).lexically_normal().string();
    if (settings.taken_state.ends_with('/')) settings.taken_state.pop_back();
    FindMembership(&settings);
  }
  const absl::Status user = ChooseUser(run, &settings);
  if (!user.ok()) return run.Fail(user);
  const ServiceRunner runner(run.environment);
  const ServiceFound found = WhatIsThere(settings, runner);
  const absl::Status possible = CheckInstall(options, found);
  if (!possible.ok()) return run.Fail(possible);
  const std::vector<ServiceStep> steps = InstallSteps(settings, found);
  *run.environment.err << WhatHomebrewMayTake(settings);
  const std::string left_behind = StateLeftBehind(run.environment, options);
  constexpr char kChoice[] =
      "stop that agent and add --state FOLDER to take it over, or --new-state to begin anew";
  if (options.dry_run) {
    if (!left_behind.empty()) *run.environment.err << left_behind << ": " << kChoice << "\n";
    *run.environment.out << StepsText(steps);
    return kExitOk;
  }
  const absl::Status root = CheckRoot("installed");
  if (!root.ok()) return run.Fail(root);
  if (!left_behind.empty()) {
    return run.Fail(Trouble(absl::StatusCode::kFailedPrecondition, left_behind, kChoice));
  }
  const int code = CarryOut(run, runner, steps);
  if (code != kExitOk) return code;
  const ServicePlaces places = PlacesOf(settings.manager);
  *run.environment.out << (found.programs ? "Upgraded" : "Installed") << ": " << places.label
                       << ", as the user " << settings.user << "\n  settings  " << places.settings
                       << "\n  models    " << places.models << "\n  programs  " << places.programs
                       << "/bin\n";
  if (!settings.member.empty()) {
    *run.environment.out << settings.member << " may open its socket, from the next login on\n";
  }
  return ReportStart(run, settings.manager, runner, ServiceState());
}

int RunUninstall(const Invocation& run, const ServiceOptions& options) {
  const ServiceManager manager = ManagerOf(options);
  const ServicePlaces places = PlacesOf(manager);
  const ServiceRunner runner(run.environment);
  ServiceSettings settings;
  settings.manager = manager;
  const ServiceFound found = WhatIsThere(settings, runner);
  const std::vector<ServiceStep> steps = UninstallSteps(manager, found);
  if (options.dry_run) {
    *run.environment.out << StepsText(steps);
    return kExitOk;
  }
  const absl::Status root = CheckRoot("removed");
  if (!root.ok()) return run.Fail(root);
  if (!found.unit && !found.programs) {
    return run.Fail(Trouble(absl::StatusCode::kNotFound, "no service is installed",
                            "'sudo clusterctl service install' installs it"));
  }
  const std::string owner = OwnerOf(places.state);
  const int code = CarryOut(run, runner, steps);
  if (code != kExitOk) return code;
  *run.environment.out << "The service is removed. Left: the data in " << places.data
                       << " (node id, secret or membership, models), the settings "
                       << places.settings << " and the logs in " << places.logs
                       << ", which another install goes on with.\nTo remove them too, as root:\n  "
                       << ShellLine({"rm", "-r", places.data, places.settings, places.logs})
                       << "\n";
  if (manager == ServiceManager::kSystemd && owner == "macrame") {
    *run.environment.out << "  userdel macrame\n";
  }
  return kExitOk;
}

int RunRestart(const Invocation& run, const ServiceOptions& options) {
  const ServiceManager manager = ManagerOf(options);
  const ServiceRunner runner(run.environment);
  ServiceSettings settings;
  settings.manager = manager;
  const std::vector<ServiceStep> steps = RestartSteps(manager, WhatIsThere(settings, runner));
  if (options.dry_run) {
    *run.environment.out << StepsText(steps);
    return kExitOk;
  }
  const absl::Status root = CheckRoot("restarted");
  if (!root.ok()) return run.Fail(root);
  const ServiceState before = ReadState(manager, runner.Run(StateCommand(manager)).output);
  const int code = CarryOut(run, runner, steps);
  return code == kExitOk ? ReportStart(run, manager, runner, before) : code;
}

std::string StateLine(const ServiceState& state) {
  std::string line = state.state;
  if (state.pid > 0) absl::StrAppend(&line, ", pid ", state.pid);
  if (!state.since.empty()) absl::StrAppend(&line, ", since ", state.since);
  if (state.starts > 1) absl::StrAppend(&line, ", started ", state.starts, " times");
  if (!state.running && state.exit_code >= 0) {
    absl::StrAppend(&line, ", ended with ", state.exit_code);
  }
  return line;
}

void PrintService(const Invocation& run, const ServicePlaces& places, const ServiceState& state,
                  const absl::StatusOr<v1::ClusterStatus>& agent) {
  std::ostream& out = *run.environment.out;
  out << "Service    " << places.label << ": " << Printable(StateLine(state)) << "\n"
      << "At boot    " << (state.at_boot ? "started" : "not started") << "\n";
  if (agent.ok()) {
    size_t alive = 0;
    for (const v1::NodeStatus& node : agent->nodes()) {
      alive += node.state() == v1::NODE_STATE_ALIVE ? 1 : 0;
    }
    out << "Agent      answers at " << places.socket << "; " << alive << " of "
        << Plural(static_cast<uint64_t>(agent->nodes_size()), "node") << " alive\n";
  } else {
    out << "Agent      " << Printable(std::string(agent.status().message())) << "\n";
  }
  out << "Settings   " << places.settings << "\nData       " << places.data << "\nPrograms   "
      << places.programs << "\nLog        " << places.log << "\n";
}

int RunStatus(const Invocation& run, const ServiceOptions& options) {
  const ServiceManager manager = ManagerOf(options);
  const ServicePlaces places = PlacesOf(manager);
  const ServiceRunner runner(run.environment);
  const ServiceState state = ReadState(manager, runner.Run(StateCommand(manager)).output);
  if (!state.known && !IsThere(places.unit)) {
    return run.Fail(Trouble(absl::StatusCode::kNotFound, "no service is installed on this machine",
                            "'sudo clusterctl service install' installs it"));
  }
  AgentClient client(AgentPlace{places.socket, "", ""});
  const auto agent = client.GetStatus();
  if (run.wants_table()) {
    PrintService(run, places, state, agent);
  } else {
    Json document = Document("ServiceStatus");
    document["label"] = places.label;
    document["state"] = state.state;
    document["running"] = state.running;
    document["at_boot"] = state.at_boot;
    document["pid"] = state.pid;
    document["exit_code"] = state.exit_code;
    document["answers"] = agent.ok();
    document["socket"] = places.socket;
    document["settings"] = places.settings;
    document["data"] = places.data;
    document["log"] = places.log;
    run.PrintDocument(document);
  }
  if (!state.running) return kExitConflict;
  return agent.ok() ? kExitOk : ExitCodeOf(agent.status());
}

// All that was said: systemd's journal has it, on a Mac what comes before the agent's own log has a
// file of its own.
int RunServiceLogs(const Invocation& run, const ServiceOptions& options) {
  const ServiceManager manager = ManagerOf(options);
  const ServicePlaces places = PlacesOf(manager);
  const ServiceRunner runner(run.environment);
  const ServiceState state = ReadState(manager, runner.Run(StateCommand(manager)).output);
  if (!state.known && !IsThere(places.unit)) {
    return run.Fail(Trouble(absl::StatusCode::kNotFound, "no service is installed on this machine",
                            "'clusterctl logs' asks an agent that runs otherwise"));
  }
  const std::string lines = absl::StrCat(options.lines);
  std::vector<std::string> command = {"journalctl", "--no-pager", "-u", places.label, "-n", lines};
  if (manager == ServiceManager::kLaunchd) command = {"tail", "-n", lines};
  if (options.follow) command.push_back(manager == ServiceManager::kLaunchd ? "-F" : "-f");
  if (manager == ServiceManager::kLaunchd) {
    for (const std::string& file : {places.errors, places.log}) {
      if (access(file.c_str(), R_OK) == 0) command.push_back(file);
    }
    if (command.back() != places.errors && command.back() != places.log) {
      return run.Fail(
          Trouble(absl::StatusCode::kNotFound,
                  absl::StrCat("there is no log in ", places.logs, " that this user may read"),
                  "run it with sudo; 'clusterctl logs' asks the agent"));
    }
  }
  const int code = runner.RunInFront(command);
  if (code >= 0) return code;
  return run.Fail(Trouble(absl::StatusCode::kInternal,
                          absl::StrCat("the command ", command[0], " can't be run here"),
                          absl::StrCat("read ", places.log, ", as root")));
}

}  // namespace

void AddService(CommandTree& tree) {
  CLI::App* group =
      tree.Add(tree.root, "service", "Run the agent as a service that starts at boot");
  group->require_subcommand(1);
  auto options = std::make_shared<ServiceOptions>();
  group
      ->add_option("--manager", options->manager,
                   "Service manager: systemd or launchd (default: this machine's)")
      ->check(CLI::IsMember({"systemd", "launchd"}));
  CLI::App* install = tree.Add(group, "install", "Install or upgrade the service (as root)");
  install
      ->add_option("--models", options->settings.model_folders,
                   "Another folder of models; repeatable")
      ->type_name("FOLDER")
      ->check(NamesSomething);
  install
      ->add_option("--secret", options->settings.secret_file,
                   "Secret file of the cluster, to be copied (else: 'cluster join')")
      ->type_name("FILE");
  install
      ->add_option("--state", options->settings.taken_state,
                   "State folder to take over from an agent that was started by hand")
      ->type_name("FOLDER")
      ->check(NamesSomething);
  install->add_flag("--new-state", options->new_state,
                    "Begin as a new node, even if another agent has a state folder here");
  install
      ->add_option("--user", options->settings.user,
                   "User that runs the service (Linux: macrame; macOS: who called sudo)")
      ->type_name("USER");
  install
      ->add_option("--group", options->settings.group,
                   "Group that may use it without sudo (Linux: macrame; macOS: admin)")
      ->type_name("GROUP");
  install
      ->add_option("--from", options->settings.built,
                   "Folder with bin/ to install from (default: this clusterctl's)")
      ->type_name("FOLDER");
  tree.OnChosen(install, [options](const Invocation& run) { return RunInstall(run, *options); });
  CLI::App* uninstall =
      tree.Add(group, "uninstall", "Remove the service but keep its data (as root)");
  tree.OnChosen(uninstall,
                [options](const Invocation& run) { return RunUninstall(run, *options); });
  CLI::App* status =
      tree.Add(group, "status", "Show whether it runs, whether its agent answers, and its files");
  tree.OnChosen(status, [options](const Invocation& run) { return RunStatus(run, *options); });
  CLI::App* restart = tree.Add(group, "restart", "Restart the service (as root)");
  tree.OnChosen(restart, [options](const Invocation& run) { return RunRestart(run, *options); });
  for (CLI::App* command : {install, uninstall, restart}) {
    command->add_flag("--dry-run", options->dry_run, "Print commands and files; change nothing");
  }
  CLI::App* logs = tree.Add(group, "logs", "Show the service's log, also if it failed to start");
  logs->add_option("-n,--lines", options->lines, "Number of lines to start with (default: 100)")
      ->check(CLI::Range(1u, kJournalLinesMax));
  logs->add_flag("-f,--follow", options->follow, "Follow new lines until Ctrl-C");
  tree.OnChosen(logs, [options](const Invocation& run) { return RunServiceLogs(run, *options); });
}

}  // namespace macrame::cli
