#pragma once

// Events as people read them, in universal time. Pure.

#include <string>

#include "cli/format/text.h"
#include "macrame/v1/operation.pb.h"

namespace macrame::cli {

// "2026-11-25T14:30:05Z  node         mini-2 is dead: …" with a line break.
std::string EventLine(const v1::Event& event, const Style& style);
// All of them, and which agents did not answer.
std::string EventsView(const v1::ListEventsResponse& events, const Style& style);

}  // namespace macrame::cli
