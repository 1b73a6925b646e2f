#pragma once

// `top`: what a window shows of a cluster at work. Pure.

#include <string>

#include "cli/format/text.h"
#include "macrame/v1/cluster.pb.h"

namespace macrame::cli {

// Health, a line with a memory bar for each node, the models that are loaded, the totals.
std::string TopView(const v1::ClusterStatus& status, int width, const Style& style);

}  // namespace macrame::cli
