#include "cli/duration.h"

#include <gtest/gtest.h>

namespace macrame::cli {
namespace {

TEST(Duration, ReadsUnitsAndRefusesTheRest) {
  EXPECT_EQ(ParseDuration("90")->count(), 90'000);
  EXPECT_EQ(ParseDuration("90s")->count(), 90'000);
  EXPECT_EQ(ParseDuration("1500ms")->count(), 1500);
  EXPECT_EQ(ParseDuration("10m")->count(), 600'000);
  EXPECT_EQ(ParseDuration("24h")->count(), 86'400'000);
  EXPECT_EQ(ParseDuration("1d")->count(), 86'400'000);
  EXPECT_FALSE(ParseDuration("2d").has_value());
  EXPECT_EQ(ParseDuration("30d", kLongDurationMax)->count(), 2'592'000'000);
  EXPECT_FALSE(ParseDuration("4000d", kLongDurationMax).has_value());
  for (const char* bad : {"", "s", "0", "0s", "-5s", "1.5s", "25h", "9x", "5 s",
                          "99999999999999999999s", "9223372036854775807h"}) {
    EXPECT_FALSE(ParseDuration(bad).has_value()) << bad;
  }
}

}  // namespace
}  // namespace macrame::cli
