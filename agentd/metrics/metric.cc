#include "agentd/metrics/metric.h"

#include <algorithm>
#include <numeric>

#include "absl/strings/str_split.h"

namespace macrame::agentd {

void HistogramCounts::Add(std::span<const double> bounds, double value, uint64_t times) {
  value = value > 0 ? value : 0;
  const auto bucket = std::lower_bound(bounds.begin(), bounds.end(), value) - bounds.begin();
  counts.at(static_cast<size_t>(bucket)) += times;
  sum += value * static_cast<double>(times);
}

uint64_t HistogramCounts::count() const {
  return std::accumulate(counts.begin(), counts.end(), uint64_t{0});
}

std::vector<std::string_view> LabelNames(const Metric& metric) {
  std::vector<std::string_view> names;
  for (const absl::string_view name : absl::StrSplit(
           absl::string_view(metric.labels.data(), metric.labels.size()), ',', absl::SkipEmpty())) {
    names.emplace_back(name.data(), name.size());
  }
  return names;
}

}  // namespace macrame::agentd
