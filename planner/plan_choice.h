#pragma once

// Which of the gangs that fit is taken, and the words for why.

#include <optional>
#include <vector>

#include "macrame/v1/plan.pb.h"
#include "planner/gang.h"
#include "planner/gang_search.h"

namespace macrame::planner {

// How far predictions of speed are off: the median of 31 figures of other people's machines that
// were seen for the first time after the parameters were fitted (README.md).
inline constexpr double kPredictionError = 0.092;
// More ranks than fewer would do are taken when they are better by this part: tokens faster by more
// than predictions err, or the fullest node emptier, which is counted and not predicted.
// Where several users are planned for, between the two, fewer must also generate as much for all.
inline constexpr double kWorthwhileGain = kPredictionError;
inline constexpr double kWorthwhileSpace = 0.05;
// A plan in force is left for another that is better by this part, if the gain pays for reading the
// weights again within kMovePaysWithinSeconds of generating.
inline constexpr double kWorthMoving = 0.15;
inline constexpr double kMovePaysWithinSeconds = 1800;
// Reading weights again, where a disk's speed is not known: bytes a second.
inline constexpr double kTypicalDiskRate = 2e9;

struct PlanChoice {
  const GangOption* option = nullptr;  // among the search's; none when the plan in force stays
  std::optional<Gang> gang;            // nothing: none fits the options
  std::vector<v1::Reason> reasons;
};

PlanChoice ChoosePlan(const v1::PlanRequest& request, GangJudge& judge, GangSearch& search,
                      const ShapeOptions& placement);

// Of an option that is not `chosen` (nullptr: nothing or the plan in force was).
v1::Reason WhyNotChosen(GangJudge& judge, const GangOption& option, const GangOption* chosen,
                        const ShapeOptions& placement, double tokens_per_second);

}  // namespace macrame::planner
