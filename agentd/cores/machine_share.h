#pragma once

// Several agents may run on one machine: its memory, processors and GPU are there once. Pure.

#include <map>
#include <string>
#include <vector>

#include "macrame/v1/cluster.pb.h"
#include "macrame/v1/plan.pb.h"

namespace macrame::agentd {

// Sums over the nodes of a status that did not leave; what a machine has is counted once, by
// Inventory.boot_digest, however many agents it runs. Where that is empty, a node is a machine.
v1::AggregateLoad SumLoad(const v1::ClusterStatus& status);

// Of nodes on one machine (`machine_of`: boot digests by node id) each gets its equal share of the
// memory, or what its own configuration allows, so that a plan over all of them fits the machine.
void ShareMachines(const std::map<std::string, std::string>& machine_of,
                   std::vector<v1::PlannerNode>* nodes);

}  // namespace macrame::agentd
