// Linux machines made of files, for what captured ones do not show.

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <optional>
#include <random>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "discovery/probe/inventory.h"
#include "discovery/probe/linux_files.h"
#include "discovery/probe/linux_probe.h"
#include "tests/unit/fresh_folder.h"

namespace macrame::discovery {
namespace {

namespace fs = std::filesystem;

constexpr uint64_t kGiB = uint64_t{1} << 30;
constexpr uint64_t kTotal = 64 * kGiB;

class LinuxMachineTest : public ::testing::Test {
 protected:
  LinuxMachineTest() : root_(FreshFolder()) {}

  void Write(const std::string& path, const std::string& text) {
    const fs::path file = root_ + path;
    fs::create_directories(file.parent_path());
    std::ofstream(file, std::ios::binary) << text;
  }
  void Group(const std::string& path, const std::string& limit, uint64_t used = 0,
             uint64_t cache = 0) {
    const std::string folder = absl::StrCat("/sys/fs/cgroup", path, "/memory.");
    Write(folder + "max", limit + "\n");
    Write(folder + "current", absl::StrCat(used, "\n"));
    Write(folder + "stat", absl::StrCat("anon 1\ninactive_file ", cache, "\nactive_file 7\n"));
  }
  std::optional<uint64_t> Limit() { return CgroupMemory(root_).Limit(kTotal); }
  std::optional<uint64_t> Available() { return CgroupMemory(root_).Available(kTotal); }
  v1::Inventory Inventory() {
    InventoryInputs inputs;
    inputs.node_id = NodeId("000000000000000000000000000000aa");
    return CollectLinuxInventory(root_, inputs);
  }
  std::vector<std::string> Unknown() {
    std::vector<std::string> facts;
    const v1::Inventory inventory = Inventory();
    for (const v1::Reason& reason : inventory.unknown()) {
      facts.push_back(reason.message().substr(0, reason.message().find(':')));
    }
    return facts;
  }

  const std::string root_;
};

TEST_F(LinuxMachineTest, TheTightestLevelLimitsWhereverItIs) {
  const std::vector<std::string> levels = {"", "/system.slice", "/system.slice/app..v2.service",
                                           "/system.slice/app..v2.service/worker"};
  Write("/proc/self/cgroup", absl::StrCat("0::", levels.back(), "\n"));
  EXPECT_FALSE(Limit().has_value());
  for (size_t tight = 0; tight < levels.size(); ++tight) {
    for (size_t i = 0; i < levels.size(); ++i) {
      Group(levels[i], i == tight ? absl::StrCat(3 * kGiB) : i % 2 == 0 ? "max" : "8589934592");
    }
    EXPECT_EQ(Limit(), 3 * kGiB) << levels[tight];
  }
}

TEST_F(LinuxMachineTest, WhatMayBeTakenIsTheLeastOfAllLevels) {
  std::mt19937_64 random(4);
  Write("/proc/self/cgroup", "0::/a/b/c\n");
  for (int round = 0; round < 50; ++round) {
    std::optional<uint64_t> expected;
    for (const char* level : {"", "/a", "/a/b", "/a/b/c"}) {
      const uint64_t limit = random() % (2 * kTotal), used = random() % kTotal;
      const uint64_t cache = random() % kTotal;
      Group(level, absl::StrCat(limit), used, cache);
      if (limit == 0 || limit >= kTotal) continue;
      const uint64_t held = used > cache ? used - cache : 0;
      expected = std::min(expected.value_or(kTotal), limit > held ? limit - held : 0);
    }
    EXPECT_EQ(Available(), expected);
  }
}

TEST_F(LinuxMachineTest, AProcessThatWasMovedOutOfItsContainerHasTheContainersLimit) {
  for (const char* path : {"/../../outside", "/..", "/../sibling/deep"}) {
    Write("/proc/self/cgroup", absl::StrCat("0::", path, "\n"));
    Group("", absl::StrCat(5 * kGiB), kGiB);
    EXPECT_EQ(Limit(), 5 * kGiB) << path;
    EXPECT_EQ(Available(), 4 * kGiB) << path;
  }
}

TEST_F(LinuxMachineTest, LimitsThatAreNoneAreNone) {
  Write("/proc/self/cgroup", "0::/a\n");
  for (const char* text : {"max", "", "0", "-1", "9223372036854771712", "18446744073709551615",
                           "12 GiB", "99999999999999999999"}) {
    Group("/a", text);
    EXPECT_FALSE(Limit().has_value()) << text;
    EXPECT_FALSE(Available().has_value()) << text;
  }
}

TEST_F(LinuxMachineTest, LinesOfGroupsThatAreBrokenAreLeftOut) {
  Group("/a", absl::StrCat(kGiB));
  for (const char* text :
       {"", "\n", ":\n", "::\n", "0:\n", "1:cpu,memory\n", "0::/a", "x\n0:/a\n", "4:cpuset:/a\n"}) {
    Write("/proc/self/cgroup", text);
    EXPECT_FALSE(Limit().has_value()) << text;
  }
  Write("/proc/self/cgroup", "garbage\n0::/a\n");
  EXPECT_EQ(Limit(), kGiB);
}

TEST_F(LinuxMachineTest, ProcessorsAreCountedByTheirListWhereNothingElseTells) {
  const std::vector<std::pair<std::string, uint32_t>> lists = {
      {"0", 1},       {"0-3", 4},   {"0-3,8", 5}, {"0-1,4-5,7", 5}, {"0-4096", 4096},
      {"", 0},        {"3-0", 0},   {"0-", 0},    {"-3", 0},        {"a", 0},
      {"0-99999", 0}, {"0,1,x", 0}, {"0 - 3", 0}, {"1,1,1", 3},
  };
  for (const auto& [list, count] : lists) {
    Write("/sys/devices/system/cpu/online", list + "\n");
    EXPECT_EQ(Inventory().cpu_cores(), count) << list;
    const auto unknown = Unknown();
    EXPECT_EQ(std::count(unknown.begin(), unknown.end(), "cpu_cores"), count == 0 ? 1 : 0) << list;
  }
}

TEST_F(LinuxMachineTest, MoreFastCoresThanCoresAreAMisreading) {
  Write("/sys/devices/system/cpu/online", "0-7\n");
  for (const auto& [list, fast] : std::vector<std::pair<std::string, uint32_t>>{
           {"0-3", 4}, {"0-7", 8}, {"0-15", 8}, {"none", 8}}) {
    Write("/sys/devices/cpu_core/cpus", list + "\n");
    EXPECT_EQ(Inventory().performance_cores(), fast) << list;
  }
}

TEST_F(LinuxMachineTest, NamesOfSystemsAreReadWithQuotesOrWithout) {
  struct Case {
    const char *text, *name, *version;
  };
  for (const Case& one : {
           Case{"NAME=\"Debian GNU/Linux\"\nVERSION_ID=\"13\"\n", "Debian GNU/Linux", "13"},
           Case{"NAME=Fedora\nVERSION_ID=42\n", "Fedora", "42"},
           Case{"NAME='Arch Linux'\nBUILD_ID=rolling\n", "Arch Linux", "rolling"},
           Case{"BUILD_ID=1\nNAME=x\nVERSION_ID=2\n", "x", "2"},
           Case{"NAME=\"half\nVERSION_ID=\"\n", "\"half", "\""},
           Case{"NAME=a\x1b[31m\nVERSION_ID=\xff\n", "a?[31m", "?"},
       }) {
    Write("/etc/os-release", one.text);
    EXPECT_EQ(Inventory().os_name(), one.name);
    EXPECT_EQ(Inventory().os_version(), one.version);
  }
}

TEST_F(LinuxMachineTest, ABareRootIsUnknownInEveryFactAndNothingElse) {
  const v1::Inventory bare = Inventory();
  for (const char* fact : {"os_name", "os_version", "os_build", "machine_model", "chip",
                           "cpu_cores", "memory_total_bytes", "memory_gpu_usable_bytes",
                           "swap_total_bytes", "boot_time_unix_seconds"}) {
    EXPECT_THAT(Unknown(), ::testing::Contains(fact));
  }
  EXPECT_EQ(bare.memory_total_bytes(), 0u);
  EXPECT_EQ(bare.gpu_name(), "");
  v1::NodeLoad load;
  LinuxProbe(root_).SampleFastLoad(load);
  EXPECT_EQ(load.memory_available_bytes(), 0u);
  EXPECT_EQ(load.memory_pressure(), v1::MEMORY_PRESSURE_UNSPECIFIED);
  EXPECT_EQ(load.cpu_busy_ratio(), 0);
}

TEST_F(LinuxMachineTest, OnlyTheMachinesOwnBatteryWithoutMainsIsOne) {
  struct Supply {
    const char *name, *type, *scope, *online;
    const char* status = "";
  };
  const Supply battery{"BAT0", "Battery", "", ""}, mouse{"hid", "Battery", "Device", ""};
  const Supply mains{"AC", "Mains", "", "1"}, unplugged{"AC", "Mains", "", "0"};
  const Supply usb{"ucsi", "USB", "", "1"}, usb_unplugged{"ucsi", "USB", "", "0"};
  const Supply emptied{"BAT1", "Battery", "", "", "Discharging"};
  const Supply full{"BAT1", "Battery", "", "", "Full"};
  const std::vector<std::pair<std::vector<Supply>, bool>> cases = {
      {{}, false},
      {{battery, mains}, false},
      {{battery, unplugged}, true},
      {{battery, unplugged, usb}, false},
      {{mouse, unplugged}, false},
      {{mouse, battery, unplugged}, true},
      {{battery}, false},
      {{emptied, usb_unplugged}, true},
      {{emptied, usb}, false},
      {{full, usb_unplugged}, false},
  };
  for (const auto& [supplies, on_battery] : cases) {
    fs::remove_all(root_ + "/sys");
    for (const Supply& supply : supplies) {
      const std::string folder = absl::StrCat("/sys/class/power_supply/", supply.name);
      Write(folder + "/type", absl::StrCat(supply.type, "\n"));
      if (*supply.scope != '\0') Write(folder + "/scope", absl::StrCat(supply.scope, "\n"));
      if (*supply.online != '\0') Write(folder + "/online", absl::StrCat(supply.online, "\n"));
      if (*supply.status != '\0') Write(folder + "/status", absl::StrCat(supply.status, "\n"));
    }
    EXPECT_EQ(LinuxProbe(root_).CollectSlowLoad(MonotonicTime()).on_battery(), on_battery)
        << supplies.size();
  }
}

TEST_F(LinuxMachineTest, TheHottestSensorOfTheProcessorIsTold) {
  EXPECT_FALSE(HottestCelsius(root_).has_value());
  const auto zone = [&](int number, const std::string& type, const std::string& temperature) {
    const std::string folder = absl::StrCat("/sys/class/thermal/thermal_zone", number);
    Write(folder + "/type", type + "\n");
    Write(folder + "/temp", temperature + "\n");
  };
  zone(0, "acpitz", "99000");
  EXPECT_FALSE(HottestCelsius(root_).has_value());
  zone(1, "x86_pkg_temp", "61500");
  zone(2, "cpu-thermal", "58000");
  zone(3, "soc_thermal", "-40000");
  zone(4, "cpu1-thermal", "200001");
  EXPECT_DOUBLE_EQ(HottestCelsius(root_).value(), 61.5);
  zone(1, "x86_pkg_temp", "");
  EXPECT_DOUBLE_EQ(HottestCelsius(root_).value(), 58);
}

TEST_F(LinuxMachineTest, BusyIsWhatPassedSinceTheSampleBefore) {
  LinuxProbe probe(root_);
  const auto busy = [&](const std::string& line) {
    Write("/proc/stat", line + "\n");
    v1::NodeLoad load;
    probe.SampleFastLoad(load);
    return load.cpu_busy_ratio();
  };
  // user nice system idle iowait irq softirq steal guest
  EXPECT_EQ(busy("cpu 100 0 0 900 0 0 0 0 50"), 0);
  EXPECT_DOUBLE_EQ(busy("cpu 150 0 0 950 0 0 0 0 90"), 0.5);
  EXPECT_DOUBLE_EQ(busy("cpu 150 0 0 950 0 0 0 0 90"), 0.5) << "no tick passed";
  EXPECT_DOUBLE_EQ(busy("cpu 150 0 0 1000 50 0 0 0"), 0) << "waiting for disks is idle";
  EXPECT_DOUBLE_EQ(busy("cpu 175 25 25 1000 50 25 0 0"), 1);
  EXPECT_DOUBLE_EQ(busy("nonsense"), 1) << "the last figure stands";
  EXPECT_DOUBLE_EQ(busy("cpu 1 0 0 1 0 0 0 0"), 1) << "and where there is nothing to compare with";
  EXPECT_DOUBLE_EQ(busy("cpu 1 0 0 5 0 0 0 0"), 0);
}

TEST_F(LinuxMachineTest, FilesAreReadUpToABoundAndPipesAreNotWaitedFor) {
  Write("/large", std::string(3 * kProcFileBytesMax, 'x'));
  const size_t read = ReadFile(root_ + "/large").size();
  EXPECT_GE(read, kProcFileBytesMax);
  EXPECT_LT(read, 2 * kProcFileBytesMax);
  EXPECT_EQ(ReadFile(root_ + "/none"), "");
  EXPECT_EQ(ReadFile(root_), "") << "a folder";
  ASSERT_EQ(::mkfifo((root_ + "/pipe").c_str(), 0600), 0);
  EXPECT_EQ(ReadFile(root_ + "/pipe"), "");
  Write("/number", "  42  \nmore\n");
  EXPECT_EQ(ReadLine(root_ + "/number"), "42");
  EXPECT_EQ(ReadNumber(root_ + "/number"), 42u);
  Write("/number", "42 kB\n");
  EXPECT_FALSE(ReadNumber(root_ + "/number").has_value());
}

}  // namespace
}  // namespace macrame::discovery
