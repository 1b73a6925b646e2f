#pragma once

// A Mac, asked through its own commands. Compiles everywhere; tests give it captured output.
//
// None of the commands needs privileges but powermetrics. Where that is refused, the power comes
// from macmon, where a person installed it. Cheap ones come first; system_profiler, which may take
// seconds, is asked only for what they left open.

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "discovery/probe/energy_counter.h"
#include "discovery/probe/node_probe.h"

namespace macrame::discovery {

// The commands, spelled once: captures are listed under CommandLine() of these.
Command SysctlInventoryCommand();
Command SysctlLoadCommand();
Command SwVersCommand();
Command VmStatCommand();
Command MemoryPressureCommand();
Command IoregGpuCommand();
Command PmsetThermCommand();
Command PmsetBattCommand();
Command HardwareOverviewCommand();
Command DisplaysCommand();
Command HardwarePortsCommand();
// One sample over kPowermetricsWindow. Root alone.
Command PowermetricsCommand();
// One sample over kPowermetricsWindow, by the macmon of this folder; "": of the system's own.
Command MacmonCommand(const std::string& folder);
Command DfCommand(const std::vector<std::string>& paths);

inline constexpr std::chrono::milliseconds kPowermetricsWindow{1000};
// A Mac whose GPU is busy is asked for its power with each slow load, another one once in so many.
inline constexpr int kIdlePowerTurns = 6;
inline constexpr double kBusyGpuRatio = 0.05;
// So often power can't be had in a row before it is asked for as seldom as on an idle Mac.
inline constexpr int kPowerFailuresMax = 3;

class MacProbe : public NodeProbe {
 public:
  // macmon is looked for in `folders` too, in their order.
  explicit MacProbe(CommandRunner& runner, std::vector<std::string> folders = MacmonFolders())
      : runner_(runner), macmon_folders_(std::move(folders)) {}

  // Those of PATH, and where Homebrew puts programs: a service's PATH is short.
  static std::vector<std::string> MacmonFolders();

  v1::Inventory CollectInventory(const InventoryInputs& inputs) override;
  // Everything; what Mach tells faster is then overwritten by SampleFastLoad.
  v1::NodeLoad CollectSlowLoad(MonotonicTime now) override;
  // The IOPlatformUUID.
  std::string CollectMachineId() override;
  void SampleFastLoad(v1::NodeLoad& load) override { (void)load; }
  std::map<std::string, v1::InterfaceKind> CollectInterfaceKinds() override;

 private:
  // What powermetrics or macmon says, or said last while neither need be asked again.
  PowerReading Power(double gpu_busy_ratio);
  std::optional<PartsPower> AskForPower();
  void AddPowerUnknown(v1::Inventory& inventory) const;

  CommandRunner& runner_;
  const std::vector<std::string> macmon_folders_;
  // Worker thread.
  EnergyCounter energy_;
  PowerReading last_power_;
  CommandResult last_answer_;      // of powermetrics
  std::optional<Command> macmon_;  // as it was asked last; nullopt: there is none
  CommandResult last_macmon_;      // what it answered
  int power_turns_ = 0;            // since power was asked for; 0: not yet
  int power_failures_ = 0;
  bool is_refused_ = false;  // powermetrics is not there, or wants root: that stays so
};

}  // namespace macrame::discovery
