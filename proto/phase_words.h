#pragma once

// What people read for the phases of a rank: "staging", "connecting", "warming up". Any thread.

#include <string>

#include "macrame/v1/rank.pb.h"

namespace macrame {

// "starting" for one that has not said its phase yet.
std::string PhaseWord(v1::RankPhase phase);

}  // namespace macrame
