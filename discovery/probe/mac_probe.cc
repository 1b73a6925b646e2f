#include "discovery/probe/mac_probe.h"

#include <algorithm>
#include <cstdlib>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "discovery/parsers/link_parsers.h"
#include "discovery/parsers/mac_parsers.h"
#include "discovery/probe/link_facts.h"
#include "discovery/probe/unknown_facts.h"

namespace macrame::discovery {

Command SysctlInventoryCommand() {
  return {.argv = {"sysctl", "hw.model", "hw.memsize", "hw.physicalcpu",
                   "hw.perflevel0.physicalcpu", "machdep.cpu.brand_string", "kern.boottime",
                   "kern.bootsessionuuid", "vm.swapusage", "iogpu.wired_limit_mb"}};
}

Command SysctlLoadCommand() {
  return {.argv = {"sysctl", "hw.memsize", "hw.physicalcpu", "kern.memorystatus_vm_pressure_level",
                   "vm.swapusage", "vm.loadavg"}};
}

Command SwVersCommand() { return {.argv = {"sw_vers"}}; }
Command VmStatCommand() { return {.argv = {"vm_stat"}}; }
Command MemoryPressureCommand() { return {.argv = {"memory_pressure", "-Q"}}; }

Command IoregGpuCommand() {
  return {.argv = {"ioreg", "-r", "-d", "1", "-w", "0", "-c", "IOAccelerator"}};
}

Command PmsetThermCommand() { return {.argv = {"pmset", "-g", "therm"}}; }
Command PmsetBattCommand() { return {.argv = {"pmset", "-g", "batt"}}; }

Command PowermetricsCommand() {
  return {.argv = {"powermetrics", "--samplers", "cpu_power,gpu_power", "-n", "1", "-i",
                   absl::StrCat(kPowermetricsWindow.count())},
          .limit = kPowermetricsWindow + kCommandLimit};
}

Command MacmonCommand(const std::string& folder) {
  return {.argv = {folder.empty() ? "macmon" : absl::StrCat(folder, "/macmon"), "pipe", "-s", "1",
                   "-i", absl::StrCat(kPowermetricsWindow.count())},
          .limit = kPowermetricsWindow + kCommandLimit};
}

Command HardwareOverviewCommand() {
  return {.argv = {"system_profiler", "SPHardwareDataType", "-json"}, .limit = kSlowCommandLimit};
}

Command DisplaysCommand() {
  return {.argv = {"system_profiler", "SPDisplaysDataType", "-json"}, .limit = kSlowCommandLimit};
}

Command HardwarePortsCommand() { return {.argv = {"networksetup", "-listallhardwareports"}}; }

Command DfCommand(const std::vector<std::string>& paths) {
  Command command{.argv = {"df", "-k", "-P"}};
  command.argv.insert(command.argv.end(), paths.begin(), paths.end());
  return command;
}

std::vector<std::string> MacProbe::MacmonFolders() {
  std::vector<std::string> folders;
  const char* path = std::getenv("PATH");
  for (const absl::string_view folder : absl::StrSplit(path == nullptr ? "" : path, ':')) {
    if (!folder.empty() && folder.front() == '/') folders.emplace_back(folder);
  }
  folders.insert(folders.end(), {"/opt/homebrew/bin", "/usr/local/bin"});
  return folders;
}

v1::Inventory MacProbe::CollectInventory(const InventoryInputs& inputs) {
  v1::Inventory inventory = CollectMacInventory(runner_, inputs);
  AddPowerUnknown(inventory);
  return inventory;
}

void MacProbe::AddPowerUnknown(v1::Inventory& inventory) const {
  UnknownFacts unknown(inventory);
  if (!is_refused_) {
    if (power_failures_ < kPowerFailuresMax) return;
    return unknown.AddCommand("power_watts", PowermetricsCommand(), last_answer_);
  }
  if (macmon_ && power_failures_ < kPowerFailuresMax) return;
  const std::string powermetrics = DescribeOutcome(PowermetricsCommand(), last_answer_);
  const std::string macmon = !macmon_                   ? "no such command"
                             : last_macmon_.Succeeded() ? "its output does not tell"
                                                        : DescribeOutcome(*macmon_, last_macmon_);
  unknown.Add(macmon_ ? reasons::kCommandFailed : reasons::kCommandMissing, "power_watts",
              absl::StrCat("powermetrics: ", powermetrics, "; macmon: ", macmon,
                           ". Run the agent as root, or install macmon, which needs no root: 'brew "
                           "install macmon'"));
}

std::optional<PartsPower> MacProbe::AskForPower() {
  if (!is_refused_) {
    last_answer_ = runner_.Run(PowermetricsCommand());
    const auto power =
        last_answer_.Succeeded() ? ParsePowermetrics(last_answer_.out) : std::nullopt;
    if (power) return power;
    is_refused_ =
        last_answer_.outcome == CommandOutcome::kNotFound || WantsSuperuser(last_answer_.err);
    if (!is_refused_) return std::nullopt;
  }
  macmon_.reset();
  const auto asks = [this](const std::string& folder) {
    const Command command = MacmonCommand(folder);
    CommandResult said = runner_.Run(command);
    if (said.outcome == CommandOutcome::kNotFound) return false;
    macmon_ = command;
    last_macmon_ = std::move(said);
    return true;
  };
  if (!asks("") && std::none_of(macmon_folders_.begin(), macmon_folders_.end(), asks)) {
    return std::nullopt;
  }
  return last_macmon_.Succeeded() ? ParseMacmon(last_macmon_.out) : std::nullopt;
}

PowerReading MacProbe::Power(double gpu_busy_ratio) {
  const bool is_busy = gpu_busy_ratio >= kBusyGpuRatio && power_failures_ < kPowerFailuresMax;
  if (power_turns_ > 0 && power_turns_ < kIdlePowerTurns && !is_busy) {
    ++power_turns_;
    return last_power_;
  }
  power_turns_ = 1;
  last_power_ = {};
  const auto power = AskForPower();
  if (power) {
    last_power_.powers.push_back(*power);
    power_failures_ = 0;
    return last_power_;
  }
  ++power_failures_;
  return {};
}

v1::NodeLoad MacProbe::CollectSlowLoad(MonotonicTime now) {
  v1::NodeLoad load;
  // sysctl fails as a whole when one name is unknown, yet prints the others.
  const auto values = ParseSysctl(runner_.Run(SysctlLoadCommand()).out);
  const auto value = [&values](const char* name) {
    const auto found = values.find(name);
    return found == values.end() ? std::string() : found->second;
  };
  load.set_memory_pressure(
      PressureOfLevel(SysctlNumber(values, "kern.memorystatus_vm_pressure_level")));
  if (const auto swap = ParseSwapUsage(value("vm.swapusage"))) {
    load.set_swap_used_bytes(swap->used_bytes);
  }
  const auto cores = SysctlNumber(values, "hw.physicalcpu");
  const auto waiting = ParseLoadAverage(value("vm.loadavg"));
  if (cores.value_or(0) > 0 && waiting) {  // an estimate: runnable threads of the last minute
    load.set_cpu_busy_ratio(std::min(1.0, *waiting / static_cast<double>(*cores)));
  }
  auto available =
      AvailableBytes(ParseVmStat(runner_.Run(VmStatCommand()).out), load.memory_pressure());
  const auto total = SysctlNumber(values, "hw.memsize");
  if (!available && total && *total <= kMemoryBytesMax) {
    const auto ratio = ParseMemoryFreeRatio(runner_.Run(MemoryPressureCommand()).out);
    if (ratio) available = static_cast<uint64_t>(static_cast<double>(*total) * *ratio);
  }
  load.set_memory_available_bytes(available.value_or(0));
  load.set_gpu_busy_ratio(
      ParseIoregGpu(runner_.Run(IoregGpuCommand()).out).busy_ratio.value_or(-1));
  load.set_thermal_state(ParsePmsetTherm(runner_.Run(PmsetThermCommand()).out));
  load.set_on_battery(ParsePmsetOnBattery(runner_.Run(PmsetBattCommand()).out).value_or(false));
  energy_.Take(Power(load.gpu_busy_ratio()), now, load);
  return load;
}

std::string MacProbe::CollectMachineId() {
  return PlatformUuid(runner_.Run(PlatformUuidCommand()).out);
}

std::map<std::string, v1::InterfaceKind> MacProbe::CollectInterfaceKinds() {
  return ParseHardwarePorts(runner_.Run(HardwarePortsCommand()).out);
}

}  // namespace macrame::discovery
