#include "discovery/probe/energy_counter.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace macrame::discovery {
namespace {

using testing::ElementsAre;

MonotonicTime At(double seconds) {
  return MonotonicTime() + std::chrono::milliseconds(static_cast<int64_t>(seconds * 1000));
}

PowerReading Package(uint64_t microjoules, uint64_t range = 262'143'328'850) {
  PowerReading reading;
  reading.counters.push_back({"intel-rapl:0", v1::POWER_PART_PACKAGE, microjoules, range});
  return reading;
}

PowerReading Power(v1::PowerPart part, double watts) {
  PowerReading reading;
  reading.powers.push_back({{part}, watts});
  return reading;
}

v1::NodeLoad Take(EnergyCounter& counter, PowerReading reading, double at) {
  v1::NodeLoad load;
  counter.Take(std::move(reading), At(at), load);
  return load;
}

void ExpectUnknown(const v1::NodeLoad& load) {
  EXPECT_LT(load.power_watts(), 0);
  EXPECT_FALSE(load.has_energy_joules());
  EXPECT_EQ(load.power_parts_size(), 0);
}

TEST(EnergyCounter, CountersTellMeanPowerFromTheSecondReadingOn) {
  EnergyCounter counter;
  ExpectUnknown(Take(counter, Package(5'000'000), 100));
  const v1::NodeLoad second = Take(counter, Package(305'000'000), 110);
  EXPECT_DOUBLE_EQ(second.power_watts(), 30);
  EXPECT_DOUBLE_EQ(second.energy_joules(), 300);
  EXPECT_THAT(second.power_parts(), ElementsAre(v1::POWER_PART_PACKAGE));
  EXPECT_DOUBLE_EQ(Take(counter, Package(315'000'000), 120).energy_joules(), 310);
}

TEST(EnergyCounter, ACounterThatGoesRoundGoesOn) {
  EnergyCounter counter;
  Take(counter, Package(990'000'000, 1'000'000'000), 100);
  const v1::NodeLoad load = Take(counter, Package(40'000'000, 1'000'000'000), 110);
  EXPECT_DOUBLE_EQ(load.energy_joules(), 50);
  EXPECT_DOUBLE_EQ(load.power_watts(), 5);
}

TEST(EnergyCounter, ACounterThatWasSetBackCountsNothing) {
  EnergyCounter counter;
  Take(counter, Package(200'000'000'000), 100);
  Take(counter, Package(200'100'000'000), 110);
  // Round the range it would be 6 kW.
  ExpectUnknown(Take(counter, Package(7), 120));
  EXPECT_DOUBLE_EQ(Take(counter, Package(50'000'007), 130).energy_joules(), 150);
}

TEST(EnergyCounter, AfterALongSleepNothingIsCounted) {
  EnergyCounter counter;
  Take(counter, Package(0), 100);
  Take(counter, Package(100'000'000), 110);
  ExpectUnknown(Take(counter, Package(900'000'000), 171));
  EXPECT_DOUBLE_EQ(Take(counter, Package(910'000'000), 181).energy_joules(), 110);
}

TEST(EnergyCounter, PowersHoldSinceTheReadingBefore) {
  EnergyCounter counter;
  const v1::NodeLoad first = Take(counter, Power(v1::POWER_PART_GPU, 80), 100);
  EXPECT_DOUBLE_EQ(first.power_watts(), 80);
  EXPECT_DOUBLE_EQ(first.energy_joules(), 0);
  EXPECT_DOUBLE_EQ(Take(counter, Power(v1::POWER_PART_GPU, 20), 110).energy_joules(), 200);
  EXPECT_DOUBLE_EQ(Take(counter, Power(v1::POWER_PART_GPU, 20), 172).energy_joules(), 200);
}

TEST(EnergyCounter, CountersAndPowersAddUp) {
  EnergyCounter counter;
  const auto both = [](uint64_t microjoules, double watts) {
    PowerReading reading = Package(microjoules);
    reading.powers.push_back({{v1::POWER_PART_GPU}, watts});
    return reading;
  };
  Take(counter, both(0, 100), 0);
  const v1::NodeLoad load = Take(counter, both(400'000'000, 60), 10);
  EXPECT_DOUBLE_EQ(load.power_watts(), 100);
  EXPECT_DOUBLE_EQ(load.energy_joules(), 1000);
  EXPECT_THAT(load.power_parts(), ElementsAre(v1::POWER_PART_PACKAGE, v1::POWER_PART_GPU));
}

TEST(EnergyCounter, NothingToldIsNotKnownAndNeverZero) {
  EnergyCounter counter;
  ExpectUnknown(Take(counter, {}, 0));
  Take(counter, Package(0), 10);
  Take(counter, Package(10'000'000), 20);
  ExpectUnknown(Take(counter, {}, 30));
  ExpectUnknown(Take(counter, Package(20'000'000), 40));
  EXPECT_DOUBLE_EQ(Take(counter, Package(30'000'000), 50).energy_joules(), 20);
}

// A figure of the processor never goes on as one of the whole machine.
TEST(EnergyCounter, OtherPartsBeginAnewOnceTheyStay) {
  EnergyCounter counter;
  Take(counter, Package(0), 0);
  EXPECT_DOUBLE_EQ(Take(counter, Package(100'000'000), 10).energy_joules(), 100);
  ExpectUnknown(Take(counter, Power(v1::POWER_PART_MACHINE, 40), 20));
  ExpectUnknown(Take(counter, Power(v1::POWER_PART_MACHINE, 40), 30));
  const v1::NodeLoad machine = Take(counter, Power(v1::POWER_PART_MACHINE, 40), 40);
  EXPECT_THAT(machine.power_parts(), ElementsAre(v1::POWER_PART_MACHINE));
  EXPECT_DOUBLE_EQ(machine.energy_joules(), 0);
  EXPECT_DOUBLE_EQ(Take(counter, Power(v1::POWER_PART_MACHINE, 40), 50).energy_joules(), 400);
  // One reading of another kind in between changes nothing.
  ExpectUnknown(Take(counter, Package(200'000'000), 60));
  EXPECT_DOUBLE_EQ(Take(counter, Power(v1::POWER_PART_MACHINE, 40), 70).energy_joules(), 400);
}

TEST(EnergyCounter, WhatNoMachineDrawsIsNotKnown) {
  EnergyCounter counter;
  PowerReading reading = Power(v1::POWER_PART_GPU, 60'000);
  reading.powers.push_back({{v1::POWER_PART_MEMORY}, 60'000});
  ExpectUnknown(Take(counter, reading, 0));
}

TEST(EnergyCounter, TimeThatStandsStillDividesByNothing) {
  EnergyCounter counter;
  Take(counter, Package(0), 10);
  ExpectUnknown(Take(counter, Package(5'000'000), 10));
}

}  // namespace
}  // namespace macrame::discovery
