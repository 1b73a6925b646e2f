#pragma once

// Timed sums over a live group, within a limit: the gang answers nobody meanwhile.

#include <functional>

#include "absl/status/statusor.h"
#include "macrame/v1/rank.pb.h"
#include "proto/monotonic_time.h"

namespace macrame::runtime::engine {

// Has every rank of the gang run the sums of a request, and times them.
using RunSums =
    std::function<absl::StatusOr<v1::VerifyGroupResponse>(const v1::VerifyGroupRequest&)>;

// Sums of each size of `request`, by `run`: one at first, which also fills what is filled once, and
// then as many of the other rounds as its share of `limit` has room for. Figures are of these, or
// of the first one where there is time for no other. Each size still to come has an equal share of
// what is left; one for which nothing is left has no figures. `now`: this rank's clock. The first
// error of `run` is the result.
absl::StatusOr<v1::VerifyGroupResponse> TimeSumsWithin(Duration limit,
                                                       const v1::VerifyGroupRequest& request,
                                                       const std::function<MonotonicTime()>& now,
                                                       const RunSums& run);

}  // namespace macrame::runtime::engine
