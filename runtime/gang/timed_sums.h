#pragma once

// Timed sums over a live group, for about as long as they may take: the gang answers nobody
// meanwhile.

#include <cstdint>
#include <functional>
#include <vector>

#include "absl/status/statusor.h"
#include "macrame/v1/rank.pb.h"
#include "proto/monotonic_time.h"

namespace macrame::runtime::engine {

// Has every rank of the gang run the sums of a request, and times them.
using RunSums =
    std::function<absl::StatusOr<v1::VerifyGroupResponse>(const v1::VerifyGroupRequest&)>;

// Sums that would take longer than this together are run one by one, so that `run` can end them.
inline constexpr Duration kSumsAtOnce = std::chrono::milliseconds(500);

// Runs sums of each size of `request`: one at first, which also fills what is filled once, and then
// as many of the other rounds as its share of `limit` has room for. Figures are of these, or of the
// first one where there is time for no other. Each size still to come has an equal share of what is
// left; a size for which nothing is left has no figures. A sum that has begun is not cut off, so
// one slow sum may take longer than `limit`. `now`: this rank's clock. The first error of `run` is
// the result.
absl::StatusOr<v1::VerifyGroupResponse> TimeSumsWithin(Duration limit,
                                                       const v1::VerifyGroupRequest& request,
                                                       const std::function<MonotonicTime()>& now,
                                                       const RunSums& run);

// What rounds of one size took, in microseconds; at least one.
v1::CollectiveTiming TimingOf(uint64_t size_bytes, std::vector<double> us);

}  // namespace macrame::runtime::engine
