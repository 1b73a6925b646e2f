#pragma once

// What machines hold and cost, and how they are cabled, as people read it. Pure.

#include <string>

#include "cli/format/text.h"
#include "macrame/v1/planner.pb.h"

namespace macrame::cli {

std::string CapacityView(const v1::CapacityReport& report, int width, const Style& style);
std::string TopologyView(const v1::TopologyAdvice& advice, int width, const Style& style);

}  // namespace macrame::cli
