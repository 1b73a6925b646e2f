#pragma once

// What was asked for that keeps a model from having a plan.

#include <functional>
#include <string>
#include <vector>

#include "macrame/v1/plan.pb.h"

namespace macrame::planner {

using PlanCall = std::function<v1::PlanResult(const v1::PlanRequest&)>;

// The changes of one option each with which there is a plan, as commands: "leave out --ranks". Each
// was tried with `plan`. Contexts and sequences are advice.h's: less of them is enough.
std::vector<std::string> OptionsInTheWay(const v1::PlanRequest& request, const PlanCall& plan);

}  // namespace macrame::planner
