#include "agentd/metrics/metric_registry.h"

#include <gtest/gtest.h>

#include <string>
#include <thread>
#include <vector>

namespace macrame::agentd {
namespace {

constexpr double kBounds[] = {1, 10};
constexpr Metric kAsked{"test_asked_total", MetricKind::kCounter, "", "who", "Asked."};
constexpr Metric kWait{
    "test_wait_seconds", MetricKind::kHistogram, "seconds", "", "Wait.", kBounds};

TEST(MetricRegistry, AddsUpFromManyThreads) {
  MetricRegistry registry;
  std::vector<std::thread> threads;
  for (int i = 0; i < 4; ++i) {
    threads.emplace_back([&registry] {
      for (int n = 0; n < 1000; ++n) {
        registry.Count(kAsked, {"ada"}, 2);
        registry.Observe(kWait, {}, 5);
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  MetricSet set;
  registry.CopyTo(set);
  EXPECT_EQ(set.families().at("test_asked_total").values.at({"ada"}), 8000);
  const HistogramCounts& wait = set.families().at("test_wait_seconds").histograms.at({});
  EXPECT_EQ(wait.count(), 4000u);
  EXPECT_EQ(wait.counts, (std::vector<uint64_t>{0, 4000, 0}));
  EXPECT_EQ(wait.sum, 20'000);
}

TEST(MetricRegistry, ABoundIsWithinItsBucketAndNonsenseCountsAsNothing) {
  HistogramCounts counts(2);
  counts.Add(kBounds, 1);
  counts.Add(kBounds, 1.01);
  counts.Add(kBounds, 11, 3);
  counts.Add(kBounds, -4);
  counts.Add(kBounds, std::numeric_limits<double>::quiet_NaN());
  EXPECT_EQ(counts.counts, (std::vector<uint64_t>{3, 1, 3}));
  EXPECT_DOUBLE_EQ(counts.sum, 1 + 1.01 + 33);
}

TEST(MetricRegistry, CallersCantMakeMoreAndMoreSeries) {
  MetricRegistry registry;
  for (size_t i = 0; i < kSeriesMax + 50; ++i) registry.Count(kAsked, {std::to_string(i)});
  registry.Count(kAsked, {"0"});
  MetricSet set;
  registry.CopyTo(set);
  const auto& values = set.families().at("test_asked_total").values;
  EXPECT_EQ(values.size(), kSeriesMax + 1);
  EXPECT_EQ(values.at({kOtherLabel}), 50);
  EXPECT_EQ(values.at({"0"}), 2) << "series that are there go on";
}

}  // namespace
}  // namespace macrame::agentd
