#include "runtime/gang/timed_sums.h"

#include <algorithm>
#include <utility>

#include "proto/check.h"

namespace macrame::runtime::engine {
namespace {

// The sums of one request, a size after the other.
class TimedSums {
 public:
  TimedSums(const std::function<MonotonicTime()>& now, const RunSums& run) : now_(now), run_(run) {
    all_.set_sum_correct(true);
  }

  // At least one round, at most `rounds`, of which no further one begins at `end`.
  absl::Status Time(uint64_t size, uint32_t rounds, MonotonicTime end) {
    const MonotonicTime begun = now_();
    auto timed = Sum(size, 1);
    if (!timed.ok()) return timed.status();
    const Duration took = std::max(now_() - begun, Duration(1));
    const Duration left = std::max(end - now_(), Duration::zero());
    const auto more = static_cast<uint32_t>(std::min<int64_t>(left / took, rounds - 1));
    if (more > 0 && took * more > kSumsAtOnce) return TimeEach(size, more, end);
    if (more > 0) timed = Sum(size, more);
    if (timed.ok()) all_.mutable_timings()->MergeFrom(timed->timings());
    return timed.status();
  }

  v1::VerifyGroupResponse TakeAll() { return std::move(all_); }

 private:
  absl::Status TimeEach(uint64_t size, uint32_t rounds, MonotonicTime end) {
    std::vector<double> us;
    while (us.size() < rounds && (us.empty() || now_() < end)) {
      const auto timed = Sum(size, 1);
      if (!timed.ok()) return timed.status();
      for (const v1::CollectiveTiming& one : timed->timings()) us.push_back(one.us_p50());
      if (timed->timings().empty()) return absl::OkStatus();  // a group of one has no sums
    }
    *all_.add_timings() = TimingOf(size, std::move(us));
    return absl::OkStatus();
  }

  absl::StatusOr<v1::VerifyGroupResponse> Sum(uint64_t size, uint32_t rounds) {
    v1::VerifyGroupRequest part;
    part.add_sizes_bytes(size);
    part.set_rounds(rounds);
    auto got = run_(part);
    if (!got.ok()) return got;
    all_.set_backend(got->backend());
    all_.set_group_size(got->group_size());
    all_.set_sum_correct(all_.sum_correct() && got->sum_correct());
    return got;
  }

  const std::function<MonotonicTime()>& now_;
  const RunSums& run_;
  v1::VerifyGroupResponse all_;
};

}  // namespace

absl::StatusOr<v1::VerifyGroupResponse> TimeSumsWithin(Duration limit,
                                                       const v1::VerifyGroupRequest& request,
                                                       const std::function<MonotonicTime()>& now,
                                                       const RunSums& run) {
  const int sizes = request.sizes_bytes_size();
  if (sizes == 0 || request.rounds() == 0) return run(request);
  const MonotonicTime end = now() + limit;
  TimedSums sums(now, run);
  for (int i = 0; i < sizes; ++i) {
    const MonotonicTime begun = now();
    if (begun >= end) break;
    const Duration share = (end - begun) / (sizes - i);
    const absl::Status timed = sums.Time(request.sizes_bytes(i), request.rounds(), begun + share);
    if (!timed.ok()) return timed;
  }
  return sums.TakeAll();
}

v1::CollectiveTiming TimingOf(uint64_t size_bytes, std::vector<double> us) {
  MACRAME_CHECK(!us.empty()) << "no round was timed";
  std::ranges::sort(us);
  v1::CollectiveTiming timing;
  timing.set_size_bytes(size_bytes);
  timing.set_rounds(static_cast<uint32_t>(us.size()));
  timing.set_us_p50(us[us.size() / 2]);
  timing.set_us_p99(us[us.size() * 99 / 100]);
  timing.set_bandwidth_bytes_per_second(static_cast<double>(size_bytes) / timing.us_p50() * 1e6);
  return timing;
}

}  // namespace macrame::runtime::engine
