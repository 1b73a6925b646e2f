#pragma once

// The answers to questions about machines that are described instead of being there.

#include "macrame/v1/planner.pb.h"

namespace macrame::planner {

// Never throws. What can't be answered becomes `failure`: BAD_REQUEST, MODEL_NOT_FOUND or
// NO_OFFER.
v1::PlannerAnswer AnswerOf(const v1::PlannerQuestion& question);

}  // namespace macrame::planner
