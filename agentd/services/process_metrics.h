#pragma once

// What the system says of this process, as metrics. Any thread.

#include "agentd/metrics/metric_set.h"

namespace macrame::agentd {

// What can't be found out is left out. `started_unix_seconds`: when the agent was started.
void AddProcessMetrics(double started_unix_seconds, MetricSet& set);

// Processor time of the calling thread so far; 0: not known.
double ThreadCpuSeconds();

}  // namespace macrame::agentd
