#include "discovery/parsers/power_parsers.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <random>

#include "tests/unit/discovery/captured.h"
#include "tests/unit/discovery/mutation.h"

namespace macrame::discovery {
namespace {

using testing::ElementsAre;

PartsPower Read(const std::string& name) {
  const auto power = ParsePowermetrics(tests::Captured("powermetrics/" + name + ".txt"));
  EXPECT_TRUE(power.has_value()) << name;
  return power.value_or(PartsPower());
}

TEST(Powermetrics, TheSumThatItPrintsCountsAndIsOfTheChipAlone) {
  const PartsPower busy = Read("studio-busy");
  EXPECT_DOUBLE_EQ(busy.watts, 74.025);
  EXPECT_THAT(busy.parts, ElementsAre(v1::POWER_PART_CPU, v1::POWER_PART_GPU, v1::POWER_PART_ANE));
}

TEST(Powermetrics, OlderLabelsAndIntel) {
  const PartsPower first = Read("m1-package-and-memory");
  EXPECT_DOUBLE_EQ(first.watts, 4.655 + 0.380);
  EXPECT_THAT(first.parts, ElementsAre(v1::POWER_PART_PACKAGE, v1::POWER_PART_MEMORY));
  const PartsPower intel = Read("intel-package");
  EXPECT_DOUBLE_EQ(intel.watts, 21.87);
  EXPECT_THAT(intel.parts, ElementsAre(v1::POWER_PART_PACKAGE));
}

TEST(Powermetrics, WhatHasNoLineIsNotCovered) {
  const PartsPower gpu = Read("gpu-alone");
  EXPECT_DOUBLE_EQ(gpu.watts, 0.007);
  EXPECT_THAT(gpu.parts, ElementsAre(v1::POWER_PART_GPU));
  EXPECT_FALSE(
      ParsePowermetrics(tests::Captured("powermetrics/legacy-labels-no-power.txt")).has_value());
  EXPECT_FALSE(ParsePowermetrics("").has_value());
}

TEST(Powermetrics, TheLastSampleCounts) {
  const auto power = ParsePowermetrics(
      "*** Sampled system activity (a) ***\nCPU Power: 9000 mW\nGPU Power: 100 mW\n"
      "*** Sampled system activity (b) ***\nGPU Power: 200 mW\n");
  ASSERT_TRUE(power.has_value());
  EXPECT_DOUBLE_EQ(power->watts, 0.2);
  EXPECT_THAT(power->parts, ElementsAre(v1::POWER_PART_GPU));
}

TEST(Powermetrics, HostileFiguresAreNotKnown) {
  for (const char* line :
       {"CPU Power: -5 mW\n", "CPU Power: nan mW\n", "CPU Power: inf W\n", "CPU Power: 9e99 W\n",
        "CPU Power: 12\n", "CPU Power: mW\n", "CPU Power: 12 mWh\n", "CPU Power: 100001 W\n",
        "CPU Power: 12 mW", "CPU Power 12 mW\n", "xCPU Power: 12 mW\n"}) {
    EXPECT_FALSE(ParsePowermetrics(line).has_value()) << line;
  }
}

TEST(Powermetrics, CutOffAnywhereItTellsLessAndNothingElse) {
  const std::string text = tests::Captured("powermetrics/studio-busy.txt");
  for (size_t n = 0; n < text.size(); ++n) {
    const auto power = ParsePowermetrics(std::string_view(text).substr(0, n));
    if (!power) continue;
    const bool is_whole = power->watts == 74.025;
    const bool is_part = power->parts.back() != v1::POWER_PART_ANE || power->watts == 74.025;
    EXPECT_TRUE(is_whole || is_part) << n << ": " << power->watts;
    EXPECT_LE(power->watts, 74.025 + 1e-9) << n;
  }
}

TEST(Powermetrics, DamageCrashesNothing) {
  std::mt19937_64 random(17);
  const std::string text = tests::Captured("powermetrics/studio-busy.txt");
  for (int i = 0; i < 20'000; ++i) {
    const auto power = ParsePowermetrics(tests::Mutate(text, random));
    ASSERT_TRUE(!power || (power->watts >= 0 && power->watts <= kWattsMax));
  }
}

TEST(Powermetrics, TellsARefusalFromATrouble) {
  EXPECT_TRUE(WantsSuperuser("powermetrics must be invoked as the superuser\n"));
  EXPECT_FALSE(WantsSuperuser("powermetrics: no such sampler: gpu_power\n"));
}

TEST(CounterStep, GoesRoundAtItsRange) {
  EXPECT_EQ(CounterStep(100, 350, 1000), 250u);
  EXPECT_EQ(CounterStep(900, 50, 1000), 150u);
  EXPECT_EQ(CounterStep(0, 0, 1000), 0u);
  EXPECT_FALSE(CounterStep(900, 50, 0).has_value()) << "it has no range: it was set back";
  EXPECT_FALSE(CounterStep(900, 50, 800).has_value()) << "it was beyond its range before";
}

TEST(NvidiaWatts, AllCardsOrNone) {
  EXPECT_DOUBLE_EQ(ParseNvidiaWatts("71.30\n").value(), 71.3);
  EXPECT_DOUBLE_EQ(ParseNvidiaWatts("71.30\n 228.07 \n").value(), 299.37);
  EXPECT_FALSE(ParseNvidiaWatts("71.30\n[N/A]\n").has_value());
  EXPECT_FALSE(ParseNvidiaWatts("[Not Supported]\n").has_value());
  EXPECT_FALSE(ParseNvidiaWatts("-3\n").has_value());
  EXPECT_FALSE(ParseNvidiaWatts("").has_value());
  std::string many;
  for (int i = 0; i < 65; ++i) many += "1\n";
  EXPECT_FALSE(ParseNvidiaWatts(many).has_value());
}

}  // namespace
}  // namespace macrame::discovery
