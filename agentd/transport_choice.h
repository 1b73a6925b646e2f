#pragma once

// Which backend the ranks of a plan talk over: the first of the group's choices that works, that
// this cluster's rank processes can do, and that is asked for. Pure.

#include <string>

#include "macrame/v1/link.pb.h"
#include "macrame/v1/plan.pb.h"

namespace macrame::agentd {

// "jaccl", "ring"; what people call them elsewhere ("mlx-ring", "mdma", "mlx-jaccl") becomes ours,
// "rdma" and "mlx-rdma" stay "rdma", which is either of jaccl and verbs. Other words are given
// back.
std::string BackendOfName(const std::string& name);

// Sets the plan's backend, its topology and why each better one was not taken; where the cables ask
// for another order of ranks, nodes change places, each within its budget. `requested`: of the
// request, else of the configuration; empty or "auto": the best. When it can't be had the plan is
// taken out of `result` and failure says TRANSPORT_UNAVAILABLE with the group's reasons.
void ChooseTransport(const v1::GroupVerdict& group, const std::string& requested,
                     v1::PlanResult* result);

}  // namespace macrame::agentd
