#include "discovery/parsers/mac_parsers.h"

#include <gtest/gtest.h>

#include <functional>
#include <random>
#include <tuple>

#include "tests/unit/discovery/captured.h"
#include "tests/unit/discovery/mutation.h"

namespace macrame::discovery {
namespace {

using tests::Captured;

TEST(MacParsers, Sysctl) {
  const auto values = ParseSysctl(Captured("studio-m3-ultra-512/sysctl.txt"));
  EXPECT_EQ(values.at("hw.model"), "Mac15,14");
  EXPECT_EQ(SysctlNumber(values, "hw.memsize"), 549755813888u);
  EXPECT_EQ(SysctlNumber(values, "hw.model"), std::nullopt);
  EXPECT_EQ(SysctlNumber(values, "no.such"), std::nullopt);
  EXPECT_EQ(ParseBootTime(values.at("kern.boottime")), 1793610120u);
}

TEST(MacParsers, SwapAndLoad) {
  const auto swap =
      ParseSwapUsage("total = 3072.00M  used = 2048.50M  free = 1023.50M  (encrypted)");
  ASSERT_TRUE(swap.has_value());
  EXPECT_EQ(swap->total_bytes, uint64_t{3072} << 20);
  EXPECT_EQ(swap->used_bytes, (uint64_t{2048} << 20) + (uint64_t{1} << 19));
  EXPECT_FALSE(ParseSwapUsage("total = 3072.00M  used = 20").has_value());
  EXPECT_FALSE(ParseSwapUsage("total = 3072,00M  used = 1,00M").has_value());
  EXPECT_FALSE(ParseSwapUsage("total = -1.00M  used = 0.00M").has_value());
  EXPECT_DOUBLE_EQ(*ParseLoadAverage("{ 2.04 1.80 1.75 }"), 2.04);
  EXPECT_FALSE(ParseLoadAverage("2.04 1.80 1.75").has_value());
  EXPECT_FALSE(ParseBootTime("{ sec = 17936").has_value());
}

TEST(MacParsers, SwVers) {
  const SwVers versions = ParseSwVers(Captured("macbook-air-m4-on-battery/sw_vers.txt"));
  EXPECT_EQ(versions.name, "macOS");
  EXPECT_EQ(versions.version, "26.3.1");
  EXPECT_EQ(versions.build, "25D2128");
}

TEST(MacParsers, VmStat) {
  const VmStat stat = ParseVmStat(Captured("studio-m3-ultra-512/vm_stat.txt"));
  EXPECT_EQ(stat.page_bytes, 16384u);
  const uint64_t all = (20000000ull + 310000 + 3000000 + 41000) * 16384;
  EXPECT_EQ(AvailableBytes(stat, v1::MEMORY_PRESSURE_NORMAL), all);
  // Under pressure only what is free now.
  EXPECT_EQ(AvailableBytes(stat, v1::MEMORY_PRESSURE_WARNING), (20000000ull + 310000) * 16384);
  VmStat partial = stat;
  partial.purgeable.reset();
  EXPECT_FALSE(AvailableBytes(partial, v1::MEMORY_PRESSURE_NORMAL).has_value());
}

TEST(MacParsers, MemoryPressure) {
  EXPECT_DOUBLE_EQ(*ParseMemoryFreeRatio(Captured("mini-m4-pro-24-busy/memory_pressure.txt")),
                   0.11);
  EXPECT_FALSE(ParseMemoryFreeRatio("System-wide memory free percentage: 110%\n").has_value());
  EXPECT_EQ(PressureOfLevel(1), v1::MEMORY_PRESSURE_NORMAL);
  EXPECT_EQ(PressureOfLevel(2), v1::MEMORY_PRESSURE_WARNING);
  EXPECT_EQ(PressureOfLevel(4), v1::MEMORY_PRESSURE_CRITICAL);
  EXPECT_EQ(PressureOfLevel(3), v1::MEMORY_PRESSURE_UNSPECIFIED);
  EXPECT_EQ(PressureOfLevel(std::nullopt), v1::MEMORY_PRESSURE_UNSPECIFIED);
}

TEST(MacParsers, Ioreg) {
  const IoregGpu gpu = ParseIoregGpu(Captured("studio-m3-ultra-512/ioreg-gpu.txt"));
  EXPECT_EQ(gpu.model, "Apple M3 Ultra");
  EXPECT_EQ(gpu.cores, 80u);
  EXPECT_DOUBLE_EQ(*gpu.busy_ratio, 0.64);
  EXPECT_FALSE(ParseIoregGpu("").cores.has_value());
  // Two accelerators: the larger one counts.
  const std::string two = Captured("macbook-air-m4-on-battery/ioreg-gpu.txt") +
                          Captured("mini-m4-pro-24-busy/ioreg-gpu.txt") +
                          Captured("macbook-air-m4-on-battery/ioreg-gpu.txt");
  EXPECT_EQ(ParseIoregGpu(two).cores, 16u);
}

TEST(MacParsers, Pmset) {
  EXPECT_EQ(ParsePmsetTherm(Captured("studio-m3-ultra-512/pmset-therm.txt")),
            v1::THERMAL_STATE_NOMINAL);
  EXPECT_EQ(ParsePmsetTherm(Captured("macbook-air-m4-on-battery/pmset-therm.txt")),
            v1::THERMAL_STATE_NOMINAL);
  EXPECT_EQ(ParsePmsetTherm(Captured("mini-m4-pro-24-busy/pmset-therm.txt")),
            v1::THERMAL_STATE_THROTTLED);
  EXPECT_EQ(ParsePmsetTherm(""), v1::THERMAL_STATE_UNSPECIFIED);
  EXPECT_EQ(ParsePmsetOnBattery(Captured("macbook-air-m4-on-battery/pmset-batt.txt")), true);
  EXPECT_EQ(ParsePmsetOnBattery(Captured("studio-m3-ultra-512/pmset-batt.txt")), false);
  EXPECT_EQ(ParsePmsetOnBattery("Stromversorgung: Netzteil\n"), std::nullopt);
}

TEST(MacParsers, SystemProfiler) {
  const auto studio = ParseHardwareOverview(Captured("studio-m3-ultra-profiler/hardware.json"));
  EXPECT_EQ(studio.machine_model, "Mac15,14");
  EXPECT_EQ(studio.chip, "Apple M3 Ultra");
  EXPECT_EQ(studio.memory_bytes, uint64_t{256} << 30);
  EXPECT_EQ(studio.cpu_cores, 28u);
  EXPECT_EQ(studio.performance_cores, 20u);
  EXPECT_EQ(studio.firmware, "13822.81.10");
  const auto virtual_mac = ParseHardwareOverview(Captured("virtual-mac/hardware.json"));
  EXPECT_EQ(virtual_mac.cpu_cores, 4u);
  EXPECT_FALSE(virtual_mac.performance_cores.has_value());
  EXPECT_EQ(virtual_mac.firmware, "") << "it does not tell";
  EXPECT_EQ(ParseDisplays(Captured("studio-m3-ultra-profiler/displays.json")).cores, 60u);
  const auto paravirtual = ParseDisplays(Captured("virtual-mac/displays.json"));
  EXPECT_EQ(paravirtual.name, "Apple Paravirtual device");
  EXPECT_FALSE(paravirtual.cores.has_value());
  for (const char* text :
       {"", "[]", "null", "{\"SPHardwareDataType\":[3]}", "{\"SPHardwareDataType\":{}}",
        "{\"SPHardwareDataType\":[{\"number_processors\":-4}]}"}) {
    EXPECT_FALSE(ParseHardwareOverview(text).cpu_cores.has_value()) << text;
    EXPECT_FALSE(ParseDisplays(text).cores.has_value()) << text;
  }
}

// Newer systems tell four kinds: all, the fastest, efficiency, and what lies between the two.
TEST(MacParsers, CoresOfFourKindsAreThoseThatSysctlTells) {
  const std::tuple<const char*, uint32_t, uint32_t> said[] = {{"proc 18:6:0:12", 18, 6},
                                                              {"proc 16:12:4:0", 16, 12},
                                                              {"proc 8:4:4:0", 8, 4},
                                                              {"proc 10:4:6", 10, 4}};
  for (const auto& [text, cores, fastest] : said) {
    const auto overview = ParseHardwareOverview(
        std::string("{\"SPHardwareDataType\":[{\"number_processors\":\"") + text + "\"}]}");
    EXPECT_EQ(overview.cpu_cores, cores) << text;
    EXPECT_EQ(overview.performance_cores, fastest) << text << ", as hw.perflevel0.physicalcpu";
  }
}

TEST(MacParsers, Df) {
  const auto rows = ParseDf(Captured("studio-m3-ultra-512/df.txt"));
  ASSERT_EQ(rows.size(), 2u);
  EXPECT_EQ(rows[0].device, "/dev/disk3s1s1");
  EXPECT_EQ(rows[0].mounted_on, "/");
  EXPECT_EQ(rows[0].total_bytes, 7812500000ull * 1024);
  EXPECT_EQ(rows[1].mounted_on, "/Volumes/Model Store");
  EXPECT_EQ(rows[1].free_bytes, 3000000000ull * 1024);
  const auto named = ParseDf("map auto_home 0 0 0 100% /System/Volumes/Data/home\n");
  ASSERT_EQ(named.size(), 1u);
  EXPECT_EQ(named[0].device, "map auto_home");
}

// Every parser over every capture: cut at each byte, and damaged at random. What is asked is that
// nothing crashes and that a cut never makes up a figure that the whole output does not have.
struct ParserCase {
  const char* file;
  std::function<std::string(std::string_view)> facts;  // empty: nothing known
};

std::string Show(std::optional<uint64_t> n) { return n ? std::to_string(*n) : ""; }
std::string Show(std::optional<uint32_t> n) { return n ? std::to_string(*n) : ""; }
std::string Show(std::optional<double> n) { return n ? std::to_string(*n) : ""; }

std::vector<ParserCase> Cases() {
  const auto sysctl = [](const char* key) {
    return [key](std::string_view t) { return Show(SysctlNumber(ParseSysctl(t), key)); };
  };
  return {
      {"mini-m4-pro-24-busy/sysctl.txt", sysctl("hw.memsize")},
      {"mini-m4-pro-24-busy/sysctl.txt",
       [](std::string_view t) {
         const auto values = ParseSysctl(t);
         const auto found = values.find("vm.swapusage");
         const auto swap = found == values.end() ? std::nullopt : ParseSwapUsage(found->second);
         return swap ? std::to_string(swap->used_bytes) : "";
       }},
      {"mini-m4-pro-24-busy/sw_vers.txt", [](std::string_view t) { return ParseSwVers(t).build; }},
      {"mini-m4-pro-24-busy/vm_stat.txt",
       [](std::string_view t) {
         return Show(AvailableBytes(ParseVmStat(t), v1::MEMORY_PRESSURE_NORMAL));
       }},
      {"mini-m4-pro-24-busy/memory_pressure.txt",
       [](std::string_view t) { return Show(ParseMemoryFreeRatio(t)); }},
      {"mini-m4-pro-24-busy/ioreg-gpu.txt",
       [](std::string_view t) { return Show(ParseIoregGpu(t).cores); }},
      {"mini-m4-pro-24-busy/ioreg-gpu.txt",
       [](std::string_view t) { return Show(ParseIoregGpu(t).busy_ratio); }},
      {"macbook-air-m4-on-battery/pmset-batt.txt",
       [](std::string_view t) {
         const auto battery = ParsePmsetOnBattery(t);
         return battery ? std::to_string(*battery) : "";
       }},
      {"studio-m3-ultra-profiler/hardware.json",
       [](std::string_view t) { return Show(ParseHardwareOverview(t).memory_bytes); }},
      {"studio-m3-ultra-profiler/hardware.json",
       [](std::string_view t) { return ParseHardwareOverview(t).firmware; }},
      {"studio-m3-ultra-profiler/displays.json",
       [](std::string_view t) { return Show(ParseDisplays(t).cores); }},
      {"studio-m3-ultra-512/df.txt",
       [](std::string_view t) {
         const auto rows = ParseDf(t);
         return rows.size() < 2 ? "" : std::to_string(rows[1].free_bytes);
       }},
  };
}

TEST(MacParsersProperty, ACutMakesNothingUp) {
  for (const ParserCase& c : Cases()) {
    const std::string text = Captured(c.file);
    const std::string whole = c.facts(text);
    EXPECT_FALSE(whole.empty()) << c.file;
    for (size_t n = 0; n < text.size(); ++n) {
      const std::string cut = c.facts(std::string_view(text).substr(0, n));
      ASSERT_TRUE(cut.empty() || cut == whole) << c.file << " cut at " << n << ": " << cut;
    }
  }
  // A thermal report that is cut before its limits may only say less bad news, never none at all.
  const std::string therm = Captured("mini-m4-pro-24-busy/pmset-therm.txt");
  for (size_t n = 0; n < therm.size(); ++n) ParsePmsetTherm(std::string_view(therm).substr(0, n));
}

TEST(MacParsersProperty, DamageCrashesNothing) {
  std::mt19937_64 random(26);
  for (const ParserCase& c : Cases()) {
    const std::string text = Captured(c.file);
    for (int i = 0; i < 3000; ++i) {
      const std::string damaged = tests::Mutate(text, random);
      c.facts(damaged);
      ParsePmsetTherm(damaged);
      ParseBootTime(damaged);
      ParseLoadAverage(damaged);
      ParseSwapUsage(damaged);
      const IoregGpu gpu = ParseIoregGpu(damaged);
      ASSERT_LE(gpu.cores.value_or(0), kCoresMax);
      ASSERT_LE(gpu.busy_ratio.value_or(0), 1.0);
      const auto available = AvailableBytes(ParseVmStat(damaged), v1::MEMORY_PRESSURE_NORMAL);
      ASSERT_LE(available.value_or(0), kMemoryBytesMax);
    }
  }
}

}  // namespace
}  // namespace macrame::discovery
