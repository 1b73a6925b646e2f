#pragma once

// What a load changed of a model that was served already. Pure.

#include <string>

#include "macrame/v1/cluster.pb.h"

namespace macrame::cli {

// "Changed: context 4096 -> 8192; as before: pipeline over 3 via ring (ada, bess, cleo)", a line.
// Options of the load that are no part of its plan (replicas, priority, the tenant) are compared
// too.
std::string LoadChangesLine(const v1::DeploymentStatus& before, const v1::DeploymentStatus& after);

}  // namespace macrame::cli
