#pragma once

// Why nodes can't use files that they have. Pure.

#include <map>
#include <string>

#include "macrame/v1/common.pb.h"
#include "macrame/v1/plan.pb.h"

namespace macrame::agentd {

// Plans know only that a node has no files that it could use. Where it said more when it was asked
// for the model (`refusals`, by node), such as that its mlx-lm is too old for the architecture,
// its own message takes that place.
void NameNodeRefusals(const std::map<std::string, v1::Reason>& refusals, v1::PlanResult* result);

}  // namespace macrame::agentd
