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

TEST(Macmon, TheWholeMachinesPowerCountsWhereItIsTold) {
  const auto before = ParseMacmon(tests::Captured("macmon/before-0.8.txt"));
  ASSERT_TRUE(before.has_value());
  EXPECT_DOUBLE_EQ(before->watts, 96.625);
  EXPECT_THAT(before->parts, ElementsAre(v1::POWER_PART_MACHINE));
  const auto since = ParseMacmon(tests::Captured("macmon/since-0.8.txt"));
  ASSERT_TRUE(since.has_value());
  EXPECT_DOUBLE_EQ(since->watts, 8.5);
  EXPECT_THAT(since->parts, ElementsAre(v1::POWER_PART_MACHINE));
}

// It prints the chip's sum in its place, or 0.
TEST(Macmon, WhereTheMachinesIsNotToldTheChipsCounts) {
  for (const std::string& text :
       {tests::Captured("macmon/chip-alone.txt"),
        std::string(R"({"cpu_power":3.5,"gpu_power":5.25,"ane_power":0.5,"sys_power":0.0})") + "\n",
        std::string(R"({"cpu_power":3.5,"gpu_power":5.25,"ane_power":0.5,"sys_power":null})") +
            "\n",
        std::string(R"({"cpu_power":3.5,"gpu_power":5.25,"ane_power":0.5})") + "\n"}) {
    const auto power = ParseMacmon(text);
    ASSERT_TRUE(power.has_value()) << text;
    EXPECT_DOUBLE_EQ(power->watts, 9.25);
    EXPECT_THAT(power->parts,
                ElementsAre(v1::POWER_PART_CPU, v1::POWER_PART_GPU, v1::POWER_PART_ANE));
  }
}

TEST(Macmon, AProcessorThatDrawsNothingWasNotRead) {
  const auto gpu = ParseMacmon("{\"cpu_power\":0.0,\"gpu_power\":14.5,\"ane_power\":0.0}\n");
  ASSERT_TRUE(gpu.has_value());
  EXPECT_DOUBLE_EQ(gpu->watts, 14.5);
  EXPECT_THAT(gpu->parts, ElementsAre(v1::POWER_PART_GPU, v1::POWER_PART_ANE));
  EXPECT_FALSE(
      ParseMacmon("{\"cpu_power\":0.0,\"gpu_power\":0.0,\"ane_power\":0.0,\"sys_power\":0.0}\n"));
}

TEST(Macmon, HostileFiguresAreNotKnown) {
  for (const std::string value : {"-5", "1e999", "-1e999", "100001", "\"12\"", "null", "true",
                                  "[12]", "{}", "NaN", "Infinity"}) {
    EXPECT_FALSE(ParseMacmon("{\"cpu_power\":" + value + "}\n").has_value()) << value;
    EXPECT_FALSE(ParseMacmon("{\"sys_power\":" + value + "}\n").has_value()) << value;
  }
  for (const std::string& text :
       {std::string(), std::string("\n"), std::string("{}\n"), std::string("[]\n"),
        std::string("{\"cpu_power\":5}"), std::string("thread 'main' panicked\n"),
        std::string(1'000'000, '['), std::string(60'000, '[') + "\n",
        "{\"cpu_power\":5,\"a\":\"" + std::string(70'000, 'a') + "\"}\n"}) {
    EXPECT_FALSE(ParseMacmon(text).has_value()) << text.substr(0, 40);
  }
}

TEST(Macmon, DamageCrashesNothing) {
  std::mt19937_64 random(31);
  const std::string text = tests::Captured("macmon/since-0.8.txt");
  for (int i = 0; i < 20'000; ++i) {
    const auto power = ParseMacmon(tests::Mutate(text, random));
    ASSERT_TRUE(!power || (power->watts > 0 && power->watts <= kWattsMax));
  }
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
