#pragma once

// Profiles of models as people read them. Pure.

#include <string>

#include "cli/format/text.h"
#include "macrame/v1/cluster.pb.h"
#include "macrame/v1/operation.pb.h"

namespace macrame::cli {

// "qwen3: temperature 0.6, thinking off, alias gpt-4o" (null, or with nothing in it: that it has
// none), with a line's end.
std::string ProfileLine(const std::string& model, const v1::ModelProfile* profile);
// A line for each.
std::string ProfilesView(const v1::ListProfilesResponse& profiles, int width, const Style& style);

}  // namespace macrame::cli
