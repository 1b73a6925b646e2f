#pragma once

// One machine's facts, behind an interface: LinuxProbe, MacProbe, and whichever fits this machine.

#include <memory>
#include <string>

#include "discovery/base/interfaces.h"
#include "discovery/probe/command_runner.h"
#include "discovery/probe/inventory.h"
#include "macrame/v1/node.pb.h"
#include "proto/monotonic_time.h"

namespace macrame::discovery {

class NodeProbe {
 public:
  virtual ~NodeProbe() = default;
  // May block; worker thread.
  virtual v1::Inventory CollectInventory(const InventoryInputs& inputs) = 0;
  // What may be slow to ask: GPU, thermal state, battery, and on a Mac without better means
  // everything else. Worker thread, never two at once. power_watts and gpu_busy_ratio are -1 when
  // not known. `now` rises from call to call: energy is counted between them.
  virtual v1::NodeLoad CollectSlowLoad(MonotonicTime now) = 0;
  // Overwrites in `load` what can be had within a millisecond. Owner thread, at the same time as
  // the others.
  virtual void SampleFastLoad(v1::NodeLoad& load) = 0;
  // What tells this machine from all others (discovery/probe/machine_id.h); empty: nothing does.
  // May block; any thread but an owner thread.
  virtual std::string CollectMachineId() = 0;
  // Device → kind, where only a command can tell. Worker thread.
  virtual std::map<std::string, v1::InterfaceKind> CollectInterfaceKinds() = 0;
};

// Of this machine. `root` is for Linux; `runner` outlives the probe.
std::unique_ptr<NodeProbe> MakeNodeProbe(const std::string& root, CommandRunner& runner);
// The kind of an interface without asking any command: sysfs or the name alone.
v1::InterfaceKind QuickInterfaceKind(const std::string& root, const std::string& name);

}  // namespace macrame::discovery
