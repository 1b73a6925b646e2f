#pragma once

// Why nodes have no RDMA between them, in the words of a plan or of its failure: which node, which
// link, and what it lacks. Pure.

#include <optional>
#include <string>
#include <vector>

#include "macrame/v1/plan.pb.h"
#include "planner/gang.h"

namespace macrame::planner {

// Of these nodes, what keeps each two from RDMA: "mini-1: ..." once for a node that has none at
// all, then the links. Empty: there is RDMA between each two.
std::vector<std::string> RdmaLacks(const v1::PlanRequest& request, const GangJudge& judge,
                                   const std::vector<size_t>& nodes);

// Of a gang over TCP: why its nodes have no RDMA, as far as that is known. Nothing: it is not, or
// TCP was asked for.
std::optional<v1::Reason> WhyNoRdma(const v1::PlanRequest& request, const GangJudge& judge,
                                    const Gang& taken);

// Instead of what fails with the transport that was asked for, where there is a plan without it.
// `without`: that plan; `path`: the cable that would do (AdviseOnPaths), or empty.
v1::Reason RdmaRefusal(const v1::PlanRequest& request, const v1::Plan& without,
                       const std::string& path);

}  // namespace macrame::planner
