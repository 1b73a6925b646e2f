// agentd: the daemon of one node. `agentd --help` and agentd/README.md say how it is started.

#include <spdlog/spdlog.h>
#include <sys/stat.h>
#include <unistd.h>

#ifdef __GLIBC__
#include <malloc.h>
#endif

#include <CLI/CLI.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/signal_set.hpp>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <map>

#include "absl/strings/str_cat.h"
#include "agentd/agent.h"
#include "agentd/base/exit_codes.h"
#include "agentd/base/log_text.h"
#include "agentd/base/version.h"
#include "agentd/config/config.h"
#include "agentd/config/config_secrets.h"
#include "agentd/config/membership_record.h"
#include "agentd/cores/sqlite_state_store.h"
#include "agentd/logging.h"
#include "agentd/machine_platform.h"
#include "discovery/probe/machine_id.h"
#include "transport/core_dumps.h"
#include "transport/descriptor_limit.h"
#include "transport/grpc_logging.h"
#include "transport/log_tail.h"
#include "transport/trust.h"

namespace macrame::agentd {
namespace {

struct Arguments {
  std::string config_file;
  bool print_config = false;
  bool new_identity = false;
  bool launchd = false;
  std::map<std::string, std::string> flags;  // by key
};

int Misconfigured(const absl::Status& status) {
  std::fprintf(stderr, "agentd: %s\n", std::string(status.message()).c_str());
  return kExitMisconfigured;
}

// What --help shows as a flag's value.
std::string ValueKind(const ConfigKey& key) {
  if (!key.choices.empty()) {
    std::string out;
    for (const std::string_view choice : key.choices) {
      out += (out.empty() ? "{" : ",") + std::string(choice);
    }
    return out + "}";
  }
  if (std::holds_alternative<bool Config::*>(key.field)) return "[true|false]";
  if (std::holds_alternative<std::vector<std::string> Config::*>(key.field)) return "A,B,...";
  if (std::holds_alternative<int64_t Config::*>(key.field)) {
    return "NUMBER [" + std::to_string(key.min) + ".." + std::to_string(key.max) + "]";
  }
  const bool is_path = key.name.find("_file") != std::string_view::npos ||
                       key.name.find("_path") != std::string_view::npos ||
                       key.name.find("_folder") != std::string_view::npos;
  return is_path ? "PATH" : "TEXT";
}

void DeclareFlags(CLI::App& app, Arguments& arguments) {
  app.add_option("--config", arguments.config_file,
                 "Settings in YAML (default: ~/.macrame/agentd.yaml, /etc/macrame/agentd.yaml)")
      ->type_name("FILE")
      ->envname("MACRAME_CONFIG");
  app.add_flag("--print-config", arguments.print_config,
               "Print every setting with its value and origin as YAML, and exit");
  app.add_flag("--new-identity", arguments.new_identity,
               "Give the state folder of a copied disk a node id of its own, and exit");
  app.add_flag("--launchd", arguments.launchd,
               "Exit with 0, not 2, on wrong settings, so that launchd does not restart");
  app.set_version_flag("--version", std::string("agentd ") + kAgentVersion);
  for (const ConfigKey& key : ConfigKeys()) {
    const std::string name(key.name);
    auto* option = app.add_option_function<std::string>(
        FlagName(key),
        [&arguments, name](const std::string& text) { arguments.flags[name] = text; },
        std::string(key.text) + " [" + EnvironmentName(key) + "]");
    option->option_text(ValueKind(key));
    if (std::holds_alternative<bool Config::*>(key.field))
      option->expected(0, 1)->default_str("true");
  }
  app.footer(kExitCodesText);
}

// "": no file is read.
std::string ConfigPath(const Arguments& arguments) {
  return arguments.config_file.empty() ? FindConfigFile() : ExpandHome(arguments.config_file);
}

absl::StatusOr<LoadedConfig> LoadConfig(const Arguments& arguments, const std::string& path) {
  LoadedConfig config = DefaultConfig();
  absl::Status status;
  if (!path.empty()) {
    absl::StatusOr<std::string> text = ReadConfigFile(path);
    if (!text.ok()) return text.status();
    status = ApplyYaml(*text, path, &config);
    if (!status.ok()) return status;
  }
  status = ApplyEnvironment([](const char* name) { return std::getenv(name); }, &config);
  if (!status.ok()) return status;
  for (const auto& [name, text] : arguments.flags) {
    const ConfigKey* key = FindConfigKey(name);
    status = SetFromText(*key, text, "flag " + FlagName(*key), &config);
    if (!status.ok()) return status;
  }
  ExpandPaths(&config.values);
  RecallSecretFile(&config);
  if (config.values.log_file.empty()) {
    config.values.log_file = transport::DefaultLogFile(config.values.state_folder);
  }
  status = CheckConfig(config.values);
  if (!status.ok()) return status;
  return config;
}

void PrepareProcess() {
  std::signal(SIGPIPE, SIG_IGN);
  // State, sockets and logs are this user's alone.
  ::umask(077);
  transport::RaiseDescriptorLimit();
#ifdef __GLIBC__
  // One arena for each of gRPC's threads would cost megabytes and save nothing here.
  ::mallopt(M_ARENA_MAX, 2);
  ::mallopt(M_TRIM_THRESHOLD, 128 * 1024);
#endif
}

absl::StatusOr<std::unique_ptr<SqliteStateStore>> OpenStore(const Config& config) {
  return SqliteStateStore::Open(config.state_folder,
                                NodeId(transport::HexEncode(transport::RandomBytes(16))));
}

int MakeNewIdentity(const Config& config) {
  absl::StatusOr<std::unique_ptr<SqliteStateStore>> store = OpenStore(config);
  if (!store.ok()) return Misconfigured(store.status());
  const NodeId before = (*store)->node_id();
  const NodeId fresh(transport::HexEncode(transport::RandomBytes(16)));
  const absl::Status made = (*store)->BecomeNewNode(fresh);
  if (!made.ok()) return Misconfigured(made);
  std::printf("node %s is node %s from now on; start agentd\n", ShortId(before).c_str(),
              ShortId(fresh).c_str());
  return kExitOk;
}

// `exposed`: what is said of secrets in the file of settings; "": nothing.
int Serve(const Config& config, const std::string& exposed) {
  if (!config.core_dumps) transport::TurnOffCoreDumps();
  absl::Status logging = StartLogging(config.log_level, config.log_file, config.log_to_stderr);
  if (!logging.ok()) return Misconfigured(logging);
  transport::RouteGrpcLogs();
  if (!exposed.empty()) spdlog::warn("{}", exposed);
  absl::StatusOr<std::unique_ptr<SqliteStateStore>> store = OpenStore(config);
  if (!store.ok()) {
    spdlog::critical("{}", LogText(store.status()));
    return kExitMisconfigured;
  }
  const std::string machine =
      discovery::ThisMachineMark(config.machine_id_file, (*store)->node_id());
  if (machine.empty() && !config.machine_id_file.empty()) {
    return Misconfigured(absl::InvalidArgumentError(
        absl::StrCat("machine_id_file: ", config.machine_id_file, " can't be read or is empty")));
  }
  transport::AsioDispatcher dispatcher;
  MachinePlatform platform(dispatcher);
  Agent agent(platform, config, std::move(*store), machine);
  boost::asio::signal_set signals(dispatcher.io(), SIGTERM, SIGINT);
  bool asked = false;
  std::function<void(const boost::system::error_code&, int)> on_signal =
      [&](const boost::system::error_code& error, int) {
        if (error) return;
        if (asked) std::_Exit(kExitFailed);  // asked twice: at once
        asked = true;
        agent.Shutdown([&] { dispatcher.Stop(); });
        signals.async_wait(on_signal);
      };
  signals.async_wait(on_signal);
  const absl::Status started = agent.Start();
  if (!started.ok()) {
    spdlog::critical("{}", LogText(started));
    return kExitMisconfigured;
  }
  dispatcher.Run();
  return kExitOk;
}

int Run(CLI::App& app, const Arguments& arguments, int argc, char** argv) {
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    return app.exit(error) == 0 ? kExitOk : kExitMisconfigured;
  }
  PrepareProcess();
  const std::string path = ConfigPath(arguments);
  absl::StatusOr<LoadedConfig> config = LoadConfig(arguments, path);
  if (!config.ok()) return Misconfigured(config.status());
  if (arguments.print_config) {
    std::fputs(PrintConfig(*config).c_str(), stdout);
    return kExitOk;
  }
  if (arguments.new_identity) return MakeNewIdentity(config->values);
  return Serve(config->values, ExposedSecretsWarning(path, *config));
}

int Main(int argc, char** argv) {
  Arguments arguments;
  CLI::App app("The daemon of one node of a Macrame cluster.", "agentd");
  DeclareFlags(app, arguments);
  const int code = Run(app, arguments, argc, argv);
  return arguments.launchd && code == kExitMisconfigured ? kExitOk : code;
}

}  // namespace
}  // namespace macrame::agentd

int main(int argc, char** argv) { return macrame::agentd::Main(argc, argv); }
