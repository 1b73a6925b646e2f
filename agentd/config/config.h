#pragma once

// Every setting of agentd, declared once (config_keys.cc): its name, text, unit, default and
// bounds. The YAML reader, the environment, the flags, --print-config and --help all come from that
// table.
//
// Precedence: flag > environment > file > default. The environment's name of `key_name` is
// MACRAME_KEY_NAME, its flag --key-name. Pure but for ReadConfigFile; any thread.

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace macrame::agentd {

inline constexpr size_t kConfigFileBytesMax = 64 * 1024;
inline constexpr size_t kConfigListEntriesMax = 64;
inline constexpr size_t kConfigTextBytesMax = 4096;

struct Config {
  std::string node_name;
  std::string cluster_secret_file;
  std::string state_folder;
  std::string machine_id_file;
  std::string socket_path;
  std::string socket_group;
  std::vector<std::string> model_folders;

  int64_t discovery_port = 8888;
  std::vector<std::string> discovery_interfaces;
  std::vector<std::string> discovery_seeds;
  bool discovery_loopback = false;

  std::string control_bind = "0.0.0.0";
  int64_t control_port = 0;
  int64_t join_port = 0;
  std::string ring_bind;
  std::string gateway_bind = "127.0.0.1";
  std::string gateway_keys = "auto";
  bool gateway_open = false;
  std::string gateway_tls_certificate;
  std::string gateway_tls_key;
  bool gateway_tls_authority = false;
  int64_t gateway_port = 8000;
  std::vector<std::string> gateway_hosts;
  std::vector<std::string> gateway_cors_origins;
  std::vector<std::string> gateway_aliases;
  bool gateway_load_on_request = false;
  bool gateway_unload_for_requests = true;
  int64_t gateway_queue_limit_s = 600;
  int64_t response_retention_h = 0;
  bool gateway_enabled = true;

  int64_t heartbeat_interval_ms = 500;
  int64_t suspect_after_ms = 1500;
  int64_t dead_after_ms = 3000;
  int64_t lease_ms = 2000;
  std::string consistency = "available";
  int64_t minority_wait_s = 30;
  int64_t quorum_first_members = 3;
  int64_t drain_timeout_s = 30;

  std::string transport = "auto";
  bool allow_vpn = false;
  int64_t rdma_nodes_max = 4;
  int64_t link_probe_interval_s = 30;
  std::string support_list;

  int64_t rank_connect_timeout_ms = 30'000;
  int64_t rank_step_timeout_ms = 60'000;
  int64_t queued_requests_max = 64;
  int64_t models_memory_max_mib = 0;
  int64_t model_idle_unload_s = 0;
  int64_t kv_cache_disk_mib = 2048;
  int64_t kv_cache_disk_hours = 0;
  std::string metal_fast_synch = "auto";
  std::string rankd_path;
  std::string mlx_lm_python;

  std::string alert_webhook;
  std::string alert_webhook_authorization;

  std::string otlp_endpoint;
  std::string otlp_headers_file;
  std::string trace_ratio = "1.0";

  std::string log_level = "info";
  std::string log_file;
  bool log_to_stderr = true;
  bool insecure_dev = false;
  bool core_dumps = false;
};

using ConfigField = std::variant<std::string Config::*, int64_t Config::*, bool Config::*,
                                 std::vector<std::string> Config::*>;

struct ConfigKey {
  std::string_view name;
  ConfigField field;
  std::string_view text;  // one line
  std::string_view unit;  // "ms", "port", …; empty when there is none
  int64_t min = 0;        // of integers
  int64_t max = 0;
  std::vector<std::string_view> choices;  // of texts that have few values
};

std::span<const ConfigKey> ConfigKeys();
const ConfigKey* FindConfigKey(std::string_view name);
std::string EnvironmentName(const ConfigKey& key);  // "MACRAME_LEASE_MS"
std::string FlagName(const ConfigKey& key);         // "--lease-ms"

// The known name nearest to a mistyped one; empty when none is near.
std::string NearestConfigKey(std::string_view name);

// A config and where each value came from: "default", "file /etc/x.yaml:3", "environment", "flag".
struct LoadedConfig {
  Config values;
  std::map<std::string, std::string, std::less<>> origins;
};

// The defaults, with this user's paths filled in.
LoadedConfig DefaultConfig();

// Takes one value as text. Lists are comma-separated, truth is true/false/yes/no/on/off/1/0. Errors
// name the key, what is wrong and the bounds.
absl::Status SetFromText(const ConfigKey& key, const std::string& text, const std::string& origin,
                         LoadedConfig* config);

// The same of a setting that is a list, whose entries may hold commas.
absl::Status SetFromList(const ConfigKey& key, std::vector<std::string> entries,
                         const std::string& origin, LoadedConfig* config);

// Takes a YAML file's text. INVALID_ARGUMENT with "path:line: …": unknown key (with the nearest
// one), a key given twice, a wrong type, a value out of bounds, nesting, malformed YAML.
absl::Status ApplyYaml(const std::string& text, const std::string& path, LoadedConfig* config);

// `lookup` is getenv in the program.
absl::Status ApplyEnvironment(const std::function<const char*(const char*)>& lookup,
                              LoadedConfig* config);

// What must hold between settings: suspect before dead, insecure only on loopback, …
absl::Status CheckConfig(const Config& config);

// `trace_ratio`: "0.05", 0 to 1. Nullopt: it is none.
std::optional<double> ParseTraceRatio(std::string_view text);

// Of 127.0.0.0/8 or ::1; `ip` is an IP address.
bool IsLoopbackAddress(const std::string& ip);

// At most kConfigFileBytesMax. NOT_FOUND, PERMISSION_DENIED, INVALID_ARGUMENT.
absl::StatusOr<std::string> ReadConfigFile(const std::string& path);
// "~/.macrame/agentd.yaml", then "/etc/macrame/agentd.yaml": the first that exists; empty for none.
std::string FindConfigFile();

// YAML with every key, its value, origin, text, bounds and default. Reading it back gives the same
// values.
std::string PrintConfig(const LoadedConfig& config);

// "~/x" → home; otherwise unchanged.
std::string ExpandHome(const std::string& path);
// The same for every setting that is one path.
void ExpandPaths(Config* config);

}  // namespace macrame::agentd
