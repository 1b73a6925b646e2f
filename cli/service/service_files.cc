// The files of the service: unit, property list, settings, log rotation.

#include <string>
#include <string_view>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_replace.h"
#include "cli/service/service_plan.h"

namespace macrame::cli {
namespace {

// Longer than agentd's own limit: drain_timeout_s (30 s), and 5 s to end ranks.
constexpr int kStopLimitS = 45;
// As transport/descriptor_limit.h asks for.
constexpr int kDescriptors = 16384;

// "a" as YAML's double-quoted strings: what would end it, or its line, is written with a backslash.
std::string Quoted(std::string_view text) {
  std::string quoted = "\"";
  for (const char c : text) {
    if (c == '\n') {
      quoted += "\\n";
    } else if (c == '\t') {
      quoted += "\\t";
    } else if (static_cast<unsigned char>(c) < 0x20 || c == 0x7F) {
      quoted += absl::StrFormat("\\x%02x", static_cast<unsigned>(static_cast<unsigned char>(c)));
    } else {
      if (c == '"' || c == '\\') quoted += '\\';
      quoted += c;
    }
  }
  return quoted + "\"";
}

std::string Xml(std::string_view text) {
  return absl::StrReplaceAll(absl::string_view(text.data(), text.size()),
                             {{"&", "&amp;"}, {"<", "&lt;"}, {">", "&gt;"}});
}

std::string String(std::string_view text, int depth) {
  return absl::StrCat(std::string(static_cast<size_t>(depth), '\t'), "<string>", Xml(text),
                      "</string>\n");
}

std::string Key(std::string_view name) { return absl::StrCat("\t<key>", Xml(name), "</key>\n"); }

std::string Text(std::string_view name, std::string_view value) {
  return absl::StrCat(Key(name), String(value, 1));
}

std::string Whole(std::string_view name, int value) {
  return absl::StrCat(Key(name), "\t<integer>", value, "</integer>\n");
}

std::string Limit(std::string_view name) {
  return absl::StrCat(Key(name), "\t<dict>\n\t\t<key>NumberOfFiles</key>\n\t\t<integer>",
                      kDescriptors, "</integer>\n\t</dict>\n");
}

// What the agent may not do, beyond what any program may not.
std::string Confinement(const ServiceSettings& settings) {
  const ServicePlaces places = PlacesOf(settings.manager);
  return absl::StrCat(R"(NoNewPrivileges=yes
CapabilityBoundingSet=
ProtectSystem=strict
ReadWritePaths=)",
                      places.data, " ", places.logs, R"(
# Models may lie in homes: see model_folders.
ProtectHome=read-only
PrivateTmp=yes
# GPUs and RDMA adapters, and no other devices.
DevicePolicy=closed
DeviceAllow=char-infiniband_verbs rw
DeviceAllow=char-nvidia rw
DeviceAllow=char-nvidia-frontend rw
DeviceAllow=char-nvidia-uvm rw
DeviceAllow=char-drm rw
ProtectClock=yes
ProtectControlGroups=yes
ProtectHostname=yes
ProtectKernelLogs=yes
ProtectKernelModules=yes
ProtectKernelTunables=yes
ProtectProc=invisible
LockPersonality=yes
RestrictAddressFamilies=AF_UNIX AF_INET AF_INET6 AF_NETLINK
RestrictNamespaces=yes
RestrictRealtime=yes
RestrictSUIDSGID=yes
SystemCallArchitectures=native
SystemCallErrorNumber=EPERM
SystemCallFilter=@system-service
)");
}

}  // namespace

std::string SystemdUnit(const ServiceSettings& settings) {
  const ServicePlaces places = PlacesOf(settings.manager);
  return absl::StrCat(
      R"(# Written by 'clusterctl service install', which writes it anew with every upgrade.
# Changes of your own belong into a drop-in: systemctl edit )",
      places.label, R"(
[Unit]
Description=Macrame agent: this machine's part of a cluster that serves language models
Wants=network-online.target
After=network-online.target
# However often it fails, it is tried again.
StartLimitIntervalSec=0

[Service]
Type=exec
ExecStart=)",
      places.programs, "/bin/agentd --config ", places.settings, R"(
User=)",
      settings.user, R"(
Group=)",
      settings.group, R"(
Restart=on-failure
RestartSec=2
# A wrong setting stays wrong: agentd ends with 2 and says in one line what it is.
RestartPreventExitStatus=2
# Answers under way may end; the agent ends its ranks itself.
TimeoutStopSec=)",
      kStopLimitS, R"(
KillMode=mixed
# A rank that takes too much memory is the agent's to start anew.
OOMPolicy=continue
LimitNOFILE=)",
      kDescriptors, R"(
# RDMA adapters read and write memory that is locked.
LimitMEMLOCK=infinity
LimitCORE=0
UMask=0077
RuntimeDirectory=macrame
RuntimeDirectoryMode=0755

)",
      Confinement(settings), R"(
[Install]
WantedBy=multi-user.target
)");
}

std::string LaunchdPlist(const ServiceSettings& settings) {
  const ServicePlaces places = PlacesOf(settings.manager);
  const std::string agentd = places.programs + "/bin/agentd";
  std::string text =
      "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n"
      "<!DOCTYPE plist PUBLIC \"-//Apple//DTD PLIST 1.0//EN\" "
      "\"http://www.apple.com/DTDs/PropertyList-1.0.dtd\">\n"
      "<!-- Written by 'clusterctl service install', which writes it anew with every upgrade. "
      "-->\n"
      "<plist version=\"1.0\">\n<dict>\n";
  absl::StrAppend(&text, Text("Label", places.label), Key("ProgramArguments"), "\t<array>\n");
  // launchd tells only 0 from other exit codes: agentd ends with 0 where starting it again is no
  // use, and its logs are what it rotates itself.
  for (const std::string& word : {agentd, std::string("--config"), places.settings,
                                  std::string("--launchd"), std::string("--log-to-stderr=false")}) {
    absl::StrAppend(&text, String(word, 2));
  }
  absl::StrAppend(
      &text, "\t</array>\n", Text("UserName", settings.user), Key("InitGroups"), "\t<true/>\n",
      Text("WorkingDirectory", "/"), Key("EnvironmentVariables"), "\t<dict>\n\t\t<key>PATH</key>\n",
      String("/opt/homebrew/bin:/usr/local/bin:/usr/bin:/bin:/usr/sbin:/sbin", 2), "\t</dict>\n",
      Key("RunAtLoad"), "\t<true/>\n", Key("KeepAlive"),
      "\t<dict>\n\t\t<key>SuccessfulExit</key>\n\t\t<false/>\n\t</dict>\n",
      Whole("ThrottleInterval", 10), Whole("ExitTimeOut", kStopLimitS),
      Text("ProcessType", "Interactive"), Limit("SoftResourceLimits"), Limit("HardResourceLimits"),
      Whole("Umask", 077), Text("StandardOutPath", places.errors),
      Text("StandardErrorPath", places.errors), "</dict>\n</plist>\n");
  return text;
}

std::string AgentSettings(const ServiceSettings& settings) {
  const ServicePlaces places = PlacesOf(settings.manager);
  std::vector<std::string> folders = {Quoted(places.models)};
  for (const std::string& folder : settings.model_folders) folders.push_back(Quoted(folder));
  return absl::StrCat(
      "# Settings of the agent that runs as a service. 'clusterctl service install' wrote them\n"
      "# once; from now on they are yours. 'agentd --print-config' prints all that there are;\n"
      "# 'sudo /opt/macrame/bin/clusterctl service restart' puts a change in force.\n"
      "state_folder: ",
      Quoted(places.state), "\n", "cluster_secret_file: ", Quoted(places.state + "/cluster.secret"),
      "\n", "socket_path: ", Quoted(places.socket), "\n", "socket_group: ", Quoted(settings.group),
      "\n", "model_folders: [", absl::StrJoin(folders, ", "), "]\n",
      "log_file: ", Quoted(places.log), "\n");
}

std::string NewsyslogRules(const ServiceSettings& settings) {
  const ServicePlaces places = PlacesOf(settings.manager);
  // N: nobody is told; launchd opens the file anew at the agent's next start.
  return absl::StrCat("# file  owner:group  mode  kept  KB  when  flags\n", places.errors, "  ",
                      settings.user, ":", settings.group, "  640  3  1024  *  N\n");
}

}  // namespace macrame::cli
