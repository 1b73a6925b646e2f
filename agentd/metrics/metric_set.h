#pragma once

// All values of one moment, by metric: what a scrape shows. Pure; one thread at a time.

#include <map>
#include <string>
#include <utility>
#include <vector>

#include "agentd/metrics/metric.h"

namespace macrame::agentd {

class MetricSet {
 public:
  struct Family {
    const Metric* metric = nullptr;
    std::map<LabelValues, double> values;               // of counters and gauges
    std::map<LabelValues, HistogramCounts> histograms;  // of histograms
  };

  // Where these labels have a value, this one takes its place. As many labels as the metric names
  // (checked).
  void Set(const Metric& metric, LabelValues labels, double value);
  void Set(const Metric& metric, LabelValues labels, HistogramCounts counts);
  // Sums with what is there.
  void Add(const Metric& metric, const LabelValues& labels, double value);

  // By name.
  const std::map<std::string_view, Family>& families() const { return families_; }

 private:
  Family& Of(const Metric& metric, const LabelValues& labels);

  std::map<std::string_view, Family> families_;
};

}  // namespace macrame::agentd
