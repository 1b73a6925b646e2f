#pragma once

// Why a shape that was looked for was not found: the first hard rule that refuses it, a missing
// link, or the bytes that are short.

#include "macrame/v1/plan.pb.h"
#include "planner/gang.h"

namespace macrame::planner {

// HEADS_INDIVISIBLE, GROUPS_INDIVISIBLE, TOO_FEW_NODES, TOO_FEW_LAYERS, ENGINE_LIMIT,
// TRANSPORT_UNAVAILABLE or MEMORY_SHORT. `transport`: as requested.
v1::Reason WhyNotShape(GangJudge& judge, const Shape& shape, const std::string& transport);

}  // namespace macrame::planner
