#include "cli/service/service_state.h"

#include <map>
#include <sstream>

#include "absl/strings/ascii.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"

namespace macrame::cli {
namespace {

using Values = std::map<std::string, std::string>;

// "key=value" lines, or, of launchctl, "\tkey = value" of the outermost braces: the first of each.
Values ReadValues(const std::string& output, bool launchd) {
  Values values;
  std::istringstream lines(output);
  for (std::string line; std::getline(lines, line);) {
    if (launchd && (line.size() < 2 || line[0] != '\t' || line[1] == '\t')) continue;
    const size_t equals = line.find('=');
    if (equals == std::string::npos) continue;
    values.emplace(std::string(absl::StripAsciiWhitespace(line.substr(0, equals))),
                   std::string(absl::StripAsciiWhitespace(line.substr(equals + 1))));
  }
  return values;
}

int64_t NumberOf(Values& values, const std::string& key, int64_t otherwise) {
  int64_t number = 0;
  return absl::SimpleAtoi(values[key], &number) ? number : otherwise;
}

ServiceState ReadSystemd(const std::string& output) {
  Values values = ReadValues(output, false);
  ServiceState state;
  state.known = values["LoadState"] == "loaded";
  state.running = values["ActiveState"] == "active";
  state.at_boot = values["UnitFileState"] == "enabled";
  state.pid = NumberOf(values, "MainPID", 0);
  state.state = absl::StrCat(values["ActiveState"], " (", values["SubState"], ")");
  state.since = values["StateChangeTimestamp"];
  const int64_t restarts = NumberOf(values, "NRestarts", -1);
  state.starts = restarts < 0 ? -1 : restarts + 1;
  if (values["ExecMainCode"] == "1") state.exit_code = NumberOf(values, "ExecMainStatus", -1);
  return state;
}

ServiceState ReadLaunchd(const std::string& output) {
  Values values = ReadValues(output, true);
  ServiceState state;
  state.known = values.contains("state");
  state.state = values["state"];
  state.running = state.state == "running";
  // A daemon that is loaded was loaded by launchd at boot, or will be: it is in LaunchDaemons.
  state.at_boot = state.known;
  state.pid = NumberOf(values, "pid", 0);
  state.starts = NumberOf(values, "runs", -1);
  // "0", "2: …" or "(never exited)".
  const std::string last = values["last exit code"];
  int64_t code = 0;
  if (absl::SimpleAtoi(last.substr(0, last.find(':')), &code)) state.exit_code = code;
  return state;
}

}  // namespace

std::vector<std::string> StateCommand(ServiceManager manager) {
  const std::string label = PlacesOf(manager).label;
  if (manager == ServiceManager::kLaunchd) return {"launchctl", "print", "system/" + label};
  return {"systemctl", "show", label, "--property",
          "LoadState,ActiveState,SubState,UnitFileState,MainPID,NRestarts,ExecMainCode,"
          "ExecMainStatus,StateChangeTimestamp"};
}

ServiceState ReadState(ServiceManager manager, const std::string& output) {
  return manager == ServiceManager::kLaunchd ? ReadLaunchd(output) : ReadSystemd(output);
}

}  // namespace macrame::cli
