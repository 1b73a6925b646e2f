#pragma once

// Which cable goes where: a mesh for up to four machines, a ring beyond, as far as their sockets
// and their Thunderbolt generations allow; and what each cable is worth in tokens a second.

#include "absl/status/statusor.h"
#include "macrame/v1/model.pb.h"
#include "macrame/v1/planner.pb.h"
#include "planner/described/machine_table.h"

namespace macrame::planner {

// `model` nullptr: cables are not costed.
v1::TopologyAdvice AdviseOnTopology(const std::vector<MachineConfiguration>& machines,
                                    const v1::ModelDescription* model);

}  // namespace macrame::planner
