#pragma once

// What an agent knows of its cluster, as metrics. Pure.

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "agentd/metrics/metric_set.h"
#include "macrame/v1/access.pb.h"
#include "macrame/v1/cluster.pb.h"

namespace macrame::agentd {

// What this agent alone saw of other nodes, by node id.
struct SeenOfNodes {
  std::map<std::string, double> round_trip_seconds;  // of heartbeats
  std::map<std::string, uint64_t> deaths;
};

// Cluster, nodes, problems, links, models, and what is known of all ranks. `is_notice`: whether a
// problem of this code leaves a cluster healthy.
void AddClusterMetrics(const v1::ClusterStatus& status, const SeenOfNodes& seen,
                       bool (*is_notice)(std::string_view code), MetricSet& set);

// What requests by this gateway took, by key.
void AddKeyEnergy(const std::vector<v1::KeyEnergy>& keys, MetricSet& set);

// Ranks of the node itself: steps and waits of each; what entry ranks serve, by vLLM's names.
void AddRankMetrics(const std::vector<v1::RankStatus>& ranks, MetricSet& set);

// Of a rank's own histogram, in microseconds. Its buckets grow by a fifth: each is counted where
// its upper end is, so a value may stand in a bucket that is up to a fifth too high.
HistogramCounts InSeconds(const v1::LogHistogram& microseconds, const Metric& metric);

}  // namespace macrame::agentd
