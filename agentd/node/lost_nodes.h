#pragma once

// What is said of members that do not answer: the links' facts know only live ones that do. Pure.

#include <set>
#include <string>
#include <vector>

#include "agentd/node/node_views.h"
#include "macrame/v1/link.pb.h"

namespace macrame::agentd {

// A finding, before all others, for each node that is dead or suspect; none for one that left.
// `asked`: only these, by id; empty: all.
void AddLostNodes(const std::vector<NodeFacts>& nodes, const std::set<std::string>& asked,
                  v1::Diagnosis* diagnosis);

// ONE_WAY_REACHABLE: `from` hears `to` and can't call it.
v1::Reason OneWayReachable(const NodeFacts& from, const NodeFacts& to);

}  // namespace macrame::agentd
