#pragma once

// What machines hold, how fast they are and what they cost: the sums line by line, each with every
// factor, so that anybody can check them. Sources of the tiers' claims: the operations guide of
// December 2025 that first gave them; its own sum per user was wrong by the number of users.

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "macrame/v1/planner.pb.h"
#include "planner/described/machine_table.h"
#include "planner/described/model_card.h"

namespace macrame::planner {

inline constexpr double kHoursPerMonth = 24 * 30;

// BAD_REQUEST-like statuses for unknown tiers, machines, models; a purchase of a configuration that
// is not sold is refused with what is (a tier with one is answered, with a warning).
absl::StatusOr<v1::CapacityReport> MakeCapacityReport(const v1::CapacityQuestion& question,
                                                      const std::vector<ModelCard>& cards);

}  // namespace macrame::planner
