#pragma once

// A MetricSet as text: Prometheus' format 0.0.4, OpenMetrics 1.0.0, or JSON. Pure.

#include <optional>
#include <string>
#include <string_view>

#include "agentd/metrics/metric_set.h"

namespace macrame::agentd {

enum class MetricsFormat { kPrometheus, kOpenMetrics, kJson };

// Families by name, samples by labels.
std::string Expose(const MetricSet& set, MetricsFormat format);
std::string_view ContentTypeOf(MetricsFormat format);

// "prometheus", "openmetrics", "json"; nullopt: another word.
std::optional<MetricsFormat> MetricsFormatFromName(std::string_view name);
// By the header Accept: OpenMetrics where it is asked for at least as much as plain text.
MetricsFormat FormatForAccept(std::string_view accept);

}  // namespace macrame::agentd
