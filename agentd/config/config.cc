#include "agentd/config/config.h"

#include <arpa/inet.h>
#include <sys/stat.h>

#include <algorithm>
#include <cstdlib>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/str_split.h"
#include "agentd/base/web_url.h"
#include "proto/suggestions.h"
#include "transport/log_tail.h"
#include "transport/regular_file.h"
#include "transport/trust.h"
#include "transport/unix_socket.h"

namespace macrame::agentd {
namespace {

absl::string_view View(std::string_view text) {
  return absl::string_view(text.data(), text.size());
}

// As browsers write them in the header Origin.
bool IsWebOrigin(const std::string& text) {
  return text == "*" || !AuthorityOfOrigin(text).empty();
}

// "NAME=MODEL"; a '*' stands at the NAME's end alone.
bool IsModelAlias(const std::string& text) {
  const size_t sign = text.find('=');
  if (sign == std::string::npos || sign == 0 || sign + 1 == text.size()) return false;
  const size_t star = text.find('*');
  return star == std::string::npos || star + 1 == sign;
}

absl::Status Wrong(const ConfigKey& key, const std::string& text, const std::string& wanted) {
  return absl::InvalidArgumentError(
      absl::StrCat(View(key.name), ": '", text.substr(0, 80), "' is not ", wanted));
}

// What no text may be, nor an entry of a list.
absl::Status CheckText(const ConfigKey& key, const std::string& text) {
  if (text.size() <= kConfigTextBytesMax && text.find('\0') == std::string::npos) {
    return absl::OkStatus();
  }
  return Wrong(key, text,
               absl::StrCat("a text of at most ", kConfigTextBytesMax, " bytes without a NUL"));
}

absl::Status SetText(const ConfigKey& key, const std::string& text, std::string* field) {
  if (absl::Status fits = CheckText(key, text); !fits.ok()) return fits;
  if (!key.choices.empty() &&
      std::find(key.choices.begin(), key.choices.end(), text) == key.choices.end()) {
    std::vector<std::string> choices(key.choices.begin(), key.choices.end());
    return Wrong(key, text, absl::StrCat("one of ", absl::StrJoin(choices, ", ")));
  }
  *field = text;
  return absl::OkStatus();
}

absl::Status SetInteger(const ConfigKey& key, const std::string& text, int64_t* field) {
  int64_t value = 0;
  if (!absl::SimpleAtoi(text, &value) || value < key.min || value > key.max) {
    return Wrong(key, text, absl::StrCat("a whole number from ", key.min, " to ", key.max));
  }
  *field = value;
  return absl::OkStatus();
}

absl::Status SetTruth(const ConfigKey& key, const std::string& text, bool* field) {
  const std::string lower = absl::AsciiStrToLower(text);
  const bool yes = lower == "true" || lower == "yes" || lower == "on" || lower == "1";
  const bool no = lower == "false" || lower == "no" || lower == "off" || lower == "0";
  if (!yes && !no) return Wrong(key, text, "true or false");
  *field = yes;
  return absl::OkStatus();
}

absl::Status SetList(const ConfigKey& key, std::vector<std::string> list,
                     std::vector<std::string>* field) {
  if (list.size() > kConfigListEntriesMax) {
    return Wrong(key, absl::StrJoin(list, ","),
                 absl::StrCat("a list of at most ", kConfigListEntriesMax, " entries"));
  }
  for (const std::string& entry : list) {
    if (absl::Status fits = CheckText(key, entry); !fits.ok()) return fits;
  }
  *field = std::move(list);
  return absl::OkStatus();
}

std::vector<std::string> EntriesOf(const std::string& text) {
  std::vector<std::string> list;
  for (const absl::string_view part : absl::StrSplit(text, ',')) {
    const absl::string_view entry = absl::StripAsciiWhitespace(part);
    if (!entry.empty()) list.emplace_back(entry);
  }
  return list;
}

std::string Home() {
  const char* home = std::getenv("HOME");
  return home != nullptr && home[0] == '/' ? home : "/var/lib/macrame";
}

bool IsAddress(const std::string& text) {
  unsigned char bytes[16];
  return inet_pton(AF_INET, text.c_str(), bytes) == 1 ||
         inet_pton(AF_INET6, text.c_str(), bytes) == 1;
}

}  // namespace

bool IsLoopbackAddress(const std::string& ip) {
  return absl::StartsWith(ip, "127.") || ip == "::1";
}

const ConfigKey* FindConfigKey(std::string_view name) {
  for (const ConfigKey& key : ConfigKeys()) {
    if (key.name == name) return &key;
  }
  return nullptr;
}

std::string EnvironmentName(const ConfigKey& key) {
  return absl::StrCat("MACRAME_", absl::AsciiStrToUpper(View(key.name)));
}

std::string FlagName(const ConfigKey& key) {
  std::string name = absl::StrCat("--", View(key.name));
  std::replace(name.begin(), name.end(), '_', '-');
  return name;
}

std::string NearestConfigKey(std::string_view name) {
  std::vector<std::string> known;
  for (const ConfigKey& key : ConfigKeys()) known.emplace_back(key.name);
  return SuggestedName(absl::StrReplaceAll(View(name), {{"-", "_"}}), known);
}

std::string ExpandHome(const std::string& path) {
  if (path == "~") return Home();
  if (absl::StartsWith(path, "~/")) return Home() + path.substr(1);
  return path;
}

void ExpandPaths(Config* config) {
  for (std::string* path :
       {&config->cluster_secret_file, &config->state_folder, &config->machine_id_file,
        &config->socket_path, &config->rankd_path, &config->mlx_lm_python, &config->log_file,
        &config->otlp_headers_file, &config->gateway_tls_certificate, &config->gateway_tls_key}) {
    *path = ExpandHome(*path);
  }
}

LoadedConfig DefaultConfig() {
  LoadedConfig config;
  config.values.cluster_secret_file = transport::DefaultClusterSecretPath();
  config.values.state_folder = transport::DefaultStateFolder();
  config.values.socket_path = transport::DefaultSocketPath();
  config.values.model_folders = {"~/.macrame/models", "~/.cache/huggingface/hub"};
  for (const ConfigKey& key : ConfigKeys()) config.origins[std::string(key.name)] = "default";
  return config;
}

absl::Status SetFromText(const ConfigKey& key, const std::string& text, const std::string& origin,
                         LoadedConfig* config) {
  Config& values = config->values;
  absl::Status status;
  if (const auto* field = std::get_if<std::string Config::*>(&key.field)) {
    status = SetText(key, text, &(values.**field));
  } else if (const auto* number = std::get_if<int64_t Config::*>(&key.field)) {
    status = SetInteger(key, text, &(values.**number));
  } else if (const auto* truth = std::get_if<bool Config::*>(&key.field)) {
    status = SetTruth(key, text, &(values.**truth));
  } else {
    return SetFromList(key, EntriesOf(text), origin, config);
  }
  if (status.ok()) config->origins[std::string(key.name)] = origin;
  return status;
}

absl::Status SetFromList(const ConfigKey& key, std::vector<std::string> entries,
                         const std::string& origin, LoadedConfig* config) {
  const auto field = std::get<std::vector<std::string> Config::*>(key.field);
  absl::Status status = SetList(key, std::move(entries), &(config->values.*field));
  if (status.ok()) config->origins[std::string(key.name)] = origin;
  return status;
}

absl::Status ApplyEnvironment(const std::function<const char*(const char*)>& lookup,
                              LoadedConfig* config) {
  for (const ConfigKey& key : ConfigKeys()) {
    const std::string name = EnvironmentName(key);
    const char* text = lookup(name.c_str());
    if (text == nullptr) continue;
    absl::Status status = SetFromText(key, text, "environment " + name, config);
    if (!status.ok()) {
      return absl::InvalidArgumentError(absl::StrCat("environment ", name, ": ", status.message()));
    }
  }
  return absl::OkStatus();
}

std::optional<double> ParseTraceRatio(std::string_view text) {
  const bool is_plain = std::all_of(
      text.begin(), text.end(), [](unsigned char c) { return absl::ascii_isdigit(c) || c == '.'; });
  double ratio = 0;
  if (!is_plain || !absl::SimpleAtod(std::string(text), &ratio) || ratio > 1) return std::nullopt;
  return ratio;
}

namespace {

absl::Status CheckGateway(const Config& config) {
  const auto wrong = [](const auto&... parts) {
    return absl::InvalidArgumentError(absl::StrCat(parts...));
  };
  if (config.gateway_open && config.gateway_keys == "required") {
    return wrong(
        "gateway_open lets everybody in while there is no key, and gateway_keys: required ",
        "nobody; set one of them");
  }
  if (config.gateway_enabled && config.gateway_bind.empty()) {
    return wrong("gateway_bind must not be empty");
  }
  if (config.gateway_tls_authority && !config.gateway_tls_certificate.empty()) {
    return wrong(
        "gateway_tls_authority makes a certificate, so gateway_tls_certificate names none");
  }
  if (config.gateway_tls_authority && config.insecure_dev) {
    return wrong(
        "gateway_tls_authority needs the authority of a cluster, and insecure_dev has none");
  }
  if (config.gateway_tls_certificate.empty() != config.gateway_tls_key.empty()) {
    return wrong("gateway_tls_certificate and gateway_tls_key are set together or not at all");
  }
  for (const std::string& origin : config.gateway_cors_origins) {
    if (!IsWebOrigin(origin)) {
      return wrong("gateway_cors_origins: '", origin,
                   "' is no origin such as https://chat.example ",
                   "or http://localhost:3000 (nothing behind the port), nor *");
    }
  }
  for (const std::string& alias : config.gateway_aliases) {
    if (!IsModelAlias(alias)) {
      return wrong("gateway_aliases: '", alias.substr(0, 80),
                   "' is not of the form NAME=MODEL, such as gpt-4o=my-model or claude-*=my-model");
    }
  }
  return absl::OkStatus();
}

}  // namespace

absl::Status CheckConfig(const Config& config) {
  const auto wrong = [](const auto&... parts) {
    return absl::InvalidArgumentError(absl::StrCat(parts...));
  };
  if (config.suspect_after_ms <= config.heartbeat_interval_ms) {
    return wrong("suspect_after_ms (", config.suspect_after_ms,
                 ") must be above heartbeat_interval_ms (", config.heartbeat_interval_ms, ")");
  }
  if (config.dead_after_ms <= config.suspect_after_ms) {
    return wrong("dead_after_ms (", config.dead_after_ms, ") must be above suspect_after_ms (",
                 config.suspect_after_ms, ")");
  }
  for (const auto& [name, ip] :
       {std::pair("control_bind", config.control_bind),
        std::pair("gateway_bind", config.gateway_bind), std::pair("ring_bind", config.ring_bind)}) {
    if (!ip.empty() && !IsAddress(ip)) return wrong(name, ": '", ip, "' is not an IP address");
  }
  if (absl::Status gateway = CheckGateway(config); !gateway.ok()) return gateway;
  if (!config.alert_webhook.empty() && !ParseWebUrl(config.alert_webhook).has_value()) {
    return wrong("alert_webhook is no URL that begins with http:// or https://");
  }
  if (!config.otlp_endpoint.empty() && !TracesUrl(config.otlp_endpoint).has_value()) {
    return wrong("otlp_endpoint is no URL that begins with http:// or https:// and has no query");
  }
  if (!ParseTraceRatio(config.trace_ratio).has_value()) {
    return wrong("trace_ratio: '", config.trace_ratio.substr(0, 80),
                 "' is no number from 0 to 1, such as 0.05");
  }
  if (config.control_bind.empty()) return wrong("control_bind must not be empty");
  if (config.state_folder.empty() || config.state_folder[0] != '/') {
    return wrong("state_folder: '", config.state_folder, "' must be an absolute path");
  }
  if (config.socket_path.size() >= transport::kSocketPathBytesMax) {
    return wrong("socket_path: ", config.socket_path, " has ", config.socket_path.size(),
                 " bytes; at most ", transport::kSocketPathBytesMax - 1, " work");
  }
  if (config.insecure_dev && !IsLoopbackAddress(config.control_bind)) {
    return wrong("insecure_dev needs a loopback control_bind, such as 127.0.0.1; it is ",
                 config.control_bind);
  }
  return absl::OkStatus();
}

absl::StatusOr<std::string> ReadConfigFile(const std::string& path) {
  auto text = transport::ReadRegularFile(path, kConfigFileBytesMax);
  if (absl::IsNotFound(text.status())) {
    return absl::NotFoundError(absl::StrCat("there is no config file ", path));
  }
  if (absl::IsPermissionDenied(text.status())) {
    return absl::PermissionDeniedError(
        absl::StrCat(path, " can't be read: it is the settings of another user's agent; run this ",
                     "as that user or as root, or name a file of your own with --config"));
  }
  if (!text.ok()) {
    return absl::InvalidArgumentError(
        absl::StrCat(text.status().message(), "; name agentd's YAML file with --config"));
  }
  return text;
}

std::string FindConfigFile() {
  for (const std::string& path :
       {ExpandHome("~/.macrame/agentd.yaml"), std::string("/etc/macrame/agentd.yaml")}) {
    struct stat info {};
    if (::stat(path.c_str(), &info) == 0) return path;
  }
  return "";
}

}  // namespace macrame::agentd
