#pragma once

// What this agent counts, and how it is told: /metrics of the gateway, `clusterctl metrics`. Owner
// thread, but for backend(), NoteRequest, NoteSpans…, Page and Latencies.

#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "agentd/cores/desired_state.h"
#include "agentd/gateway/gateway.h"
#include "agentd/metrics/exposition.h"
#include "agentd/metrics/latency_history.h"
#include "agentd/metrics/metric_registry.h"
#include "agentd/metrics/status_metrics.h"
#include "agentd/node/heartbeat_sender.h"
#include "agentd/node/own_node.h"
#include "agentd/services/cluster_service.h"
#include "agentd/services/energy_service.h"
#include "agentd/services/metered_backend.h"
#include "agentd/services/status_reporter.h"
#include "transport/rpc_server.h"

namespace macrame::agentd {

class MetricsService {
 public:
  struct Parts {
    transport::Dispatcher& dispatcher;
    StatusReporter& reporter;
    ClusterService& cluster_service;
    const HeartbeatSender& heartbeats;
    OwnNode& own;
    InferenceBackend& router;
    EnergyService& energy;
    // Null while there is none.
    std::function<const Gateway*()> gateway;
    uint64_t connections_max = 0;
  };

  explicit MetricsService(Parts parts);

  void RegisterLocal(transport::RpcServer& server);

  // What the gateway asks for text: the router, counted.
  InferenceBackend& backend() { return backend_; }
  // A request of the gateway is over.
  void NoteRequest(const RequestRecord& record);
  // Spans for a collector: that it took, or that it will never have. Any thread.
  void NoteSpansSent(uint64_t count);
  void NoteSpansDropped(uint64_t count);
  // For a scrape; `reply` once, on the owner thread. Has all that was counted before the call.
  void Page(const std::string& accept, std::function<void(MetricsPage)> reply);
  // For the dashboard: latency_history.h says what stands in it.
  std::shared_ptr<const std::string> Latencies();

  // Whom this node obeys changed.
  void NoteCoordinator(const std::string& node_id);
  void NoteDead(const NodeId& node) { ++seen_.deaths[node.value()]; }
  // The desired state changed.
  void NoteGangs(const DesiredState& desired);

 private:
  using TakeText = std::function<void(std::shared_ptr<const std::string>)>;
  struct PageUnderWay {
    MonotonicTime begun;
    std::vector<TakeText> waiting;  // empty: none is under way
  };

  // One page of a format is made at a time: all who ask before its figures are read share it. So
  // any number of clients keeps the owner thread busy with one page of each format at the most.
  // Pages are whole: what a key may not know is taken out where they are sent. `take` once, on the
  // owner thread. Any thread.
  void TellPage(MetricsFormat format, TakeText take);
  std::string Text(MetricsFormat format);
  void AddOwn(MetricSet& set) const;

  Parts parts_;
  const std::shared_ptr<MetricRegistry> registry_;
  const std::shared_ptr<LatencyHistory> latencies_;
  const std::shared_ptr<const bool> alive_ = std::make_shared<const bool>(true);
  std::mutex pages_mutex_;
  std::map<MetricsFormat, PageUnderWay> pages_;
  MeteredBackend backend_;
  const double started_unix_seconds_;
  std::string coordinator_;
  SeenOfNodes seen_;
  std::map<std::string, uint64_t> epochs_;  // of each gang, as last seen
};

}  // namespace macrame::agentd
