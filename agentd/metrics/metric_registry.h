#pragma once

// Counters, gauges and histograms that add up while the agent runs, from whatever thread. A scrape
// takes a copy of all.
//
// A metric keeps kSeriesMax combinations of labels; what comes with others is counted under
// kOtherLabel, so that no caller can make an agent keep more and more of them.

#include <mutex>

#include "agentd/metrics/metric_set.h"

namespace macrame::agentd {

inline constexpr size_t kSeriesMax = 500;
inline constexpr char kOtherLabel[] = "other";

class MetricRegistry {
 public:
  // Of a counter.
  void Count(const Metric& counter, const LabelValues& labels, double by = 1);
  // Of a histogram. `times`: so many values alike.
  void Observe(const Metric& histogram, const LabelValues& labels, double value,
               uint64_t times = 1);
  // Adds all to `set`.
  void CopyTo(MetricSet& set) const;

 private:
  template <typename Value>
  Value& Find(std::map<LabelValues, Value>& series, const LabelValues& labels, Value first);

  mutable std::mutex mutex_;
  std::map<const Metric*, std::map<LabelValues, double>> counters_;
  std::map<const Metric*, std::map<LabelValues, HistogramCounts>> histograms_;
};

}  // namespace macrame::agentd
