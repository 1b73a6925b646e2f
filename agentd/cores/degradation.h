#pragma once

// What is served, but worse than planned: gangs much slower than predicted, and nodes under them
// that are throttled. Nothing is moved for it: a plan made anew takes what was measured into
// account, and when to load again is for people to choose. Pure.

#include <vector>

#include "macrame/v1/cluster.pb.h"

namespace macrame::agentd {

// A gang is slow when its answers come with less than this share of the predicted speed. Half: the
// planner's own errors, and other work on the machine, stay above.
inline constexpr double kSlowShareOfPredicted = 0.5;
// Answers before that is said.
inline constexpr uint64_t kAnswersUntilSlow = 3;

// SLOWER_THAN_PREDICTED and THERMAL, of the deployments and nodes of `status`; and GPU_WEDGED, as
// its links say of live nodes: the next rank there would hang.
std::vector<v1::Reason> FindDegradation(const v1::ClusterStatus& status);

}  // namespace macrame::agentd
