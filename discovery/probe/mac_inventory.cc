#include <algorithm>
#include <set>
#include <string>

#include "absl/strings/str_cat.h"
#include "discovery/base/plain_text.h"
#include "discovery/parsers/mac_parsers.h"
#include "discovery/probe/gpu_budget.h"
#include "discovery/probe/mac_probe.h"
#include "discovery/probe/machine_id.h"
#include "discovery/probe/unknown_facts.h"
#include "proto/reason_codes.h"

namespace macrame::discovery {
namespace {

// One collection: the answers are kept so that a later step can name the command that owed a fact.
class MacCollection {
 public:
  MacCollection(CommandRunner& runner, const InventoryInputs& inputs)
      : runner_(runner), inputs_(inputs), unknown_(inventory_) {
    inventory_.set_node_id(inputs.node_id.value());
  }

  v1::Inventory Collect() {
    sysctl_answer_ = runner_.Run(SysctlInventoryCommand());
    sysctl_ = ParseSysctl(sysctl_answer_.out);
    ReadOs();
    ReadMachine();
    ReadGpu();
    ReadMemory();
    ReadBootTime();
    ReadDisks();
    for (const v1::Engine& engine : inputs_.engines) *inventory_.add_engines() = engine;
    return std::move(inventory_);
  }

 private:
  std::string Sysctl(const char* name) const {
    const auto found = sysctl_.find(name);
    return found == sysctl_.end() ? "" : ToPlainText(found->second, kFactBytesMax);
  }
  std::optional<uint32_t> SysctlCores(const char* name) const {
    const auto cores = SysctlNumber(sysctl_, name);
    if (!cores || *cores == 0 || *cores > kCoresMax) return std::nullopt;
    return static_cast<uint32_t>(*cores);
  }
  void UnknownFromSysctl(const std::string& fact) {
    unknown_.AddCommand(fact, SysctlInventoryCommand(), sysctl_answer_);
  }

  void ReadOs() {
    const CommandResult answer = runner_.Run(SwVersCommand());
    const SwVers versions = ParseSwVers(answer.out);
    inventory_.set_os_name(ToPlainText(versions.name, kFactBytesMax));
    inventory_.set_os_version(ToPlainText(versions.version, kFactBytesMax));
    inventory_.set_os_build(ToPlainText(versions.build, kFactBytesMax));
    if (versions.name.empty()) unknown_.AddCommand("os_name", SwVersCommand(), answer);
    if (versions.version.empty()) unknown_.AddCommand("os_version", SwVersCommand(), answer);
    if (versions.build.empty()) unknown_.AddCommand("os_build", SwVersCommand(), answer);
  }

  void ReadMachine() {
    std::string model = Sysctl("hw.model");
    std::string chip = Sysctl("machdep.cpu.brand_string");
    auto cores = SysctlCores("hw.physicalcpu");
    auto performance = SysctlCores("hw.perflevel0.physicalcpu");
    memory_bytes_ = SysctlNumber(sysctl_, "hw.memsize");
    if (memory_bytes_ && (*memory_bytes_ == 0 || *memory_bytes_ > kMemoryBytesMax)) {
      memory_bytes_.reset();
    }
    if (model.empty() || chip.empty() || !cores || !memory_bytes_) {
      const HardwareOverview overview =
          ParseHardwareOverview(runner_.Run(HardwareOverviewCommand()).out);
      if (model.empty()) model = ToPlainText(overview.machine_model, kFactBytesMax);
      if (chip.empty()) chip = ToPlainText(overview.chip, kFactBytesMax);
      if (!cores) cores = overview.cpu_cores;
      if (!performance) performance = overview.performance_cores;
      if (!memory_bytes_) memory_bytes_ = overview.memory_bytes;
    }
    inventory_.set_machine_model(model);
    inventory_.set_chip(chip);
    inventory_.set_cpu_cores(cores.value_or(0));
    if (performance && cores && *performance > *cores) performance.reset();
    inventory_.set_performance_cores(performance.value_or(0));
    if (model.empty()) UnknownFromSysctl("machine_model");
    if (chip.empty()) UnknownFromSysctl("chip");
    if (!cores) UnknownFromSysctl("cpu_cores");
    if (!performance) UnknownFromSysctl("performance_cores");
  }

  void ReadGpu() {
    const CommandResult answer = runner_.Run(IoregGpuCommand());
    const IoregGpu gpu = ParseIoregGpu(answer.out);
    std::string name = gpu.model;
    auto cores = gpu.cores;
    if (!cores) {
      const DisplayGpu display = ParseDisplays(runner_.Run(DisplaysCommand()).out);
      cores = display.cores;
      if (name.empty()) name = display.name;
    }
    inventory_.set_gpu_name(ToPlainText(name, kFactBytesMax));
    inventory_.set_gpu_cores(cores.value_or(0));
    if (name.empty()) unknown_.AddCommand("gpu_name", IoregGpuCommand(), answer);
    if (!cores) unknown_.AddCommand("gpu_cores", IoregGpuCommand(), answer);
  }

  void ReadMemory() {
    inventory_.set_memory_total_bytes(memory_bytes_.value_or(0));
    if (!memory_bytes_) UnknownFromSysctl("memory_total_bytes");
    const GpuBudget budget = MacGpuBudget(SysctlNumber(sysctl_, "iogpu.wired_limit_mb"),
                                          inputs_.mlx_working_set_bytes, memory_bytes_);
    inventory_.set_memory_gpu_usable_bytes(budget.bytes);
    if (budget.bytes == 0) {
      UnknownFromSysctl("memory_gpu_usable_bytes");
    } else if (budget.is_estimate) {
      unknown_.Add(reasons::kFactUnknown, "memory_gpu_usable_bytes",
                   absl::StrCat("an estimate, ", budget.source,
                                ": no limit is set and no engine has told its own"));
    }
    const auto swap = ParseSwapUsage(Sysctl("vm.swapusage"));
    inventory_.set_swap_total_bytes(swap ? swap->total_bytes : 0);
    if (!swap) UnknownFromSysctl("swap_total_bytes");
  }

  void ReadBootTime() {
    const auto boot = ParseBootTime(Sysctl("kern.boottime"));
    inventory_.set_boot_time_unix_seconds(boot.value_or(0));
    if (!boot) UnknownFromSysctl("boot_time_unix_seconds");
    inventory_.set_boot_digest(BootDigest(Sysctl("kern.bootsessionuuid")));
  }

  void ReadDisks() {
    if (inputs_.disk_paths.empty()) return;
    const Command command = DfCommand(inputs_.disk_paths);
    const CommandResult answer = runner_.Run(command);
    std::set<std::string> seen;
    for (const DfRow& row : ParseDf(answer.out)) {
      if (!seen.insert(row.device).second) continue;
      v1::Disk& disk = *inventory_.add_disks();
      disk.set_path(ToPlainText(row.mounted_on, kFactBytesMax));
      disk.set_total_bytes(row.total_bytes);
      disk.set_free_bytes(row.free_bytes);
    }
    // A path that is not there makes df fail, but the others are told.
    if (seen.empty() || !answer.Succeeded()) unknown_.AddCommand("disks", command, answer);
  }

  CommandRunner& runner_;
  const InventoryInputs& inputs_;
  v1::Inventory inventory_;
  UnknownFacts unknown_;
  CommandResult sysctl_answer_;
  std::map<std::string, std::string> sysctl_;
  std::optional<uint64_t> memory_bytes_;
};

}  // namespace

v1::Inventory CollectMacInventory(CommandRunner& runner, const InventoryInputs& inputs) {
  return MacCollection(runner, inputs).Collect();
}

}  // namespace macrame::discovery
