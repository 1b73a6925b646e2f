#pragma once

// What would make a model fit that doesn't: the smallest change of each kind that the planner can
// try.

#include <cstdint>
#include <string>
#include <vector>

#include "macrame/v1/plan.pb.h"
#include "planner/constraints.h"
#include "planner/gang.h"

namespace macrame::planner {

// One sentence for people, e.g. "an 8-bit copy of the model would fit; so would 3.1 GiB more on
// mini-2": the ladder of fewer bits, a shorter context, fewer sequences, more memory, a path
// between two nodes that don't reach each other. Each was tried. Empty when nothing helps.
// `transport`: as requested.
std::string AdviseOnMemory(GangJudge& judge, const ShapeOptions& placement,
                           const std::string& transport);

// The last of these alone: "a cable or network path between mini-1 and mini-2", or a Thunderbolt 5
// cable where the options say RDMA.
std::string AdviseOnPaths(GangJudge& judge, const ShapeOptions& placement,
                          const std::string& transport);

// All weights of a model as stored.
uint64_t ModelBytes(const v1::ModelDescription& model);

// How many bytes each node can give, for messages: "mini-1 16.0 GiB, mini-2 8.0 GiB".
std::string BudgetList(const std::vector<Candidate>& candidates);

}  // namespace macrame::planner
