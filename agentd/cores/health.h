#pragma once

// One notion of health and one list of problems, for `status`, `doctor` and whoever else asks.
// Pure.

#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "macrame/v1/cluster.pb.h"
#include "macrame/v1/link.pb.h"

namespace macrame::agentd {

// Worth knowing, while everything that was asked for is served: it does not make a cluster
// unhealthy.
bool IsNotice(std::string_view code);

// Sets `problems` and `healthy` of a status whose nodes, deployments and coordinator are filled in:
// `found` (what only the agent knows), then what these show: nodes that are not there, models that
// are not served as they were asked for. Each is said once. Healthy: a coordinator, all nodes
// alive, all deployments ready, and nothing in the list but notices.
void JudgeHealth(std::vector<v1::Reason> found, v1::ClusterStatus* status);

// A finding for each of these problems that the diagnosis has none of yet, and a conclusion that
// does not say that all is well when it is not. `asked`: only problems of these nodes, by id, and
// of none; empty: all.
void AddProblems(const std::vector<v1::Reason>& problems, const std::set<std::string>& asked,
                 v1::Diagnosis* diagnosis);

}  // namespace macrame::agentd
