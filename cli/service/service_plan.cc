#include "cli/service/service_plan.h"

#include <algorithm>
#include <array>
#include <cctype>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/str_split.h"
#include "transport/unix_socket.h"

namespace macrame::cli {
namespace {

using Steps = std::vector<ServiceStep>;

// launchd may still wait for the old agent's end (ExitTimeOut).
constexpr int kBootstrapPatienceS = 60;
constexpr size_t kLibraryPathBytesMax = 256;

constexpr char kSystemdLabel[] = "macrame.service";
constexpr char kLaunchdLabel[] = "macrame.agentd";
constexpr char kNewsyslogFile[] = "/etc/newsyslog.d/macrame.conf";

ServiceStep Do(std::string what, std::vector<std::string> command, std::string undo = "") {
  ServiceStep step;
  step.what = std::move(what);
  step.command = std::move(command);
  step.undo = std::move(undo);
  return step;
}

ServiceStep Write(std::string what, std::string path, std::string text, int mode) {
  ServiceStep step;
  step.what = std::move(what);
  step.undo = ShellLine({"rm", path});
  step.path = std::move(path);
  step.text = std::move(text);
  step.mode = mode;
  return step;
}

ServiceStep Folder(const std::string& path, const std::string& owner, const std::string& group,
                   const std::string& mode) {
  return Do("see to the folder " + path,
            {"install", "-d", "-m", mode, "-o", owner, "-g", group, path},
            ShellLine({"rmdir", path}));
}

bool IsSystemd(const ServiceSettings& settings) {
  return settings.manager == ServiceManager::kSystemd;
}

void AddUser(const ServiceSettings& settings, const ServiceFound& found, Steps* steps) {
  const ServicePlaces places = PlacesOf(settings.manager);
  if (!IsSystemd(settings)) return;  // a Mac's user and group are there
  if (!found.group) {
    // userdel removes the group of the user's own name too.
    const bool own = !found.user && settings.user == settings.group;
    steps->push_back(Do("make the group " + settings.group,
                        {"groupadd", "--system", settings.group},
                        own ? "" : ShellLine({"groupdel", settings.group})));
  }
  if (!found.user) {
    steps->push_back(Do("make the user " + settings.user,
                        {"useradd", "--system", "--gid", settings.group, "--home-dir", places.data,
                         "--no-create-home", "--shell", "/usr/sbin/nologin", settings.user},
                        ShellLine({"userdel", settings.user})));
  }
  if (!settings.member.empty() && !found.member) {
    steps->push_back(Do(absl::StrCat("let ", settings.member, " open the agent's socket"),
                        {"usermod", "-a", "-G", settings.group, settings.member},
                        ShellLine({"gpasswd", "-d", settings.member, settings.group})));
  }
}

void AddFolders(const ServiceSettings& settings, Steps* steps) {
  const ServicePlaces places = PlacesOf(settings.manager);
  const std::string root_group = IsSystemd(settings) ? "root" : "wheel";
  const std::string etc = places.settings.substr(0, places.settings.rfind('/'));
  steps->push_back(Folder(etc, "root", root_group, "0755"));
  // Nobody but root may put a link in the place of a folder that root gives away below.
  steps->push_back(Folder(places.data, "root", root_group, "0755"));
  if (!IsSystemd(settings)) {
    // Nobody but root may put another folder in the place of the socket's.
    const std::string run = places.socket.substr(0, places.socket.rfind('/'));
    steps->push_back(Folder(run, settings.user, settings.group, "0755"));
  }
  steps->push_back(Folder(places.state, settings.user, settings.group, "0700"));
  steps->push_back(Folder(places.models, settings.user, settings.group, "2775"));
  steps->push_back(Folder(places.logs, settings.user, settings.group, "0750"));
}

// What is of the old agent's last run stays behind, and where it had its secret.
void TakeState(const ServiceSettings& settings, Steps* steps) {
  if (settings.taken_state.empty()) return;
  const std::string state = PlacesOf(settings.manager).state;
  steps->push_back(Do("take over the state in " + settings.taken_state,
                      {"cp", "-R", settings.taken_state + "/.", state},
                      ShellLine({"rm", "-rf", state})));
  std::vector<std::string> leave = {"rm", "-rf"};
  for (const char* name : {"state.lock", "membership.json", "ranks", "logs"}) {
    leave.push_back(absl::StrCat(state, "/", name));
  }
  steps->push_back(Do("leave out what was of that agent alone", std::move(leave)));
  if (!settings.taken_membership.empty()) {
    steps->push_back(Do("copy the membership", {"install", "-m", "0600", settings.taken_membership,
                                                state + "/node.membership"}));
  }
  steps->push_back(Do("give the state to " + settings.user,
                      {"chown", "-R", absl::StrCat(settings.user, ":", settings.group), state}));
}

// Beside the present ones, so that a copy that fails changes nothing.
void AddPrograms(const ServiceSettings& settings, const ServiceFound& found, Steps* steps) {
  const std::string fresh = PlacesOf(settings.manager).programs + ".new";
  const std::string remove = ShellLine({"rm", "-rf", fresh});
  steps->push_back(Do("clear the way for the programs", {"rm", "-rf", fresh}));
  steps->push_back(Do("make the programs' folder",
                      {"install", "-d", "-m", "0755", fresh, fresh + "/bin"}, remove));
  std::vector<std::string> copy = {"install", "-m", "0755"};
  for (const std::string& program : InstalledPrograms()) {
    copy.push_back(absl::StrCat(settings.built, "/bin/", program));
  }
  copy.push_back(fresh + "/bin");
  steps->push_back(Do("copy the programs", std::move(copy)));
  if (!found.mlx) return;
  steps->push_back(Do("make MLX's folder", {"install", "-d", "-m", "0755", fresh + "/mlx"}));
  steps->push_back(Do("copy MLX", {"cp", "-R", settings.built + "/mlx/lib", fresh + "/mlx/lib"}));
  if (found.mlx_libs) {
    steps->push_back(Do("copy MLX's libraries",
                        {"cp", "-R", settings.built + "/mlx_cpu.libs/.", fresh + "/mlx_cpu.libs"}));
  }
}

void SwapPrograms(const ServiceSettings& settings, const ServiceFound& found, Steps* steps) {
  const std::string programs = PlacesOf(settings.manager).programs;
  const std::string previous = programs + ".previous";
  if (found.programs) {
    steps->push_back(Do("drop the programs before the present ones", {"rm", "-rf", previous}));
    steps->push_back(Do("keep the present programs", {"mv", programs, previous},
                        ShellLine({"mv", previous, programs})));
  }
  steps->push_back(Do("put the new programs in place", {"mv", programs + ".new", programs},
                      ShellLine({"rm", "-rf", programs})));
}

void StartUnderSystemd(Steps* steps) {
  steps->push_back(Do("have systemd read its units anew", {"systemctl", "daemon-reload"}));
  steps->push_back(Do("start the agent at every boot", {"systemctl", "enable", kSystemdLabel},
                      ShellLine({"systemctl", "disable", kSystemdLabel})));
  steps->push_back(Do("start the agent", {"systemctl", "restart", kSystemdLabel},
                      ShellLine({"systemctl", "stop", kSystemdLabel})));
}

std::string Target() { return absl::StrCat("system/", kLaunchdLabel); }

ServiceStep StopUnderLaunchd() {
  ServiceStep stop =
      Do("stop the agent", {"launchctl", "bootout", Target()},
         ShellLine({"launchctl", "bootstrap", "system", PlacesOf(ServiceManager::kLaunchd).unit}));
  stop.may_fail = true;
  return stop;
}

void StartUnderLaunchd(Steps* steps) {
  const std::string unit = PlacesOf(ServiceManager::kLaunchd).unit;
  steps->push_back(Do("start the agent at every boot", {"launchctl", "enable", Target()},
                      ShellLine({"launchctl", "disable", Target()})));
  ServiceStep start = Do("start the agent", {"launchctl", "bootstrap", "system", unit},
                         ShellLine({"launchctl", "bootout", Target()}));
  start.patience_s = kBootstrapPatienceS;
  steps->push_back(std::move(start));
}

// What makes clusterctl known to shells and to man: under /usr/local, which is on their paths.
struct HelpFile {
  const char* what;
  const char* words;  // of clusterctl, which prints it
  const char* folder;
  const char* name;
};
constexpr std::array kHelpFiles = {
    HelpFile{"the manual page", "help --man", "/usr/local/share/man/man1", "clusterctl.1"},
    HelpFile{"bash's completion", "completion bash", "/usr/local/share/bash-completion/completions",
             "clusterctl"},
    HelpFile{"zsh's completion", "completion zsh", "/usr/local/share/zsh/site-functions",
             "_clusterctl"},
    HelpFile{"fish's completion", "completion fish", "/usr/local/share/fish/vendor_completions.d",
             "clusterctl.fish"},
};
constexpr char kProgramLink[] = "/usr/local/bin/clusterctl";

std::string PathOf(const HelpFile& file) { return absl::StrCat(file.folder, "/", file.name); }

// Removes the link when it is ours.
std::string UnlinkLine(const std::string& programs) {
  return absl::StrCat("[ \"$(readlink ", kProgramLink, ")\" != ", programs,
                      "/bin/clusterctl ] || rm -f ", kProgramLink);
}

// A machine whose /usr/local can't be written to has its agent all the same. What somebody else put
// there under clusterctl's name stays.
void AddHelpFiles(const std::string& programs, Steps* steps) {
  const std::string clusterctl = programs + "/bin/clusterctl";
  const auto add = [&](const std::string& what, const std::string& line, const std::string& undo) {
    ServiceStep step = Do(what, {"/bin/sh", "-c", line}, undo);
    step.may_fail = true;
    steps->push_back(std::move(step));
  };
  for (const HelpFile& file : kHelpFiles) {
    const std::string path = PathOf(file);
    add(absl::StrCat("write ", file.what),
        absl::StrCat("install -d ", file.folder, " && ", ShellLine({clusterctl}), " ", file.words,
                     " > ", path),
        ShellLine({"rm", "-f", path}));
  }
  add("let shells find clusterctl",
      absl::StrCat("install -d /usr/local/bin && { [ -e ", kProgramLink, " ] || ln -s ",
                   ShellLine({clusterctl}), " ", kProgramLink, "; }"),
      UnlinkLine(programs));
}

void RemoveHelpFiles(const std::string& programs, Steps* steps) {
  std::vector<std::string> remove = {"rm", "-f"};
  for (const HelpFile& file : kHelpFiles) remove.push_back(PathOf(file));
  steps->push_back(Do("remove the manual page and completions", std::move(remove)));
  ServiceStep link = Do("remove clusterctl's link", {"/bin/sh", "-c", UnlinkLine(programs)});
  link.may_fail = true;
  steps->push_back(std::move(link));
}

}  // namespace

ServicePlaces PlacesOf(ServiceManager manager) {
  ServicePlaces places;
  places.programs = "/opt/macrame";
  places.settings = "/etc/macrame/agentd.yaml";
  if (manager == ServiceManager::kSystemd) {
    places.label = kSystemdLabel;
    places.unit = absl::StrCat("/etc/systemd/system/", kSystemdLabel);
    places.data = "/var/lib/macrame";
    places.logs = "/var/log/macrame";
    places.socket = transport::kServiceSocketOfLinux;
  } else {
    places.label = kLaunchdLabel;
    places.unit = absl::StrCat("/Library/LaunchDaemons/", kLaunchdLabel, ".plist");
    places.data = "/Library/Application Support/Macrame";
    places.logs = "/Library/Logs/Macrame";
    places.errors = places.logs + "/agentd.errors.log";
    places.socket = transport::kServiceSocketOfMacs;
  }
  places.state = places.data + "/state";
  places.models = places.data + "/models";
  places.log = places.logs + "/agentd.log";
  return places;
}

std::vector<ServiceStep> InstallSteps(const ServiceSettings& settings, const ServiceFound& found) {
  const ServicePlaces places = PlacesOf(settings.manager);
  Steps steps;
  AddUser(settings, found, &steps);
  AddFolders(settings, &steps);
  if (found.settings) {
    for (ServiceStep& step : steps) step.undo.clear();  // they were there, with what is in them
  }
  TakeState(settings, &steps);
  AddPrograms(settings, found, &steps);
  if (!found.settings) {
    // The agent's alone: the webhook's URL is a secret, and this is where it is written.
    ServiceStep write =
        Write("write the agent's settings", places.settings, AgentSettings(settings), 0600);
    write.user = settings.user;
    write.group = settings.group;
    steps.push_back(std::move(write));
  }
  if (!settings.secret_file.empty()) {
    const std::string secret = places.state + "/cluster.secret";
    steps.push_back(Do("copy the cluster's secret",
                       {"install", "-m", "0600", "-o", settings.user, "-g", settings.group,
                        settings.secret_file, secret},
                       ShellLine({"rm", secret})));
  }
  if (!IsSystemd(settings) && found.loaded) steps.push_back(StopUnderLaunchd());
  ServiceStep unit =
      IsSystemd(settings)
          ? Write("write the unit", places.unit, SystemdUnit(settings), 0644)
          : Write("write the property list", places.unit, LaunchdPlist(settings), 0644);
  // What was there is written again by the programs that wrote it.
  if (found.unit) unit.undo = places.programs + "/bin/clusterctl service install";
  steps.push_back(std::move(unit));
  if (!IsSystemd(settings)) {
    steps.push_back(
        Write("rotate the log of errors", kNewsyslogFile, NewsyslogRules(settings), 0644));
  }
  SwapPrograms(settings, found, &steps);
  AddHelpFiles(places.programs, &steps);
  if (IsSystemd(settings)) {
    StartUnderSystemd(&steps);
  } else {
    StartUnderLaunchd(&steps);
  }
  return steps;
}

std::vector<std::string> InstalledPrograms() { return absl::StrSplit(MACRAME_PROGRAMS, ','); }

std::string HomebrewLibraryOf(std::string_view program) {
  static constexpr std::string_view kMachO = "\xcf\xfa\xed\xfe";
  static constexpr std::string_view kFolders[] = {"/opt/homebrew/", "/usr/local/opt/",
                                                  "/usr/local/Cellar/"};
  constexpr size_t kHeaderBytes = 32, kCommandsSizeAt = 20;
  if (!program.starts_with(kMachO) || program.size() < kHeaderBytes) return "";
  size_t commands = 0;
  for (size_t byte = 0; byte < 4; ++byte) {
    commands |= size_t{static_cast<uint8_t>(program[kCommandsSizeAt + byte])} << (8 * byte);
  }
  program = program.substr(kHeaderBytes, commands);
  for (const std::string_view folder : kFolders) {
    const size_t at = program.find(folder);
    if (at == program.npos) continue;
    const std::string_view path = program.substr(at, kLibraryPathBytesMax);
    return std::string(path.substr(0, path.find('\0')));
  }
  return "";
}

std::vector<ServiceStep> UninstallSteps(ServiceManager manager, const ServiceFound& found) {
  const ServicePlaces places = PlacesOf(manager);
  Steps steps;
  if (manager == ServiceManager::kSystemd) {
    if (found.unit) {
      steps.push_back(Do("stop the agent, now and at boots",
                         {"systemctl", "disable", "--now", places.label},
                         ShellLine({"systemctl", "enable", "--now", places.label})));
    }
    steps.push_back(Do("remove the unit", {"rm", "-f", places.unit}));
    steps.push_back(Do("have systemd read its units anew", {"systemctl", "daemon-reload"}));
  } else {
    if (found.loaded) steps.push_back(StopUnderLaunchd());
    steps.push_back(Do("remove the property list", {"rm", "-f", places.unit}));
    steps.push_back(Do("remove the rotation of its log", {"rm", "-f", kNewsyslogFile}));
  }
  RemoveHelpFiles(places.programs, &steps);
  steps.push_back(
      Do("remove the programs",
         {"rm", "-rf", places.programs, places.programs + ".previous", places.programs + ".new"}));
  return steps;
}

std::vector<ServiceStep> RestartSteps(ServiceManager manager, const ServiceFound& found) {
  const ServicePlaces places = PlacesOf(manager);
  if (manager == ServiceManager::kSystemd) {
    return {Do("restart the agent", {"systemctl", "restart", places.label})};
  }
  if (found.loaded) return {Do("restart the agent", {"launchctl", "kickstart", "-k", Target()})};
  Steps steps;
  StartUnderLaunchd(&steps);
  return steps;
}

std::string ShellLine(const std::vector<std::string>& words) {
  std::vector<std::string> quoted;
  for (const std::string& word : words) {
    const bool plain = !word.empty() && std::all_of(word.begin(), word.end(), [](char c) {
      return std::isalnum(static_cast<unsigned char>(c)) != 0 ||
             std::string("-_./:=,@+%").find(c) != std::string::npos;
    });
    quoted.push_back(plain ? word
                           : absl::StrCat("'", absl::StrReplaceAll(word, {{"'", "'\\''"}}), "'"));
  }
  return absl::StrJoin(quoted, " ");
}

namespace {

// A word that is no line of the text which it ends.
std::string EndWordOf(const std::string& text) {
  std::string word = "END";
  while (absl::StrContains(absl::StrCat("\n", text), absl::StrCat("\n", word, "\n"))) word += "_";
  return word;
}

}  // namespace

std::string StepsText(const std::vector<ServiceStep>& steps) {
  std::string text;
  for (const ServiceStep& step : steps) {
    absl::StrAppend(&text, "# ", step.what, "\n");
    if (!step.command.empty()) {
      absl::StrAppend(&text, ShellLine(step.command), "\n");
    } else {
      const std::string end = EndWordOf(step.text);
      absl::StrAppend(&text, "cat >", ShellLine({step.path}), " <<'", end, "'\n", step.text, end,
                      "\n", absl::StrFormat("chmod %04o ", step.mode), ShellLine({step.path}),
                      "\n");
      if (!step.user.empty()) {
        absl::StrAppend(
            &text, ShellLine({"chown", absl::StrCat(step.user, ":", step.group), step.path}), "\n");
      }
    }
  }
  return text;
}

std::string UndoText(const std::vector<ServiceStep>& done) {
  if (done.empty()) return "nothing was done before it\n";
  std::string text = "done before it:\n";
  for (const ServiceStep& step : done) absl::StrAppend(&text, "  ", step.what, "\n");
  std::string undo;
  for (auto step = done.rbegin(); step != done.rend(); ++step) {
    if (!step->undo.empty()) absl::StrAppend(&undo, "  ", step->undo, "\n");
  }
  if (!undo.empty()) absl::StrAppend(&text, "to take it back, as root:\n", undo);
  return text;
}

}  // namespace macrame::cli
