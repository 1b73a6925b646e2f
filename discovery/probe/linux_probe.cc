#include "discovery/probe/linux_probe.h"

#include <algorithm>
#include <array>
#include <filesystem>
#include <system_error>
#include <utility>

#include "absl/strings/str_cat.h"
#include "discovery/parsers/text_scan.h"
#include "discovery/probe/linux_files.h"
#include "discovery/probe/linux_power.h"
#include "discovery/probe/machine_id.h"

namespace macrame::discovery {
namespace {

namespace fs = std::filesystem;

constexpr size_t kPowerSuppliesMax = 16;
constexpr int kThermalZonesMax = 64;
constexpr uint64_t kThousandthsMax = 200'000;  // beyond it a sensor is broken
// Shares of all memory below which a machine without pressure figures is called short.
constexpr uint64_t kWarningPercent = 10;
constexpr uint64_t kCriticalPercent = 3;
// Per cent of the last ten seconds in which somebody, or everybody, waited for memory.
constexpr double kStallPercent = 10;

double StallPercent(std::string_view psi, std::string_view who) {
  for (const std::string_view line : WholeLines(psi)) {
    const auto words = Words(line);
    if (words.size() < 2 || words[0] != who || !words[1].starts_with("avg10=")) continue;
    return ParseReal(words[1].substr(6)).value_or(0);
  }
  return 0;
}

// A battery that is emptied or beside mains that are off; a machine without either runs on mains.
// Laptops that are charged by USB-C alone list no mains.
bool OnBattery(const std::string& root) {
  bool has_battery = false;
  bool is_emptied = false;
  bool has_mains = false;
  bool mains_online = false;
  size_t seen = 0;
  std::error_code error;
  for (fs::directory_iterator it(root + "/sys/class/power_supply", error), end;
       !error && it != end && seen < kPowerSuppliesMax; it.increment(error), ++seen) {
    const std::string folder = it->path().string();
    const std::string type = ReadLine(folder + "/type");
    // Mice and phones have batteries too.
    if (type == "Battery" && ReadLine(folder + "/scope") != "Device") {
      has_battery = true;
      is_emptied = is_emptied || ReadLine(folder + "/status") == "Discharging";
    }
    if (type == "Mains" || type == "USB") {
      has_mains = has_mains || type == "Mains";
      mains_online = mains_online || ReadLine(folder + "/online") == "1";
    }
  }
  return has_battery && !mains_online && (has_mains || is_emptied);
}

}  // namespace

std::map<std::string, uint64_t> ParseMeminfo(std::string_view text) {
  std::map<std::string, uint64_t> values;
  for (const std::string_view line : WholeLines(text)) {
    std::string_view name;
    std::string_view value;
    if (!SplitOnce(line, ":", name, value)) continue;
    const auto words = Words(value);
    if (words.size() != 2 || words[1] != "kB") continue;
    const auto kibibytes = ParseUnsigned(words[0]);
    const auto bytes = kibibytes ? Multiply(*kibibytes, 1024) : std::nullopt;
    if (bytes) values[std::string(name)] = *bytes;
  }
  return values;
}

v1::MemoryPressure LinuxPressure(std::string_view psi, uint64_t available, uint64_t total) {
  if (total == 0 && psi.empty()) return v1::MEMORY_PRESSURE_UNSPECIFIED;
  const uint64_t percent = total == 0 ? 100 : available / (total / 100 + 1);
  if (StallPercent(psi, "full") >= kStallPercent || percent < kCriticalPercent) {
    return v1::MEMORY_PRESSURE_CRITICAL;
  }
  if (StallPercent(psi, "some") >= kStallPercent || percent < kWarningPercent) {
    return v1::MEMORY_PRESSURE_WARNING;
  }
  return v1::MEMORY_PRESSURE_NORMAL;
}

std::optional<CpuTicks> ParseCpuTicks(std::string_view text) {
  const size_t end = text.find('\n');
  if (end == text.npos) return std::nullopt;
  const auto words = Words(text.substr(0, end));
  // user nice system idle iowait irq softirq steal; guest time is within user.
  if (words.size() < 5 || words[0] != "cpu") return std::nullopt;
  CpuTicks ticks;
  for (size_t i = 1; i < words.size() && i <= 8; ++i) {
    const auto count = ParseUnsigned(words[i]);
    if (!count || *count > (uint64_t{1} << 56)) return std::nullopt;
    ticks.all += *count;
    const bool is_idle = i == 4 || i == 5;
    if (!is_idle) ticks.busy += *count;
  }
  return ticks;
}

LinuxProbe::LinuxProbe(std::string root, CommandRunner* runner)
    : root_(std::move(root)), runner_(runner), cgroup_(root_) {}

v1::Inventory LinuxProbe::CollectInventory(const InventoryInputs& inputs) {
  return CollectLinuxInventory(root_, inputs);
}

v1::ThermalState LinuxProbe::Thermal() {
  const auto count =
      ReadNumber(root_ + "/sys/devices/system/cpu/cpu0/thermal_throttle/package_throttle_count");
  const auto before = std::exchange(last_throttle_count_, count);
  if (!count || !before) return v1::THERMAL_STATE_UNSPECIFIED;
  return *count > *before ? v1::THERMAL_STATE_THROTTLED : v1::THERMAL_STATE_NOMINAL;
}

std::optional<double> HottestCelsius(const std::string& root) {
  std::optional<double> hottest;
  for (int zone = 0; zone < kThermalZonesMax; ++zone) {
    const std::string folder = absl::StrCat(root, "/sys/class/thermal/thermal_zone", zone);
    const std::string type = ReadLine(folder + "/type");
    if (type.empty()) break;
    const auto thousandths = ReadNumber(folder + "/temp");
    // Boards list what is no processor too: batteries, radios, a fixed figure of the firmware.
    const bool is_processor = type.find("cpu") != type.npos || type.find("pkg") != type.npos ||
                              type.find("soc") != type.npos;
    if (!is_processor || !thousandths || *thousandths > kThousandthsMax) continue;
    hottest = std::max(hottest.value_or(0), static_cast<double>(*thousandths) / 1000);
  }
  return hottest;
}

v1::NodeLoad LinuxProbe::CollectSlowLoad(MonotonicTime now) {
  v1::NodeLoad load;
  const auto gpu = ReadNumber(root_ + "/sys/class/drm/card0/device/gpu_busy_percent");
  load.set_gpu_busy_ratio(gpu && *gpu <= 100 ? static_cast<double>(*gpu) / 100 : -1);
  load.set_thermal_state(Thermal());
  if (const auto hottest = HottestCelsius(root_)) load.set_temperature_celsius(*hottest);
  load.set_on_battery(OnBattery(root_));
  energy_.Take(ReadLinuxPower(root_, runner_, load.on_battery()), now, load);
  return load;
}

std::string LinuxProbe::CollectMachineId() { return LinuxMachineId(root_); }

void LinuxProbe::SampleFastLoad(v1::NodeLoad& load) {
  const auto memory = ParseMeminfo(ReadFile(root_ + "/proc/meminfo"));
  const auto value = [&memory](const char* name) {
    const auto found = memory.find(name);
    return found == memory.end() ? uint64_t{0} : found->second;
  };
  uint64_t total = value("MemTotal");
  uint64_t available = value("MemAvailable");
  if (const auto left = cgroup_.Available(total)) {
    available = std::min(available, *left);
    total = cgroup_.Limit(total).value_or(total);
  }
  load.set_memory_available_bytes(available);
  load.set_swap_used_bytes(value("SwapTotal") - std::min(value("SwapTotal"), value("SwapFree")));
  load.set_memory_pressure(
      LinuxPressure(ReadFile(root_ + "/proc/pressure/memory"), available, total));

  const auto ticks = ParseCpuTicks(ReadFile(root_ + "/proc/stat"));
  const auto before = std::exchange(last_ticks_, ticks);
  // Two samples within one tick say nothing; the last figure then stands.
  if (ticks && before && ticks->all > before->all) {
    const double busy = static_cast<double>(ticks->busy - std::min(ticks->busy, before->busy)) /
                        static_cast<double>(ticks->all - before->all);
    last_busy_ = std::clamp(busy, 0.0, 1.0);
  }
  load.set_cpu_busy_ratio(last_busy_);
}

}  // namespace macrame::discovery
