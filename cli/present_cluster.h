#pragma once

// The machines of the live cluster and the cables between them, as a question for the planner.
// Pure.

#include <map>
#include <string>

#include "macrame/v1/cluster.pb.h"
#include "macrame/v1/planner.pb.h"

namespace macrame::cli {

// Machines that are dead or have left are not counted on. Sockets and cables come from what agents
// probed; where they could not, the planner's tables say what such a machine has.
void AddPresentCluster(const v1::ClusterStatus& status, const v1::LinksView& links,
                       v1::TopologyQuestion* question);

// What each node of the live cluster is called in a question, by its id: its hostname, with a part
// of the id where several have it.
std::map<std::string, std::string> PresentNames(const v1::ClusterStatus& status);

// The live cluster as a file describes one (planner/offline/cluster_file.h), for models whose files
// no node has: memory that is free now, paths as they were measured.
std::string PresentClusterFile(const v1::ClusterStatus& status, const v1::LinksView& links);

}  // namespace macrame::cli
