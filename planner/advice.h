#pragma once

// What would make a model fit that doesn't: the smallest change of each kind that the planner can
// try.

#include <cstdint>
#include <string>
#include <vector>

#include "macrame/v1/plan.pb.h"
#include "planner/constraints.h"
#include "planner/memory_model.h"

namespace macrame::planner {

// One sentence for people, e.g. "a context of 2048 would fit; so would 3.1 GiB more on mini-2".
// Empty when nothing that was tried helps. `shapes`: those that may be taken.
std::string AdviseOnMemory(const v1::ModelDescription& model, const ServingLoad& load,
                           const std::vector<Candidate>& candidates,
                           const std::vector<Shape>& shapes);

// How many bytes each node can give, for messages: "mini-1 16.0 GiB, mini-2 8.0 GiB".
std::string BudgetList(const std::vector<Candidate>& candidates);

}  // namespace macrame::planner
