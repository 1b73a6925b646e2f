#pragma once

// What the ranks of a loaded model measured of their own steps. Pure.

#include <string>

#include "cli/format/message_json.h"
#include "cli/format/text.h"
#include "macrame/v1/cluster.pb.h"

namespace macrame::cli {

// One table a deployment: requests and steps as the entry rank saw them, then each rank's waiting;
// below it, how often answers were preempted, and what it took of energy.
std::string TimingsView(const v1::ClusterStatus& status, const v1::DeploymentStatus& deployment,
                        int width, const Style& style);
// "deployment", "epoch", "energy" (null where it is not known) and "ranks", each with preemptions
// so far and with count, mean, p50, p95, p99 and max of each timing.
Json TimingsJson(const v1::DeploymentStatus& deployment);

}  // namespace macrame::cli
