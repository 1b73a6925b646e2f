#pragma once

// A Mac, asked through its own commands. Compiles everywhere; tests give it captured output.
//
// None of the commands needs privileges but powermetrics, without which the power is not known.
// Cheap ones come first; system_profiler, which may take seconds, is asked only for what they left
// open.

#include <cstdint>
#include <map>
#include <optional>
#include <string>
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
Command DfCommand(const std::vector<std::string>& paths);

inline constexpr std::chrono::milliseconds kPowermetricsWindow{1000};
// A Mac whose GPU is busy is asked for its power with each slow load, another one once in so many.
inline constexpr int kIdlePowerTurns = 6;
inline constexpr double kBusyGpuRatio = 0.05;
// So often powermetrics fails in a row before it is asked as seldom as on an idle Mac.
inline constexpr int kPowerFailuresMax = 3;

class MacProbe : public NodeProbe {
 public:
  explicit MacProbe(CommandRunner& runner) : runner_(runner) {}

  v1::Inventory CollectInventory(const InventoryInputs& inputs) override;
  // Everything; what Mach tells faster is then overwritten by SampleFastLoad.
  v1::NodeLoad CollectSlowLoad(MonotonicTime now) override;
  // The IOPlatformUUID.
  std::string CollectMachineId() override;
  void SampleFastLoad(v1::NodeLoad& load) override { (void)load; }
  std::map<std::string, v1::InterfaceKind> CollectInterfaceKinds() override;

 private:
  // What powermetrics says, or said last while it need not be asked again.
  PowerReading Power(double gpu_busy_ratio);

  CommandRunner& runner_;
  // Worker thread.
  EnergyCounter energy_;
  PowerReading last_power_;
  CommandResult last_answer_;  // of powermetrics
  int power_turns_ = 0;        // since it was asked; 0: not yet
  int power_failures_ = 0;
  bool is_refused_ = false;  // it is not there, or wants root: that stays so
};

}  // namespace macrame::discovery
