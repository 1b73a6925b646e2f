#include "runtime/gang/timed_sums.h"

#include <gmock/gmock.h>

#include <algorithm>
#include <utility>
#include <vector>

namespace macrame::runtime::engine {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;
using ::testing::ElementsAre;
using ::testing::Pair;

// A gang whose sums take so long a KiB.
class SlowGang {
 public:
  explicit SlowGang(Duration a_kib) : a_kib_(a_kib) {}

  absl::StatusOr<v1::VerifyGroupResponse> Time(std::vector<uint64_t> kib, uint32_t rounds) {
    v1::VerifyGroupRequest request;
    for (const uint64_t size : kib) request.add_sizes_bytes(size << 10);
    request.set_rounds(rounds);
    return TimeSumsWithin(
        seconds(10), request, [this] { return now_; },
        [this](const v1::VerifyGroupRequest& part) { return Run(part); });
  }
  Duration taken() const { return now_ - MonotonicTime(); }

  uint64_t wrong_kib = 0;
  uint64_t failing_kib = 0;
  Duration most_at_once{};

 private:
  absl::StatusOr<v1::VerifyGroupResponse> Run(const v1::VerifyGroupRequest& request) {
    v1::VerifyGroupResponse response;
    response.set_backend("ring");
    response.set_group_size(3);
    response.set_sum_correct(true);
    for (const uint64_t size : request.sizes_bytes()) {
      if (size >> 10 == failing_kib) return absl::UnavailableError("rank 2 is gone");
      if (size >> 10 == wrong_kib) response.set_sum_correct(false);
      const Duration one = a_kib_ * static_cast<int64_t>(size >> 10);
      const Duration took = one * int64_t{request.rounds()};
      now_ += took;
      most_at_once = std::max(most_at_once, took);
      v1::CollectiveTiming& timing = *response.add_timings();
      timing.set_size_bytes(size);
      timing.set_rounds(request.rounds());
      timing.set_us_p50(static_cast<double>(one.count()));
    }
    return response;
  }

  const Duration a_kib_;
  MonotonicTime now_{};
};

std::vector<std::pair<uint64_t, uint32_t>> RoundsOf(const v1::VerifyGroupResponse& response) {
  std::vector<std::pair<uint64_t, uint32_t>> rounds;
  for (const v1::CollectiveTiming& timing : response.timings()) {
    rounds.emplace_back(timing.size_bytes() >> 10, timing.rounds());
  }
  return rounds;
}

TEST(TimedSums, AllRoundsAreTimedButTheFirstWhereThereIsTime) {
  SlowGang gang{std::chrono::microseconds(20)};
  const auto got = gang.Time({1, 8, 1024}, 50);
  ASSERT_TRUE(got.ok()) << got.status();
  EXPECT_THAT(RoundsOf(*got), ElementsAre(Pair(1, 49), Pair(8, 49), Pair(1024, 49)));
  EXPECT_TRUE(got->sum_correct());
  EXPECT_EQ(got->group_size(), 3u);
  EXPECT_EQ(got->backend(), "ring");
}

TEST(TimedSums, ASlowLinkHasFewerRoundsOfWhatIsLarge) {
  SlowGang gang{milliseconds(1)};
  const auto got = gang.Time({1, 64, 1024}, 50);
  ASSERT_TRUE(got.ok()) << got.status();
  // A second for the largest leaves room for five more of it.
  EXPECT_THAT(RoundsOf(*got), ElementsAre(Pair(1, 49), Pair(64, 49), Pair(1024, 5)));
  EXPECT_LE(gang.taken(), seconds(10));
  EXPECT_EQ(got->timings(2).us_p50(), 1'024'000);
  EXPECT_LE(gang.most_at_once, milliseconds(1024)) << "one by one, so that they can be ended";
}

TEST(TimedSums, OneRoundIsOneAndASumBeyondTheLimitIsTheLast) {
  SlowGang gang{milliseconds(1)};
  EXPECT_THAT(RoundsOf(*gang.Time({1, 8}, 1)), ElementsAre(Pair(1, 1), Pair(8, 1)));
  const auto got = gang.Time({16 << 10, 1}, 50);  // sixteen seconds
  ASSERT_TRUE(got.ok()) << got.status();
  EXPECT_THAT(RoundsOf(*got), ElementsAre(Pair(16 << 10, 1)));
}

TEST(TimedSums, OneRoundThatTakesItsShareIsAllThatIsTimed) {
  SlowGang gang{milliseconds(100)};
  const auto got = gang.Time({1, 32, 64, 1024}, 50);
  ASSERT_TRUE(got.ok()) << got.status();
  EXPECT_THAT(RoundsOf(*got), ElementsAre(Pair(1, 24), Pair(32, 1), Pair(64, 1)))
      << "nothing is left for the largest";
}

TEST(TimedSums, OneWrongSumIsToldOfAllAndAFailureEndsThem) {
  SlowGang gang{milliseconds(1)};
  gang.wrong_kib = 8;
  EXPECT_FALSE(gang.Time({1, 8, 64}, 5)->sum_correct());
  gang.failing_kib = 64;
  EXPECT_EQ(gang.Time({1, 64}, 5).status().message(), "rank 2 is gone");
}

TEST(TimedSums, WithoutSizesOrRoundsTheGroupAloneIsTold) {
  SlowGang gang{milliseconds(1)};
  EXPECT_EQ(gang.Time({}, 5)->group_size(), 3u);
  EXPECT_EQ(gang.Time({64}, 0)->group_size(), 3u);
  EXPECT_EQ(gang.taken(), Duration::zero());
}

}  // namespace
}  // namespace macrame::runtime::engine
