#pragma once

// The cluster's links in the planner's words: for each pair of nodes the backends that work between
// the two, and what was measured of the path that TCP takes. Pure but for asking the link table.

#include <functional>
#include <string>
#include <vector>

#include "macrame/v1/link.pb.h"
#include "macrame/v1/plan.pb.h"

namespace macrame::agentd {

// `pair_verdict` says what two nodes can run together, refusals that are remembered included.
std::vector<v1::PlannerLink> PlannerLinks(
    const v1::ClusterLinks& links, const std::vector<std::string>& node_ids,
    const std::function<v1::GroupVerdict(const std::string&, const std::string&)>& pair_verdict);

}  // namespace macrame::agentd
