#pragma once

// What a metric is: its name, kind, labels and meaning, each declared once (metric_names.h).
//
// Names follow Prometheus: the unit is the last word, counters end in _total. Labels have few
// values each. Pure; any thread.

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace macrame::agentd {

enum class MetricKind { kCounter, kGauge, kHistogram };

struct Metric {
  std::string_view name;
  MetricKind kind = MetricKind::kGauge;
  std::string_view unit;    // "seconds", "bytes", "ratio", …; empty: a number of things
  std::string_view labels;  // "model_name,engine"; empty: none
  std::string_view help;    // one line
  std::span<const double> bounds = {};  // of a histogram: upper ends of its buckets, rising
};

// In the order of Metric::labels.
using LabelValues = std::vector<std::string>;

// Values that were counted into buckets. counts[i]: at most bounds[i]; the last one: above all.
struct HistogramCounts {
  std::vector<uint64_t> counts;
  double sum = 0;

  explicit HistogramCounts(size_t bounds = 0) : counts(bounds + 1) {}
  // NaN and negative values count as 0. `times`: so many values alike.
  void Add(std::span<const double> bounds, double value, uint64_t times = 1);
  uint64_t count() const;
};

std::vector<std::string_view> LabelNames(const Metric& metric);

}  // namespace macrame::agentd
