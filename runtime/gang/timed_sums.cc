#include "runtime/gang/timed_sums.h"

#include <algorithm>

namespace macrame::runtime::engine {

absl::StatusOr<v1::VerifyGroupResponse> TimeSumsWithin(Duration limit,
                                                       const v1::VerifyGroupRequest& request,
                                                       const std::function<MonotonicTime()>& now,
                                                       const RunSums& run) {
  const int sizes = request.sizes_bytes_size();
  if (sizes == 0 || request.rounds() == 0) return run(request);
  const MonotonicTime end = now() + limit;
  v1::VerifyGroupResponse all;
  all.set_sum_correct(true);
  const auto sum = [&](uint64_t size, uint64_t rounds) {
    v1::VerifyGroupRequest part;
    part.add_sizes_bytes(size);
    part.set_rounds(static_cast<uint32_t>(rounds));
    absl::StatusOr<v1::VerifyGroupResponse> got = run(part);
    if (got.ok()) {
      all.set_backend(got->backend());
      all.set_group_size(got->group_size());
      all.set_sum_correct(all.sum_correct() && got->sum_correct());
    }
    return got;
  };
  for (int i = 0; i < sizes; ++i) {
    const MonotonicTime begun = now();
    if (begun >= end) break;
    const Duration share = (end - begun) / (sizes - i);
    auto timed = sum(request.sizes_bytes(i), 1);
    if (!timed.ok()) return timed;
    const Duration took = std::max(now() - begun, Duration(1));
    const int64_t room = std::max(share - took, Duration::zero()) / took;
    const uint64_t more = std::min<uint64_t>(room, request.rounds() - 1);
    if (more > 0) timed = sum(request.sizes_bytes(i), more);
    if (!timed.ok()) return timed;
    all.mutable_timings()->MergeFrom(timed->timings());
  }
  return all;
}

}  // namespace macrame::runtime::engine
