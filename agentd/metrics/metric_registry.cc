#include "agentd/metrics/metric_registry.h"

namespace macrame::agentd {

template <typename Value>
Value& MetricRegistry::Find(std::map<LabelValues, Value>& series, const LabelValues& labels,
                            Value first) {
  const auto found = series.find(labels);
  if (found != series.end()) return found->second;
  if (series.size() < kSeriesMax) return series.try_emplace(labels, std::move(first)).first->second;
  return series.try_emplace(LabelValues(labels.size(), kOtherLabel), std::move(first))
      .first->second;
}

void MetricRegistry::Count(const Metric& counter, const LabelValues& labels, double by) {
  const std::lock_guard lock(mutex_);
  Find(counters_[&counter], labels, 0.0) += by;
}

void MetricRegistry::Observe(const Metric& histogram, const LabelValues& labels, double value,
                             uint64_t times) {
  const std::lock_guard lock(mutex_);
  Find(histograms_[&histogram], labels, HistogramCounts(histogram.bounds.size()))
      .Add(histogram.bounds, value, times);
}

void MetricRegistry::CopyTo(MetricSet& set) const {
  const std::lock_guard lock(mutex_);
  for (const auto& [metric, series] : counters_) {
    for (const auto& [labels, value] : series) set.Set(*metric, labels, value);
  }
  for (const auto& [metric, series] : histograms_) {
    for (const auto& [labels, counts] : series) set.Set(*metric, labels, counts);
  }
}

}  // namespace macrame::agentd
