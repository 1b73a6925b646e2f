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
      Text("node_name", &Config::node_name, "name shown to people; empty: the hostname"),
      Text("cluster_secret_file", &Config::cluster_secret_file,
           "the cluster's secret (mode 0600); while it is missing this node stands alone"),
      Text("state_folder", &Config::state_folder,
           "node id, desired state, rank files and logs; one agent at a time"),
      Text("machine_id_file", &Config::machine_id_file,
           "a file whose content tells this machine from others, which a copied disk must not "
           "have; empty: what the machine says of itself"),
      Text("socket_path", &Config::socket_path, "unix socket for clusterctl, at most 103 bytes"),
      Text("socket_group", &Config::socket_group,
           "whose members may use the socket too, and so do with the cluster what this agent's "
           "user may; empty: nobody's"),
      List("model_folders", &Config::model_folders, "where models are looked for, first one wins"),
  };
}

Keys NetworkKeys() {
  return {
      Number("discovery_port", &Config::discovery_port, "port", 1, kPortMax,
             "UDP port of beacons, the same on all nodes"),
      List("discovery_interfaces", &Config::discovery_interfaces,
           "interfaces that beacons use; empty: all that are up"),
      List("discovery_seeds", &Config::discovery_seeds,
           "hosts (host or host:port) that get beacons by unicast, for routed networks"),
      Truth("discovery_loopback", &Config::discovery_loopback,
            "beacons on the loopback interface too: several agents on one machine"),
      Text("control_bind", &Config::control_bind, "address of the mutual-TLS port between agents"),
      Number("control_port", &Config::control_port, "port", 0, kPortMax,
             "TCP port between agents; 0: any free one"),
      Number("join_port", &Config::join_port, "port", 0, kPortMax,
             "TCP port that is open while a join token of this node is valid; 0: any free one"),
      Text("ring_bind", &Config::ring_bind,
           "the one address that ranks listen at; empty: all, reached by measured paths"),
      Truth("gateway_enabled", &Config::gateway_enabled, "serve the HTTP API"),
      Text("gateway_bind", &Config::gateway_bind,
           "address of the HTTP API; other machines need a key there (clusterctl key create)"),
      Choice("gateway_keys", &Config::gateway_keys,
             "auto: keys are asked for once one exists, and of other machines always; required: of "
             "everybody, from the start",
             {"auto", "required"}),
      Truth("gateway_open", &Config::gateway_open,
            "while there is no key, serve whoever reaches gateway_bind without one"),
      Text("gateway_tls_certificate", &Config::gateway_tls_certificate,
           "PEM file of the HTTP API's certificate and its chain: other machines then have to use "
           "https"),
      Text("gateway_tls_key", &Config::gateway_tls_key, "PEM file of that certificate's key"),
      Truth("gateway_tls_authority", &Config::gateway_tls_authority,
            "TLS of the HTTP API with a certificate that the cluster's own authority signs and "
            "renews (clusterctl cluster authority)"),
      Number("gateway_port", &Config::gateway_port, "port", 0, kPortMax,
             "TCP port of the HTTP API; 0: any free one"),
      List("gateway_hosts", &Config::gateway_hosts,
           "further host names under which the HTTP API may be reached"),
      List("gateway_cors_origins", &Config::gateway_cors_origins,
           "origins (https://host:port) whose web pages may read the HTTP API's answers; * is "
           "every page"),
      List("gateway_aliases", &Config::gateway_aliases,
           "further names of models, NAME=MODEL each; a NAME that ends in * is every name that "
           "begins so"),
      Truth("gateway_load_on_request", &Config::gateway_load_on_request,
            "a request for a model that is not loaded, and whose files a node has, loads it and "
            "waits for it"),
      Truth(
          "gateway_unload_for_requests", &Config::gateway_unload_for_requests,
          "where what a request loads does not fit, models that nobody used for 10 s are "
          "unloaded, the least recently used first; pinned ones and those with a priority above 0 "
          "stay"),
      Number("gateway_queue_limit_s", &Config::gateway_queue_limit_s, "s", 0, 86'400,
             "how long a request may wait for its turn at a model before it fails with "
             "queue_timeout (503); 0: for ever"),
      Number("response_retention_h", &Config::response_retention_h, "h", 0, 10 * 365 * 24,
             "how long answers for /v1/responses are stored, where their tenant has no order of "
             "its own (clusterctl tenant set --retention); 0: as long as there is room"),
  };
}

Keys ClusterKeys() {
  return {
      Number("heartbeat_interval_ms", &Config::heartbeat_interval_ms, "ms", 50, 10'000,
             "between heartbeats to each member"),
      Number("suspect_after_ms", &Config::suspect_after_ms, "ms", 100, 60'000,
             "silence that makes a member suspect"),
      Number("dead_after_ms", &Config::dead_after_ms, "ms", 200, 300'000,
             "silence that makes a member dead; 5/8 of it where no beacon is answered"),
      Number("lease_ms", &Config::lease_ms, "ms", 400, 60'000, "length of the coordinator's lease"),
      Choice("consistency", &Config::consistency,
             "majority of the live members, or (quorum) of all listed ones",
             {"available", "quorum"}),
      Number("minority_wait_s", &Config::minority_wait_s, "s", 5, 86'400,
             "fewer than half of the listed members change nothing for so long (available)"),
      Number("quorum_first_members", &Config::quorum_first_members, "nodes", 1, 64,
             "nodes that write the first list of members together (quorum)"),
      Number("drain_timeout_s", &Config::drain_timeout_s, "s", 0, 3600,
             "an agent that is told to stop gives answers under way so long to end"),
  };
}

Keys LinkKeys() {
  return {
      Choice("transport", &Config::transport,
             "backend between ranks: the best that works, or this one or none",
             {kAnyTransport, NameOf(Backend::kJaccl), NameOf(Backend::kVerbs),
              NameOf(Backend::kRing)}),
      Truth("allow_vpn", &Config::allow_vpn, "ranks may meet over a VPN's addresses"),
      Number("rdma_nodes_max", &Config::rdma_nodes_max, "nodes", 2, 8,
             "most nodes of one RDMA mesh: 4 as reported for macOS 26; jaccl itself takes 8"),
      Number("link_probe_interval_s", &Config::link_probe_interval_s, "s", 5, 86'400,
             "between looks at this node's own ports and interfaces"),
      Text("support_list", &Config::support_list,
           "dated YAML of machines that RDMA came to; empty: support.yaml in the state folder"),
  };
}

Keys RankKeys() {
  return {
      Number("rank_connect_timeout_ms", &Config::rank_connect_timeout_ms, "ms", 1000, 600'000,
             "for the ranks of a gang to find each other"),
      Number("rank_step_timeout_ms", &Config::rank_step_timeout_ms, "ms", 1000, 3'600'000,
             "without any progress in a forward step, until enough steps were measured to know "
             "sooner"),
      Number("queued_requests_max", &Config::queued_requests_max, "requests", 1, 10'000,
             "requests waiting at one model"),
      Number("models_memory_max_mib", &Config::models_memory_max_mib, "MiB", 0, 1 << 30,
             "most memory that models may take on this node; 0: as the machine allows"),
      Number("model_idle_unload_s", &Config::model_idle_unload_s, "s", 0, 30 * 24 * 3600,
             "while this node coordinates, models that nobody asks for in so long are unloaded; "
             "0: never"),
      Number("kv_cache_disk_mib", &Config::kv_cache_disk_mib, "MiB", 0, 1 << 30,
             "conversations that models keep in state_folder/kv_cache across restarts; 0: none"),
      Number("kv_cache_disk_hours", &Config::kv_cache_disk_hours, "h", 0, 10 * 365 * 24,
             "what of them no prompt used for so long is removed, while a model is loaded; 0: they "
             "give way for room alone"),
      Choice("metal_fast_synch", &Config::metal_fast_synch,
             "MLX's fast GPU synchronisation: auto is over jaccl until a gang stalls with it",
             {"auto", "on", "off"}),
      Text("rankd_path", &Config::rankd_path, "the rank program; empty: rankd beside agentd"),
      Text("mlx_lm_python", &Config::mlx_lm_python,
           "a Python with mlx-lm, for models that rankd does not know; empty: the usual places"),
  };
}

Keys ProcessKeys() {
  return {
      Text("alert_webhook", &Config::alert_webhook,
           "a URL that is told, as JSON by POST, of problems that stay and of their end; the same "
           "on every node; empty: none"),
      Text("alert_webhook_authorization", &Config::alert_webhook_authorization,
           "what is sent there as Authorization, such as Bearer TOKEN; empty: nothing"),
      Text("otlp_endpoint", &Config::otlp_endpoint,
           "URL of an OpenTelemetry collector (http://127.0.0.1:4318) that traces of requests go "
           "to, at its /v1/traces; empty: none are taken"),
      Text("otlp_headers_file", &Config::otlp_headers_file,
           "a file (mode 0600) of lines 'name: value' that are sent there as headers, such as a "
           "token; empty: none"),
      Text("trace_ratio", &Config::trace_ratio,
           "share of requests that are traced, 0 to 1; those that come with a trace of their own "
           "are as that says"),
      Choice("log_level", &Config::log_level, "least important lines that are logged",
             {"trace", "debug", "info", "warning", "error"}),
      Text("log_file", &Config::log_file,
           "log lines go here besides standard error; empty: agentd.log in the state folder"),
      Truth("log_to_stderr", &Config::log_to_stderr,
            "log lines go to standard error too, which nobody rotates; what comes before the log "
            "is open always does"),
      Truth("insecure_dev", &Config::insecure_dev,
            "no TLS and no secret, loopback only: for development"),
      Truth("core_dumps", &Config::core_dumps,
            "let the system keep the memory of agentd and its ranks when they crash: it holds keys "
            "and conversations"),
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
