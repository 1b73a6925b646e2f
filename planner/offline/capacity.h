#pragma once

// What machines hold, how fast they are and what they cost: the sums line by line, each with every
// factor, so that anybody can check them. A tier is a cluster file that is built in
// (deploy/catalogue/tiers); what such a file says to be published of its machines is summed with,
// unless the question says otherwise, and stands beside what we find.

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "macrame/v1/planner.pb.h"
#include "planner/offline/catalogue_entry.h"
#include "planner/offline/machine_table.h"

namespace macrame::planner {

inline constexpr double kHoursPerMonth = 24 * 30;

// BAD_REQUEST-like statuses for unknown tiers, machines, models; a purchase of a configuration that
// is not sold is refused with what is (a file with one is answered, with a warning).
// RESOURCE_EXHAUSTED: machines are sought, and none that are sold will do; it says how far they go.
absl::StatusOr<v1::CapacityReport> MakeCapacityReport(const v1::CapacityQuestion& question,
                                                      const std::vector<CatalogueEntry>& entries);

}  // namespace macrame::planner
