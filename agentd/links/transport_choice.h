#pragma once

// Which backend the ranks of a plan talk over: the first of the group's choices that works, that
// this cluster's rank processes can do, and that is asked for. Pure.

#include <string>

#include "macrame/v1/link.pb.h"
#include "macrame/v1/plan.pb.h"

namespace macrame::agentd {

// Sets the plan's backend, its topology and why each better one was not taken; where the cables ask
// for another order of ranks, nodes change places, each within its budget. `requested`: the
// transport (proto/backends.h) of the request, else of the configuration. When it can't be had the
// plan is taken out of `result` and failure says TRANSPORT_UNAVAILABLE with the group's reasons.
void ChooseTransport(const v1::GroupVerdict& group, const std::string& requested,
                     v1::PlanResult* result);

}  // namespace macrame::agentd
