#pragma once

// A Mac, asked through its own commands. Compiles everywhere; tests give it captured output.
//
// None of the commands needs privileges. Cheap ones come first; system_profiler, which may take
// seconds, is asked only for what they left open.

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

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
Command DfCommand(const std::vector<std::string>& paths);

class MacProbe : public NodeProbe {
 public:
  explicit MacProbe(CommandRunner& runner) : runner_(runner) {}

  v1::Inventory CollectInventory(const InventoryInputs& inputs) override;
  // Everything; what Mach tells faster is then overwritten by SampleFastLoad.
  v1::NodeLoad CollectSlowLoad() override;
  // The IOPlatformUUID.
  std::string CollectMachineId() override;
  void SampleFastLoad(v1::NodeLoad& load) override { (void)load; }
  std::map<std::string, v1::InterfaceKind> CollectInterfaceKinds() override;

 private:
  CommandRunner& runner_;
};

}  // namespace macrame::discovery
