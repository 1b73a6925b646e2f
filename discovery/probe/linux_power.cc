#include "discovery/probe/linux_power.h"

#include <algorithm>
#include <filesystem>
#include <optional>
#include <system_error>

#include "absl/strings/str_cat.h"
#include "discovery/parsers/text_scan.h"
#include "discovery/probe/linux_files.h"

namespace macrame::discovery {
namespace {

namespace fs = std::filesystem;

constexpr size_t kEntriesMax = 256;
constexpr uint8_t kIntegratedGpuMetrics = 2;  // format_revision of struct metrics_table_header

// Names in a folder, sorted: what is read twice is read in the same order.
std::vector<std::string> NamesIn(const std::string& folder) {
  std::vector<std::string> names;
  std::error_code error;
  for (fs::directory_iterator it(folder, error), end;
       !error && it != end && names.size() < kEntriesMax; it.increment(error)) {
    names.push_back(it->path().filename().string());
  }
  std::sort(names.begin(), names.end());
  return names;
}

// A battery of the machine itself: mice and phones have some, too.
bool IsMachinesBattery(const std::string& folder) {
  return ReadLine(folder + "/type") == "Battery" && ReadLine(folder + "/scope") != "Device";
}

std::optional<double> Millionths(const std::string& path) {
  std::string text = ReadLine(path);
  if (!text.empty() && text[0] == '-') text.erase(0, 1);  // some drivers: out of the battery
  const auto number = ParseUnsigned(text);
  if (!number) return std::nullopt;
  return static_cast<double>(*number) * 1e-6;
}

std::optional<double> BatteryWatts(const std::string& folder) {
  if (const auto watts = Millionths(folder + "/power_now")) return watts;
  const auto amperes = Millionths(folder + "/current_now");
  const auto volts = Millionths(folder + "/voltage_now");
  if (!amperes || !volts) return std::nullopt;
  return *amperes * *volts;
}

// Of all batteries. 0 is no figure: a machine that runs draws something.
std::optional<double> DischargeWatts(const std::string& root) {
  const std::string supplies = root + "/sys/class/power_supply";
  double sum = 0;
  for (const std::string& name : NamesIn(supplies)) {
    const std::string folder = absl::StrCat(supplies, "/", name);
    if (!IsMachinesBattery(folder)) continue;
    if (ReadLine(folder + "/status") == "Charging") return std::nullopt;
    const auto watts = BatteryWatts(folder);
    if (!watts) return std::nullopt;
    sum += *watts;
  }
  if (!(sum > 0) || sum > kWattsMax) return std::nullopt;
  return sum;
}

struct RaplDomain {
  std::string name;  // of its folder
  v1::PowerPart part = v1::POWER_PART_UNSPECIFIED;
  std::string folder;
};

std::vector<RaplDomain> RaplDomains(const std::string& root) {
  const std::string powercap = root + "/sys/class/powercap";
  std::vector<RaplDomain> domains;
  for (const std::string& name : NamesIn(powercap)) {
    if (!name.starts_with("intel-rapl:")) continue;
    const std::string folder = absl::StrCat(powercap, "/", name);
    const std::string what = ReadLine(folder + "/name");
    const bool is_top = name.find(':') == name.rfind(':');
    if (what.starts_with("package") && is_top) {
      domains.push_back({name, v1::POWER_PART_PACKAGE, folder});
    } else if (what == "dram") {
      domains.push_back({name, v1::POWER_PART_MEMORY, folder});
    }
  }
  return domains;
}

// All domains of a part, or none: one socket of two is not the machine's package power.
void ReadRapl(const std::vector<RaplDomain>& domains, v1::PowerPart part, PowerReading& reading) {
  std::vector<PowerReading::Counter> counters;
  for (const RaplDomain& domain : domains) {
    if (domain.part != part) continue;
    const auto microjoules = ReadNumber(domain.folder + "/energy_uj");
    if (!microjoules) return;
    counters.push_back({domain.name, part, *microjoules,
                        ReadNumber(domain.folder + "/max_energy_range_uj").value_or(0)});
  }
  reading.counters.insert(reading.counters.end(), counters.begin(), counters.end());
}

bool IsPartOfProcessor(const std::string& device) {
  const std::string metrics = ReadFile(device + "/gpu_metrics");
  return metrics.size() >= 4 && static_cast<uint8_t>(metrics[2]) >= kIntegratedGpuMetrics;
}

// False when there are cards that don't tell.
bool AddAmdCards(const std::string& root, bool* has_cards, double* watts) {
  const std::string hwmon = root + "/sys/class/hwmon";
  for (const std::string& name : NamesIn(hwmon)) {
    const std::string folder = absl::StrCat(hwmon, "/", name);
    if (ReadLine(folder + "/name") != "amdgpu" || IsPartOfProcessor(folder + "/device")) continue;
    *has_cards = true;
    auto card = Millionths(folder + "/power1_average");
    if (!card) card = Millionths(folder + "/power1_input");
    if (!card || *card > kWattsMax) return false;
    *watts += *card;
  }
  return true;
}

bool AddNvidiaCards(const std::string& root, CommandRunner* runner, bool* has_cards,
                    double* watts) {
  if (NamesIn(root + "/proc/driver/nvidia/gpus").empty()) return true;
  *has_cards = true;
  if (runner == nullptr) return false;
  const CommandResult answer = runner->Run(NvidiaPowerCommand());
  const auto cards = answer.Succeeded() ? ParseNvidiaWatts(answer.out) : std::nullopt;
  *watts += cards.value_or(0);
  return cards.has_value();
}

}  // namespace

Command NvidiaPowerCommand() {
  return {.argv = {"nvidia-smi", "--query-gpu=power.draw", "--format=csv,noheader,nounits"}};
}

PowerReading ReadLinuxPower(const std::string& root, CommandRunner* runner, bool on_battery) {
  PowerReading reading;
  if (on_battery) {
    if (const auto watts = DischargeWatts(root)) {
      reading.powers.push_back({{v1::POWER_PART_MACHINE}, *watts});
      return reading;
    }
  }
  const std::vector<RaplDomain> domains = RaplDomains(root);
  ReadRapl(domains, v1::POWER_PART_PACKAGE, reading);
  ReadRapl(domains, v1::POWER_PART_MEMORY, reading);
  bool has_cards = false;
  double watts = 0;
  if (AddAmdCards(root, &has_cards, &watts) && AddNvidiaCards(root, runner, &has_cards, &watts) &&
      has_cards) {
    reading.powers.push_back({{v1::POWER_PART_GPU}, watts});
  }
  return reading;
}

std::string WhyNoLinuxPower(const std::string& root) {
  for (const RaplDomain& domain : RaplDomains(root)) {
    if (domain.part != v1::POWER_PART_PACKAGE) continue;
    if (ReadNumber(domain.folder + "/energy_uj")) continue;
    return absl::StrCat("/sys/class/powercap/", domain.name,
                        "/energy_uj can't be read by this user; docs/operation.md, \"Power and "
                        "energy\", says how it is allowed");
  }
  return "";
}

}  // namespace macrame::discovery
