#include "agentd/metrics/metric_set.h"

#include <algorithm>

#include "proto/check.h"

namespace macrame::agentd {

MetricSet::Family& MetricSet::Of(const Metric& metric, const LabelValues& labels) {
  const auto named =
      metric.labels.empty() ? 0 : std::count(metric.labels.begin(), metric.labels.end(), ',') + 1;
  MACRAME_CHECK(labels.size() == static_cast<size_t>(named))
      << std::string(metric.name) << " has the labels " << std::string(metric.labels);
  Family& family = families_[metric.name];
  family.metric = &metric;
  return family;
}

void MetricSet::Set(const Metric& metric, LabelValues labels, double value) {
  Of(metric, labels).values[std::move(labels)] = value;
}

void MetricSet::Set(const Metric& metric, LabelValues labels, HistogramCounts counts) {
  MACRAME_CHECK(counts.counts.size() == metric.bounds.size() + 1)
      << std::string(metric.name) << " has other buckets";
  Of(metric, labels).histograms.insert_or_assign(std::move(labels), std::move(counts));
}

void MetricSet::Add(const Metric& metric, const LabelValues& labels, double value) {
  Of(metric, labels).values[labels] += value;
}

}  // namespace macrame::agentd
