// The table of settings.

#include <iterator>
#include <utility>
#include <vector>

#include "agentd/config/config.h"
#include "proto/backends.h"

namespace macrame::agentd {
namespace {

using Keys = std::vector<ConfigKey>;

constexpr int64_t kPortMax = 65'535;

ConfigKey Text(std::string_view name, std::string Config::*field, std::string_view text) {
  return {name, field, text, "", 0, 0, {}};
}

ConfigKey Choice(std::string_view name, std::string Config::*field, std::string_view text,
                 std::vector<std::string_view> choices) {
  return {name, field, text, "", 0, 0, std::move(choices)};
}

ConfigKey List(std::string_view name, std::vector<std::string> Config::*field,
               std::string_view text) {
  return {name, field, text, "", 0, 0, {}};
}

ConfigKey Truth(std::string_view name, bool Config::*field, std::string_view text) {
  return {name, field, text, "", 0, 0, {}};
}

ConfigKey Number(std::string_view name, int64_t Config::*field, std::string_view unit, int64_t min,
                 int64_t max, std::string_view text) {
  return {name, field, text, unit, min, max, {}};
}

Keys NodeKeys() {
  return {
      Text("node_name", &Config::node_name, "Name shown to people. Empty: the hostname"),
      Text("cluster_secret_file", &Config::cluster_secret_file,
           "Secret file of the cluster (mode 0600). If missing, the node stays alone"),
      Text("state_folder", &Config::state_folder,
           "Folder of node id, desired state, rank files and logs, for one agent"),
      Text("machine_id_file", &Config::machine_id_file,
           "File with this machine's identity, not on a copied disk. Empty: automatic"),
      Text("socket_path", &Config::socket_path, "Unix socket for clusterctl, at most 103 bytes"),
      Text("socket_group", &Config::socket_group,
           "Unix group whose members may use the socket (full control). Empty: none"),
      List("model_folders", &Config::model_folders, "Folders with models; the first match wins"),
  };
}

Keys NetworkKeys() {
  return {
      Number("discovery_port", &Config::discovery_port, "port", 1, kPortMax,
             "UDP port of beacons, the same on all nodes"),
      List("discovery_interfaces", &Config::discovery_interfaces,
           "Interfaces for beacons. Empty: all that are up"),
      List("discovery_seeds", &Config::discovery_seeds,
           "Hosts (host or host:port) that get beacons by unicast, for routed networks"),
      Truth("discovery_loopback", &Config::discovery_loopback,
            "Send beacons on loopback too, for several agents on one machine"),
      Text("control_bind", &Config::control_bind, "Address of the mutual-TLS port between agents"),
      Number("control_port", &Config::control_port, "port", 0, kPortMax,
             "TCP port between agents. 0: any free port"),
      Number("join_port", &Config::join_port, "port", 0, kPortMax,
             "TCP port that is open while a join token is valid. 0: any free port"),
      Text("ring_bind", &Config::ring_bind,
           "Address that ranks listen on. Empty: all, chosen by measured paths"),
      Truth("gateway_enabled", &Config::gateway_enabled, "Serve the HTTP API"),
      Text("gateway_bind", &Config::gateway_bind,
           "Address of the HTTP API; other machines need a key (clusterctl key create)"),
      Choice("gateway_keys", &Config::gateway_keys,
             "Require API keys once one exists (auto), or from the start (required)",
             {"auto", "required"}),
      Truth("gateway_open", &Config::gateway_open,
            "Serve every client without a key while there are no keys"),
      Text("gateway_tls_certificate", &Config::gateway_tls_certificate,
           "PEM certificate chain of the HTTP API. Other machines must use https"),
      Text("gateway_tls_key", &Config::gateway_tls_key, "PEM key of gateway_tls_certificate"),
      Truth("gateway_tls_authority", &Config::gateway_tls_authority,
            "Use TLS with a certificate that the cluster signs and renews"),
      Number("gateway_port", &Config::gateway_port, "port", 0, kPortMax,
             "TCP port of the HTTP API. 0: any free port"),
      List("gateway_hosts", &Config::gateway_hosts,
           "More host names that clients may use for the HTTP API"),
      List("gateway_cors_origins", &Config::gateway_cors_origins,
           "Origins (https://host:port) whose pages may read the API's answers. *: all"),
      List("gateway_aliases", &Config::gateway_aliases,
           "More names of models, as NAME=MODEL. A final * in NAME matches any ending"),
      Truth("gateway_load_on_request", &Config::gateway_load_on_request,
            "Load a model on the first request for it, if a node has its files"),
      Truth("gateway_unload_for_requests", &Config::gateway_unload_for_requests,
            "Unload models idle for 10 s to make room for such loads"),
      Number("gateway_queue_limit_s", &Config::gateway_queue_limit_s, "s", 0, 86'400,
             "Time limit in the queue; then queue_timeout (503). 0: none"),
      Number("response_retention_h", &Config::response_retention_h, "h", 0, 10 * 365 * 24,
             "Lifetime of answers stored for /v1/responses. 0: while there is room"),
  };
}

Keys ClusterKeys() {
  return {
      Number("heartbeat_interval_ms", &Config::heartbeat_interval_ms, "ms", 50, 10'000,
             "Time between heartbeats to each member"),
      Number("suspect_after_ms", &Config::suspect_after_ms, "ms", 100, 60'000,
             "Silence after which a member is suspect"),
      Number("dead_after_ms", &Config::dead_after_ms, "ms", 200, 300'000,
             "Silence after which a member is dead; 5/8 of it if beacons fail too"),
      Number("lease_ms", &Config::lease_ms, "ms", 400, 60'000, "Length of the coordinator's lease"),
      Choice("consistency", &Config::consistency,
             "Majority of the live members (available) or of all listed ones (quorum)",
             {"available", "quorum"}),
      Number("minority_wait_s", &Config::minority_wait_s, "s", 5, 86'400,
             "Time that less than half of the members change nothing (available)"),
      Number("quorum_first_members", &Config::quorum_first_members, "nodes", 1, 64,
             "Number of nodes that write the first list of members together (quorum)"),
      Number("drain_timeout_s", &Config::drain_timeout_s, "s", 0, 3600,
             "Time that running requests have to finish when the agent stops"),
  };
}

Keys LinkKeys() {
  return {
      Choice("transport", &Config::transport,
             "Backend between ranks: the best that works, or only this one",
             {kAnyTransport, NameOf(Backend::kJaccl), NameOf(Backend::kVerbs),
              NameOf(Backend::kRing)}),
      Truth("allow_vpn", &Config::allow_vpn, "Let ranks connect over a VPN's addresses"),
      Number("rdma_nodes_max", &Config::rdma_nodes_max, "nodes", 2, 8,
             "Maximum number of nodes in an RDMA mesh (macOS 26: 4; jaccl itself: 8)"),
      Number("link_probe_interval_s", &Config::link_probe_interval_s, "s", 5, 86'400,
             "Time between checks of this node's own ports and interfaces"),
      Text("support_list", &Config::support_list,
           "YAML list of machines with RDMA. Empty: support.yaml in the state folder"),
  };
}

Keys RankKeys() {
  return {
      Number("rank_connect_timeout_ms", &Config::rank_connect_timeout_ms, "ms", 1000, 600'000,
             "Time limit for a gang's ranks to connect"),
      Number("rank_step_timeout_ms", &Config::rank_step_timeout_ms, "ms", 1000, 3'600'000,
             "Time limit of a step without progress, until steps have been measured"),
      Number("queued_requests_max", &Config::queued_requests_max, "requests", 1, 10'000,
             "Maximum number of requests that wait for one model"),
      Number("models_memory_max_mib", &Config::models_memory_max_mib, "MiB", 0, 1 << 30,
             "Maximum memory of models on this node. 0: as the machine allows"),
      Number("model_idle_unload_s", &Config::model_idle_unload_s, "s", 0, 30 * 24 * 3600,
             "Unload models without a request for this long, as coordinator. 0: never"),
      Number("kv_cache_disk_mib", &Config::kv_cache_disk_mib, "MiB", 0, 1 << 30,
             "Maximum disk space for cached conversations, kept over restarts. 0: none"),
      Number("kv_cache_disk_hours", &Config::kv_cache_disk_hours, "h", 0, 10 * 365 * 24,
             "Delete cached conversations unused for this long. 0: only for space"),
      Choice("metal_fast_synch", &Config::metal_fast_synch,
             "MLX's fast GPU synchronisation. auto: with jaccl, until a gang stalls",
             {"auto", "on", "off"}),
      Text("rankd_path", &Config::rankd_path, "Path of rankd. Empty: next to agentd"),
      Text("mlx_lm_python", &Config::mlx_lm_python,
           "Python with mlx-lm, for models unknown to rankd. Empty: the usual places"),
  };
}

Keys ProcessKeys() {
  return {
      Text("alert_webhook", &Config::alert_webhook,
           "URL that gets lasting problems and their end as JSON (POST). Empty: none"),
      Text("alert_webhook_authorization", &Config::alert_webhook_authorization,
           "Authorization header for the webhook, such as Bearer TOKEN. Empty: none"),
      Text("otlp_endpoint", &Config::otlp_endpoint,
           "URL of an OpenTelemetry collector for traces of requests. Empty: no traces"),
      Text("otlp_headers_file", &Config::otlp_headers_file,
           "File (mode 0600) of 'name: value' headers for the collector. Empty: none"),
      Text("trace_ratio", &Config::trace_ratio,
           "Share of requests to trace, 0 to 1; a traceparent header has priority"),
      Choice("log_level", &Config::log_level, "Lowest level of log lines",
             {"trace", "debug", "info", "warning", "error"}),
      Text("log_file", &Config::log_file, "Log file. Empty: agentd.log in the state folder"),
      Truth("log_to_stderr", &Config::log_to_stderr,
            "Log to standard error too, which is never rotated"),
      Truth("insecure_dev", &Config::insecure_dev,
            "Use no TLS and no secret, on loopback only, for development"),
      Truth("core_dumps", &Config::core_dumps,
            "Allow core dumps of agentd and ranks; they hold keys and conversations"),
  };
}

Keys AllKeys() {
  Keys all;
  for (Keys part :
       {NodeKeys(), NetworkKeys(), ClusterKeys(), LinkKeys(), RankKeys(), ProcessKeys()}) {
    std::move(part.begin(), part.end(), std::back_inserter(all));
  }
  return all;
}

}  // namespace

std::span<const ConfigKey> ConfigKeys() {
  static const Keys keys = AllKeys();
  return keys;
}

}  // namespace macrame::agentd
