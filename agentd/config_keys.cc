// The table of settings.

#include <vector>

#include "agentd/config.h"

namespace macrame::agentd {
namespace {

constexpr int64_t kPortMax = 65'535;

const std::vector<ConfigKey>& Keys() {
  static const std::vector<ConfigKey> keys = {
      {"node_name", &Config::node_name, "name shown to people; empty: the hostname", "", 0, 0, {}},
      {"cluster_secret_file", &Config::cluster_secret_file,
       "the cluster's secret (mode 0600); while it is missing this node stands alone", "", 0, 0, {}},
      {"state_folder", &Config::state_folder,
       "node id, desired state, rank files and logs; one agent at a time", "", 0, 0, {}},
      {"socket_path", &Config::socket_path, "unix socket for clusterctl, at most 103 bytes", "", 0, 0,
       {}},
      {"model_folders", &Config::model_folders, "where models are looked for, first one wins", "", 0,
       0, {}},
      {"discovery_port", &Config::discovery_port, "UDP port of beacons, the same on all nodes",
       "port", 1, kPortMax, {}},
      {"discovery_interfaces", &Config::discovery_interfaces,
       "interfaces that beacons use; empty: all that are up", "", 0, 0, {}},
      {"discovery_seeds", &Config::discovery_seeds,
       "hosts (host or host:port) that get beacons by unicast, for routed networks", "", 0, 0, {}},
      {"discovery_loopback", &Config::discovery_loopback,
       "beacons on the loopback interface too: several agents on one machine", "", 0, 0, {}},
      {"control_bind", &Config::control_bind, "address of the mutual-TLS port between agents", "", 0,
       0, {}},
      {"control_port", &Config::control_port, "TCP port between agents; 0: any free one", "port", 0,
       kPortMax, {}},
      {"ring_bind", &Config::ring_bind,
       "address that ranks exchange activations at; empty: this node's best", "", 0, 0, {}},
      {"gateway_enabled", &Config::gateway_enabled, "serve the HTTP API", "", 0, 0, {}},
      {"gateway_bind", &Config::gateway_bind, "address of the HTTP API", "", 0, 0, {}},
      {"gateway_port", &Config::gateway_port, "TCP port of the HTTP API; 0: any free one", "port", 0,
       kPortMax, {}},
      {"gateway_hosts", &Config::gateway_hosts,
       "further host names under which the HTTP API may be reached on loopback", "", 0, 0, {}},
      {"heartbeat_interval_ms", &Config::heartbeat_interval_ms, "between heartbeats to each member",
       "ms", 50, 10'000, {}},
      {"suspect_after_ms", &Config::suspect_after_ms, "silence that makes a member suspect", "ms",
       100, 60'000, {}},
      {"dead_after_ms", &Config::dead_after_ms, "silence that makes a member dead", "ms", 200,
       300'000, {}},
      {"lease_ms", &Config::lease_ms, "length of the coordinator's lease", "ms", 400, 60'000, {}},
      {"consistency", &Config::consistency,
       "majority of the live members, or (quorum) of all known ones", "", 0, 0,
       {"available", "quorum"}},
      {"rank_connect_timeout_ms", &Config::rank_connect_timeout_ms,
       "for the ranks of a gang to find each other", "ms", 1000, 600'000, {}},
      {"rank_step_timeout_ms", &Config::rank_step_timeout_ms,
       "for one forward step; a rank that takes longer is ended", "ms", 1000, 3'600'000, {}},
      {"queued_requests_max", &Config::queued_requests_max, "requests waiting at one model",
       "requests", 1, 10'000, {}},
      {"rankd_path", &Config::rankd_path, "the rank program; empty: rankd beside agentd", "", 0, 0,
       {}},
      {"log_level", &Config::log_level, "least important lines that are logged", "", 0, 0,
       {"trace", "debug", "info", "warning", "error"}},
      {"log_file", &Config::log_file,
       "log lines go here besides standard error; empty: agentd.log in the state folder", "", 0, 0,
       {}},
      {"insecure_dev", &Config::insecure_dev,
       "no TLS and no secret, loopback only: for development", "", 0, 0, {}},
  };
  return keys;
}

}  // namespace

std::span<const ConfigKey> ConfigKeys() { return Keys(); }

}  // namespace macrame::agentd
