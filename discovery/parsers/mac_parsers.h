#pragma once

// Parsers of what a Mac's commands print. Pure; any bytes are safe; a fact that is not there, cut
// off or out of bounds is nullopt or empty. Lines and words only: column widths differ between
// versions.

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "macrame/v1/node.pb.h"

namespace macrame::discovery {

// More than any machine has: a larger figure is a misreading.
inline constexpr uint64_t kMemoryBytesMax = uint64_t{1} << 50;
inline constexpr uint32_t kCoresMax = 4096;
// Longer ones are no version; a part of one would be another version.
inline constexpr size_t kFirmwareBytesMax = 64;

// `sysctl NAME…`: name → value. Names that the system does not know are missing.
std::map<std::string, std::string> ParseSysctl(std::string_view text);
std::optional<uint64_t> SysctlNumber(const std::map<std::string, std::string>& values,
                                     const std::string& name);
// vm.swapusage: "total = 2048.00M  used = 512.50M  free = 1535.50M  (encrypted)"
struct SwapUsage {
  uint64_t total_bytes = 0;
  uint64_t used_bytes = 0;
};
std::optional<SwapUsage> ParseSwapUsage(std::string_view value);
// kern.boottime: "{ sec = 1763500000, usec = 7 } Tue Nov 18 …" → Unix seconds.
std::optional<uint64_t> ParseBootTime(std::string_view value);
// vm.loadavg: "{ 2.04 1.80 1.75 }" → the first.
std::optional<double> ParseLoadAverage(std::string_view value);

// `sw_vers`
struct SwVers {
  std::string name;     // "macOS"
  std::string version;  // "26.2"
  std::string build;    // "25C56"
};
SwVers ParseSwVers(std::string_view text);

// `vm_stat`, in pages. "Pages free" leaves the speculative ones out.
struct VmStat {
  uint64_t page_bytes = 0;
  std::optional<uint64_t> free, speculative, file_backed, purgeable;
};
VmStat ParseVmStat(std::string_view text);
// Bytes that can be had without swapping: free + speculative + file-backed + purgeable; only the
// first two once the system itself speaks of pressure. nullopt unless all of them were read.
std::optional<uint64_t> AvailableBytes(const VmStat& stat, v1::MemoryPressure pressure);

// `memory_pressure -Q` → the free share, 0 to 1.
std::optional<double> ParseMemoryFreeRatio(std::string_view text);

// kern.memorystatus_vm_pressure_level: 1, 2, 4.
v1::MemoryPressure PressureOfLevel(std::optional<uint64_t> level);

// `ioreg -r -d 1 -w 0 -c IOAccelerator`, the accelerator with the most cores.
struct IoregGpu {
  std::string model;
  std::optional<uint32_t> cores;
  std::optional<double> busy_ratio;
};
IoregGpu ParseIoregGpu(std::string_view text);

// `pmset -g therm`. No warning ever recorded is NOMINAL; a limit below 100 is THROTTLED.
v1::ThermalState ParsePmsetTherm(std::string_view text);
// `pmset -g batt`
std::optional<bool> ParsePmsetOnBattery(std::string_view text);

// `system_profiler SPHardwareDataType -json`
struct HardwareOverview {
  std::string machine_model;
  std::string chip;
  std::optional<uint64_t> memory_bytes;
  std::optional<uint32_t> cpu_cores, performance_cores;
  std::string firmware;  // "13822.81.10", of the whole system; at most kFirmwareBytesMax
};
HardwareOverview ParseHardwareOverview(std::string_view json);

// `system_profiler SPDisplaysDataType -json`
struct DisplayGpu {
  std::string name;
  std::optional<uint32_t> cores;
};
DisplayGpu ParseDisplays(std::string_view json);

// `df -k -P PATH…`, in the order of the paths; rows that can't be read are left out.
struct DfRow {
  std::string device;
  std::string mounted_on;
  uint64_t total_bytes = 0;
  uint64_t free_bytes = 0;
};
std::vector<DfRow> ParseDf(std::string_view text);

}  // namespace macrame::discovery
