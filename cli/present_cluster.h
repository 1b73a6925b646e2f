#pragma once

// The machines of the live cluster and the cables between them, as a question for the planner.
// Pure.

#include "macrame/v1/cluster.pb.h"
#include "macrame/v1/planner.pb.h"

namespace macrame::cli {

// Machines that are dead or have left are not counted on. Sockets and cables come from what agents
// probed; where they could not, the planner's tables say what such a machine has.
void AddPresentCluster(const v1::ClusterStatus& status, const v1::LinksView& links,
                       v1::TopologyQuestion* question);

}  // namespace macrame::cli
