#include "proto/log_histogram.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

namespace macrame {
namespace {

TEST(LogHistogram, QuantilesAreRightToWithinATenthWhateverTheSize) {
  for (const double scale : {1.0, 1e3, 1e9}) {
    LogHistogram histogram;
    for (int i = 1; i <= 1000; ++i) histogram.Add(i * scale);
    for (const double share : {0.1, 0.5, 0.95, 0.99}) {
      const double exact = 1000 * share * scale;
      EXPECT_NEAR(histogram.Quantile(share), exact, exact / 10) << share << " of " << scale;
    }
    EXPECT_EQ(histogram.Quantile(1), 1000 * scale);
    EXPECT_EQ(histogram.max(), 1000 * scale);
    EXPECT_EQ(histogram.min(), scale);
    EXPECT_NEAR(histogram.mean(), 500.5 * scale, scale);
  }
}

TEST(LogHistogram, MergedIsTheSameAsAddedToOne) {
  LogHistogram first, second, both;
  for (int i = 0; i < 500; ++i) {
    const double value = std::pow(1.05, i % 200);
    (i % 3 == 0 ? first : second).Add(value);
    both.Add(value);
  }
  first.Merge(second);
  first.Merge(LogHistogram());
  EXPECT_EQ(first.count(), both.count());
  for (const double share : {0.0, 0.25, 0.5, 0.9, 1.0}) {
    EXPECT_DOUBLE_EQ(first.Quantile(share), both.Quantile(share));
  }
  EXPECT_NEAR(first.mean(), both.mean(), 1e-9 * both.mean());
}

TEST(LogHistogram, WhatMakesNoSenseDoesNoHarm) {
  LogHistogram histogram;
  EXPECT_EQ(histogram.Quantile(0.5), 0);
  histogram.Add(-5);
  histogram.Add(std::nan(""));
  histogram.Add(std::numeric_limits<double>::infinity());
  histogram.Add(0.5);
  histogram.Add(1e300);
  EXPECT_EQ(histogram.count(), 5u);
  EXPECT_EQ(histogram.max(), 1e300);
  EXPECT_EQ(histogram.min(), 0);
}

TEST(LogHistogram, CrossesTheWire) {
  LogHistogram histogram;
  for (const double value : {0.0, 3.0, 3.1, 50'000.0}) histogram.Add(value);
  v1::LogHistogram message = histogram.ToMessage();
  const LogHistogram back = LogHistogram::Of(message);
  EXPECT_EQ(back.count(), 4u);
  EXPECT_EQ(back.max(), 50'000);
  EXPECT_DOUBLE_EQ(back.Quantile(0.5), histogram.Quantile(0.5));
  EXPECT_LT(message.ByteSizeLong(), 64u) << "only buckets that hold something travel";

  message.add_buckets(4'000'000);
  message.add_counts(7);
  message.add_buckets(3);
  message.add_counts(std::numeric_limits<uint64_t>::max());
  message.add_buckets(5);  // without a count
  EXPECT_EQ(LogHistogram::Of(message).count(), 4u);
}

}  // namespace
}  // namespace macrame
