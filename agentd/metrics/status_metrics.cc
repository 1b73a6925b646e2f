#include "agentd/metrics/status_metrics.h"

#include <algorithm>
#include <cmath>
#include <map>

#include "absl/strings/str_cat.h"
#include "agentd/metrics/metric_names.h"
#include "proto/backends.h"
#include "proto/log_histogram.h"
#include "proto/power_parts.h"
#include "proto/replicas.h"

namespace macrame::agentd {
namespace {

namespace m = metrics;

constexpr double kMicroseconds = 1e-6;

struct NodeStateName {
  v1::NodeState state;
  const char* name;
};
constexpr NodeStateName kNodeStates[] = {{v1::NODE_STATE_ALIVE, "alive"},
                                         {v1::NODE_STATE_SUSPECT, "suspect"},
                                         {v1::NODE_STATE_DEAD, "dead"},
                                         {v1::NODE_STATE_LEFT, "left"}};

struct DeploymentStateName {
  v1::DeploymentState state;
  const char* name;
};
constexpr DeploymentStateName kDeploymentStates[] = {
    {v1::DEPLOYMENT_STATE_PENDING, "pending"},
    {v1::DEPLOYMENT_STATE_LAUNCHING, "launching"},
    {v1::DEPLOYMENT_STATE_READY, "ready"},
    {v1::DEPLOYMENT_STATE_BACKING_OFF, "backing_off"},
    {v1::DEPLOYMENT_STATE_REMOVING, "removing"}};

const char* KindName(v1::InterfaceKind kind) {
  switch (kind) {
    case v1::INTERFACE_KIND_ETHERNET:
      return "ethernet";
    case v1::INTERFACE_KIND_WIFI:
      return "wifi";
    case v1::INTERFACE_KIND_THUNDERBOLT:
      return "thunderbolt";
    case v1::INTERFACE_KIND_BRIDGE:
      return "bridge";
    case v1::INTERFACE_KIND_VPN:
      return "vpn";
    case v1::INTERFACE_KIND_LOOPBACK:
      return "loopback";
    default:
      return "unknown";
  }
}

const char* KindName(v1::LinkKind kind) {
  switch (kind) {
    case v1::LINK_KIND_THUNDERBOLT:
      return "thunderbolt";
    case v1::LINK_KIND_VERBS:
      return NameOf(Backend::kVerbs);
    default:
      return "ip";
  }
}

// The names under which nodes are told apart: the one that people see, and where two have the same
// one, the first digits of the id behind it.
class NodeNames {
 public:
  explicit NodeNames(const v1::ClusterStatus& status) {
    std::map<std::string, int> times;
    for (const v1::NodeStatus& node : status.nodes()) ++times[node.identity().hostname()];
    for (const v1::NodeStatus& node : status.nodes()) {
      const std::string& id = node.identity().node_id();
      const std::string& name = node.identity().hostname();
      const bool is_alone = !name.empty() && times[name] == 1;
      names_[id] = is_alone ? name : absl::StrCat(name, name.empty() ? "" : "-", id.substr(0, 8));
    }
  }
  std::string Of(const std::string& id) const {
    const auto found = names_.find(id);
    return found == names_.end() ? id.substr(0, 8) : found->second;
  }

 private:
  std::map<std::string, std::string> names_;
};

void AddInventory(const std::string& node, const v1::Inventory& inventory, MetricSet& set) {
  if (inventory.node_id().empty()) return;
  const uint64_t gpu = inventory.memory_gpu_usable_bytes();
  const uint64_t configured = inventory.memory_models_max_bytes();
  set.Set(m::kMemoryTotal, {node}, static_cast<double>(inventory.memory_total_bytes()));
  set.Set(m::kMemoryUsable, {node},
          static_cast<double>(configured == 0 ? gpu : std::min(gpu, configured)));
  set.Set(m::kSwapTotal, {node}, static_cast<double>(inventory.swap_total_bytes()));
  if (inventory.boot_time_unix_seconds() > 0) {
    set.Set(m::kBootTime, {node}, static_cast<double>(inventory.boot_time_unix_seconds()));
  }
  for (const v1::Disk& disk : inventory.disks()) {
    set.Set(m::kDiskTotal, {node, disk.path()}, static_cast<double>(disk.total_bytes()));
    set.Set(m::kDiskFree, {node, disk.path()}, static_cast<double>(disk.free_bytes()));
  }
}

// What was last said of a node that is not there is no longer so.
void AddLoad(const std::string& node, const v1::NodeLoad& load, MetricSet& set) {
  set.Set(m::kMemoryAvailable, {node}, static_cast<double>(load.memory_available_bytes()));
  set.Set(m::kMemoryHeld, {node}, static_cast<double>(load.reserved_bytes()));
  set.Set(m::kSwapUsed, {node}, static_cast<double>(load.swap_used_bytes()));
  set.Set(m::kCpuBusy, {node}, load.cpu_busy_ratio());
  set.Set(m::kOnBattery, {node}, load.on_battery() ? 1 : 0);
  if (load.memory_pressure() != v1::MEMORY_PRESSURE_UNSPECIFIED) {
    set.Set(m::kMemoryPressure, {node},
            static_cast<double>(load.memory_pressure() - v1::MEMORY_PRESSURE_NORMAL));
  }
  if (load.gpu_busy_ratio() >= 0) set.Set(m::kGpuBusy, {node}, load.gpu_busy_ratio());
  const std::string covers = CoversText(load.power_parts());
  if (load.power_watts() >= 0 && !covers.empty()) {
    set.Set(m::kPower, {node, covers}, load.power_watts());
  }
  if (load.has_energy_joules() && !covers.empty()) {
    set.Set(m::kEnergy, {node, covers}, load.energy_joules());
  }
  if (load.has_temperature_celsius()) {
    set.Set(m::kTemperature, {node}, load.temperature_celsius());
  }
  if (load.thermal_state() != v1::THERMAL_STATE_UNSPECIFIED) {
    set.Set(m::kThrottled, {node}, load.thermal_state() == v1::THERMAL_STATE_THROTTLED ? 1 : 0);
  }
}

void AddNodes(const v1::ClusterStatus& status, const NodeNames& names, MetricSet& set) {
  for (const v1::NodeStatus& node : status.nodes()) {
    const std::string name = names.Of(node.identity().node_id());
    const bool is_alive = node.state() == v1::NODE_STATE_ALIVE;
    set.Set(m::kNodeUp, {name}, is_alive ? 1 : 0);
    for (const NodeStateName& state : kNodeStates) {
      set.Set(m::kNodeState, {name, state.name}, node.state() == state.state ? 1 : 0);
    }
    set.Set(m::kNodeInfo,
            {name, node.identity().node_id(), node.identity().agent_version(),
             absl::StrCat(node.inventory().os_name(), " ", node.inventory().os_version()),
             node.inventory().chip()},
            1);
    set.Set(m::kNodeDraining, {name}, node.draining() ? 1 : 0);
    set.Set(m::kCoordinator, {name}, node.is_coordinator() ? 1 : 0);
    if (!node.is_self()) {
      set.Set(m::kHeartbeatAge, {name}, static_cast<double>(node.last_heartbeat_age_ms()) / 1000);
    }
    AddInventory(name, node.inventory(), set);
    if (!is_alive) continue;
    AddLoad(name, node.load(), set);
    if (!node.transport_verdict().empty()) {
      set.Set(m::kNodeTransport, {name, node.transport_verdict()}, 1);
    }
  }
}

void AddLinks(const v1::ClusterLinks& links, const NodeNames& names, MetricSet& set) {
  for (const v1::NodePath& path : links.paths()) {
    const LabelValues way = {names.Of(path.from_node_id()), names.Of(path.to_node_id()),
                             KindName(path.kind())};
    if (path.bandwidth_bytes_per_second() > 0) {
      set.Set(m::kLinkBandwidth, way, path.bandwidth_bytes_per_second());
    }
    if (path.round_trip_us() > 0) {
      set.Set(m::kLinkLatency, way, path.round_trip_us() * kMicroseconds);
    }
  }
  for (const v1::LinkVerdict& link : links.links()) {
    if (link.kind() != v1::LINK_KIND_THUNDERBOLT && link.kind() != v1::LINK_KIND_VERBS) continue;
    const std::string a = names.Of(link.a().node_id()), b = names.Of(link.b().node_id());
    if (link.rdma_usable() != v1::FACT_UNKNOWN) {
      set.Set(m::kLinkRdma, {a, b, KindName(link.kind()), link.a().interface_name()},
              link.rdma_usable() == v1::FACT_YES ? 1 : 0);
    }
    for (const v1::Reason& reason : link.reasons()) {
      set.Set(m::kLinkProblems, {a, b, reason.code()}, 1);
    }
  }
  if (!links.group().verdict().empty()) {
    set.Set(m::kTransportVerdict, {links.group().verdict()}, 1);
  }
}

void AddRanksOf(const v1::DeploymentStatus& status, const NodeNames& names, MetricSet& set) {
  const std::string& model = status.deployment().name();
  double running = 0, queued = 0;
  for (const v1::RankStatus& rank : status.ranks()) {
    const std::string gang = rank.deployment().empty() ? model : rank.deployment();
    const LabelValues labels = {gang, absl::StrCat(rank.rank()), names.Of(rank.node_id())};
    set.Set(m::kRankState, labels, rank.phase() == v1::RANK_PHASE_READY ? 1 : 0);
    set.Set(m::kRankMemory, labels, static_cast<double>(rank.memory_bytes()));
    set.Set(m::kRankProgress, labels, rank.progress());
    set.Set(m::kRankCollectiveBytes, labels, static_cast<double>(rank.collective_bytes()));
    if (rank.rank() != 0) continue;
    running += rank.requests_running();
    queued += rank.requests_queued();
  }
  set.Set(m::kModelRunning, {model}, running);
  set.Set(m::kModelQueued, {model}, queued);
}

void AddEnergy(const std::string& model, const v1::ModelEnergy& energy, MetricSet& set) {
  const std::string covers = energy.parts_differ() ? "mixed" : CoversText(energy.parts());
  if (covers.empty() || !(energy.joules() > 0)) return;
  const auto tokens = static_cast<double>(energy.generated_tokens());
  set.Set(m::kModelEnergy, {model, covers}, energy.joules());
  set.Set(m::kModelEnergyTokens, {model, covers}, tokens);
  set.Set(m::kModelTokensPerJoule, {model, covers}, tokens / energy.joules());
}

void AddModels(const v1::ClusterStatus& status, const NodeNames& names, MetricSet& set) {
  for (const v1::DeploymentStatus& deployment : status.deployments()) {
    const std::string& model = deployment.deployment().name();
    for (const DeploymentStateName& state : kDeploymentStates) {
      set.Set(m::kModelState, {model, state.name}, deployment.state() == state.state ? 1 : 0);
    }
    set.Set(m::kModelReady, {model}, deployment.state() == v1::DEPLOYMENT_STATE_READY ? 1 : 0);
    set.Set(m::kModelSpeed, {model}, deployment.tokens_per_second());
    set.Set(m::kGangEpoch, {model}, static_cast<double>(deployment.epoch()));
    set.Set(m::kGangAttempts, {model}, deployment.attempts());
    if (!deployment.degraded().code().empty()) {
      set.Set(m::kModelDegraded, {model, deployment.degraded().code()}, 1);
    }
    for (const v1::Reason& fallback : deployment.fallbacks()) {
      set.Set(m::kModelFallback, {model, fallback.code()}, 1);
    }
    if (!deployment.plan().backend().empty()) {
      set.Set(m::kModelTransport, {model, deployment.plan().backend()}, 1);
    }
    AddRanksOf(deployment, names, set);
    AddEnergy(model, deployment.energy(), set);
  }
}

// Which replica of its deployment a gang is, from 0.
std::string EngineOf(const std::string& gang) {
  const std::string deployment = DeploymentOfReplica(gang);
  for (uint32_t index = 0; index < kReplicasMax; ++index) {
    if (ReplicaName(deployment, index) == gang) return absl::StrCat(index);
  }
  return "0";
}

void AddEntryRank(const v1::RankStatus& rank, MetricSet& set) {
  const LabelValues labels = {DeploymentOfReplica(rank.deployment()), EngineOf(rank.deployment())};
  set.Set(m::kVllmRequestsRunning, labels, rank.requests_running());
  set.Set(m::kVllmRequestsWaiting, labels, rank.requests_queued());
  set.Set(m::kVllmKvCacheUsage, labels, rank.kv_cache_used_ratio());
  set.Set(m::kVllmPreemptions, labels, static_cast<double>(rank.preemptions_total()));
  set.Set(m::kVllmDraftTokens, labels, static_cast<double>(rank.draft_tokens_total()));
  set.Set(m::kVllmAcceptedTokens, labels, static_cast<double>(rank.accepted_tokens_total()));
  if (!rank.has_timings()) return;
  set.Set(m::kVllmQueueTime, labels, InSeconds(rank.timings().queue_us(), m::kVllmQueueTime));
  set.Set(m::kRankFirstToken, {rank.deployment()},
          InSeconds(rank.timings().first_token_us(), m::kRankFirstToken));
}

}  // namespace

HistogramCounts InSeconds(const v1::LogHistogram& microseconds, const Metric& metric) {
  HistogramCounts counts(metric.bounds.size());
  const int buckets = std::min(microseconds.buckets_size(), microseconds.counts_size());
  for (int i = 0; i < buckets; ++i) {
    // A little less than where the bucket ends: the bound itself belongs to the next.
    const double end = std::pow(LogHistogram::kGrowth, microseconds.buckets(i)) * (1 - 1e-9);
    counts.Add(metric.bounds, end * kMicroseconds, microseconds.counts(i));
  }
  counts.sum = std::isfinite(microseconds.sum()) ? microseconds.sum() * kMicroseconds : 0;
  return counts;
}

void AddClusterMetrics(const v1::ClusterStatus& status, const SeenOfNodes& seen,
                       bool (*is_notice)(std::string_view code), MetricSet& set) {
  const NodeNames names(status);
  set.Set(m::kClusterInfo, {status.cluster_name(), status.cluster_id()}, 1);
  set.Set(m::kClusterHealthy, {}, status.healthy() ? 1 : 0);
  set.Set(m::kUnknownNodes, {}, status.unknown_nodes_size());
  set.Set(m::kCoordinatorTerm, {}, static_cast<double>(status.coordinator().term()));
  for (const v1::Reason& problem : status.problems()) {
    set.Add(m::kProblems, {problem.code(), is_notice(problem.code()) ? "notice" : "error"}, 1);
  }
  AddNodes(status, names, set);
  for (const auto& [node, seconds] : seen.round_trip_seconds) {
    set.Set(m::kRoundTrip, {names.Of(node)}, seconds);
  }
  for (const auto& [node, times] : seen.deaths) {
    set.Set(m::kNodeDeaths, {names.Of(node)}, static_cast<double>(times));
  }
  AddLinks(status.links(), names, set);
  AddModels(status, names, set);
}

void AddKeyEnergy(const std::vector<v1::KeyEnergy>& keys, MetricSet& set) {
  for (const v1::KeyEnergy& key : keys) {
    const std::string id = key.key_id().empty() ? "none" : key.key_id();
    set.Set(m::kKeyEnergy, {id}, key.joules());
    set.Set(m::kKeyEnergyTokens, {id}, static_cast<double>(key.generated_tokens()));
  }
}

void AddRankMetrics(const std::vector<v1::RankStatus>& ranks, MetricSet& set) {
  for (const v1::RankStatus& rank : ranks) {
    if (rank.phase() != v1::RANK_PHASE_READY) continue;
    if (rank.rank() == 0) AddEntryRank(rank, set);
    if (!rank.has_timings()) continue;
    const LabelValues labels = {rank.deployment(), absl::StrCat(rank.rank())};
    const v1::RankTimings& took = rank.timings();
    set.Set(m::kRankPrefillStep, labels, InSeconds(took.prefill_step_us(), m::kRankPrefillStep));
    set.Set(m::kRankDecodeStep, labels, InSeconds(took.decode_step_us(), m::kRankDecodeStep));
    set.Set(m::kRankCollective, labels, InSeconds(took.collective_us(), m::kRankCollective));
  }
}

}  // namespace macrame::agentd
