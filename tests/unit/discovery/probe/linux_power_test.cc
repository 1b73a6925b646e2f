#include "discovery/probe/linux_power.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <fstream>

#include "discovery/probe/linux_probe.h"
#include "tests/unit/fresh_folder.h"

namespace macrame::discovery {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

// A /sys and /proc of a machine that is none.
class LinuxPowerTest : public testing::Test {
 protected:
  void SetUp() override { root_ = FreshFolder(); }

  void Write(const std::string& path, const std::string& text) {
    const std::filesystem::path file = root_ + path;
    std::filesystem::create_directories(file.parent_path());
    std::ofstream(file, std::ios::binary) << text;
  }
  void Domain(const std::string& folder, const std::string& name, uint64_t microjoules) {
    const std::string at = "/sys/class/powercap/" + folder;
    Write(at + "/name", name + "\n");
    Write(at + "/energy_uj", std::to_string(microjoules) + "\n");
    Write(at + "/max_energy_range_uj", "262143328850\n");
  }
  // What only root can read; tests may be run by root, so the file is not there at all.
  void CloseDomain(const std::string& folder) {
    std::filesystem::remove(root_ + "/sys/class/powercap/" + folder + "/energy_uj");
  }
  void Battery(const std::string& name, const std::string& status) {
    const std::string at = "/sys/class/power_supply/" + name;
    Write(at + "/type", "Battery\n");
    Write(at + "/status", status + "\n");
  }
  void AmdCard(const std::string& hwmon, const std::string& microwatts, char format) {
    const std::string at = "/sys/class/hwmon/" + hwmon;
    Write(at + "/name", "amdgpu\n");
    Write(at + "/power1_average", microwatts + "\n");
    Write(at + "/device/gpu_metrics", std::string("\x78\x00", 2) + format + '\x03');
  }
  PowerReading Read(bool on_battery = false) { return ReadLinuxPower(root_, &runner_, on_battery); }

  std::string root_;
  ReplayCommandRunner runner_;
};

TEST_F(LinuxPowerTest, PackagesAndTheirMemoryAreCountedOnce) {
  Domain("intel-rapl:0", "package-0", 1'000);
  Domain("intel-rapl:0:0", "core", 600);
  Domain("intel-rapl:0:1", "dram", 50);
  Domain("intel-rapl:0:2", "uncore", 30);
  Domain("intel-rapl:1", "package-1", 2'000);
  Domain("intel-rapl:1:0", "dram", 70);
  Domain("intel-rapl:2", "psys", 9'000);
  Domain("intel-rapl-mmio:0", "package-0", 1'000);
  const PowerReading reading = Read();
  ASSERT_EQ(reading.counters.size(), 4u);
  EXPECT_EQ(reading.counters[0].name, "intel-rapl:0");
  EXPECT_EQ(reading.counters[0].microjoules, 1'000u);
  EXPECT_EQ(reading.counters[0].range_microjoules, 262'143'328'850u);
  EXPECT_EQ(reading.counters[1].name, "intel-rapl:1");
  EXPECT_EQ(reading.counters[2].part, v1::POWER_PART_MEMORY);
  EXPECT_EQ(reading.counters[3].microjoules, 70u);
  EXPECT_TRUE(reading.powers.empty());
  EXPECT_EQ(WhyNoLinuxPower(root_), "");
}

TEST_F(LinuxPowerTest, WhatCantBeReadIsNotKnownAndSaysWhy) {
  Domain("intel-rapl:0", "package-0", 1'000);
  Domain("intel-rapl:1", "package-1", 2'000);
  CloseDomain("intel-rapl:1");
  EXPECT_TRUE(Read().counters.empty()) << "one socket of two is not the machine's";
  EXPECT_THAT(WhyNoLinuxPower(root_), HasSubstr("intel-rapl:1/energy_uj can't be read"));
  InventoryInputs inputs;
  const v1::Inventory inventory = CollectLinuxInventory(root_, inputs);
  EXPECT_TRUE(std::any_of(
      inventory.unknown().begin(), inventory.unknown().end(),
      [](const v1::Reason& reason) { return reason.message().find("power_watts: ") == 0; }));
}

TEST_F(LinuxPowerTest, AMachineWithoutAnyOfItTellsNothing) {
  const PowerReading reading = Read();
  EXPECT_TRUE(reading.counters.empty());
  EXPECT_TRUE(reading.powers.empty());
  EXPECT_EQ(WhyNoLinuxPower(root_), "");
}

TEST_F(LinuxPowerTest, HostileFilesAreNotKnown) {
  Domain("intel-rapl:0", "package-0", 1'000);
  for (const char* text : {"", "\n", "-5\n", "12x\n", "99999999999999999999999\n", "\xff\xfe\n"}) {
    Write("/sys/class/powercap/intel-rapl:0/energy_uj", text);
    EXPECT_TRUE(Read().counters.empty()) << text;
  }
  AmdCard("hwmon3", "lots", 1);
  EXPECT_TRUE(Read().powers.empty());
  AmdCard("hwmon3", "99999999999999999", 1);
  EXPECT_TRUE(Read().powers.empty());
}

TEST_F(LinuxPowerTest, CardsAreSummedAndTheProcessorsOwnGpuIsNot) {
  AmdCard("hwmon1", "81000000", 1);
  AmdCard("hwmon2", "15000000", 2);
  Write("/sys/class/hwmon/hwmon3/name", "coretemp\n");
  Write("/sys/class/hwmon/hwmon3/power1_average", "5000000\n");
  Write("/sys/class/hwmon/hwmon4/name", "amdgpu\n");
  Write("/sys/class/hwmon/hwmon4/power1_input", "9500000\n");
  PowerReading reading = Read();
  ASSERT_EQ(reading.powers.size(), 1u);
  EXPECT_DOUBLE_EQ(reading.powers[0].watts, 90.5);
  EXPECT_THAT(reading.powers[0].parts, ElementsAre(v1::POWER_PART_GPU));
  std::filesystem::remove(root_ + "/sys/class/hwmon/hwmon4/power1_input");
  EXPECT_TRUE(Read().powers.empty()) << "one card of two is not the machine's";
}

TEST_F(LinuxPowerTest, NvidiaIsAskedWhereItsDriverIs) {
  EXPECT_TRUE(Read().powers.empty());
  Write("/proc/driver/nvidia/gpus/0000:65:00.0/information", "Model: \t Weaver RTX 42\n");
  EXPECT_TRUE(Read().powers.empty()) << "no such command";
  CommandResult answer;
  answer.outcome = CommandOutcome::kExited;
  answer.exit_code = 0;
  answer.out = "143.20\n";
  runner_.Set(CommandLine(NvidiaPowerCommand()), answer);
  ASSERT_EQ(Read().powers.size(), 1u);
  EXPECT_DOUBLE_EQ(Read().powers[0].watts, 143.2);
  EXPECT_TRUE(ReadLinuxPower(root_, nullptr, false).powers.empty());
  answer.exit_code = 9;
  runner_.Set(CommandLine(NvidiaPowerCommand()), answer);
  EXPECT_TRUE(Read().powers.empty());
}

TEST_F(LinuxPowerTest, OnBatteryItIsTheWholeMachineAndNothingElse) {
  Domain("intel-rapl:0", "package-0", 1'000);
  Battery("BAT0", "Discharging");
  Write("/sys/class/power_supply/BAT0/power_now", "11250000\n");
  Battery("BAT1", "Unknown");
  Write("/sys/class/power_supply/BAT1/current_now", "-500000\n");
  Write("/sys/class/power_supply/BAT1/voltage_now", "12000000\n");
  Battery("mouse", "Discharging");
  Write("/sys/class/power_supply/mouse/scope", "Device\n");
  const PowerReading reading = Read(true);
  EXPECT_TRUE(reading.counters.empty());
  ASSERT_EQ(reading.powers.size(), 1u);
  EXPECT_THAT(reading.powers[0].parts, ElementsAre(v1::POWER_PART_MACHINE));
  EXPECT_DOUBLE_EQ(reading.powers[0].watts, 11.25 + 6);
  EXPECT_EQ(Read(false).counters.size(), 1u) << "on mains a battery's power is its own";
}

TEST_F(LinuxPowerTest, ABatteryThatTellsNothingLeavesTheRest) {
  Domain("intel-rapl:0", "package-0", 1'000);
  Battery("BAT0", "Discharging");
  EXPECT_EQ(Read(true).counters.size(), 1u);
  Write("/sys/class/power_supply/BAT0/power_now", "0\n");
  EXPECT_EQ(Read(true).counters.size(), 1u) << "0 is no figure of a machine that runs";
  Write("/sys/class/power_supply/BAT0/power_now", "9000000\n");
  Battery("BAT1", "Charging");
  Write("/sys/class/power_supply/BAT1/power_now", "9000000\n");
  EXPECT_EQ(Read(true).counters.size(), 1u);
}

TEST_F(LinuxPowerTest, TheProbeTellsPowerWithWhatItCovers) {
  Domain("intel-rapl:0", "package-0", 1'000'000);
  Domain("intel-rapl:0:0", "dram", 500'000);
  LinuxProbe probe(root_, &runner_);
  const MonotonicTime start = MonotonicTime() + std::chrono::hours(1);
  EXPECT_LT(probe.CollectSlowLoad(start).power_watts(), 0);
  Domain("intel-rapl:0", "package-0", 351'000'000);
  Domain("intel-rapl:0:0", "dram", 30'500'000);
  const v1::NodeLoad load = probe.CollectSlowLoad(start + std::chrono::seconds(10));
  EXPECT_DOUBLE_EQ(load.power_watts(), 38);
  EXPECT_DOUBLE_EQ(load.energy_joules(), 380);
  EXPECT_THAT(load.power_parts(), ElementsAre(v1::POWER_PART_PACKAGE, v1::POWER_PART_MEMORY));
}

}  // namespace
}  // namespace macrame::discovery
