#pragma once

// A Linux machine, read from files below a root folder. Compiles everywhere; tests give it captured
// trees.

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "discovery/probe/energy_counter.h"
#include "discovery/probe/node_probe.h"

namespace macrame::discovery {

// Memory limits of the control groups that this process lives in, the tightest of all levels;
// version 2 and version 1. Files that are not there set no limit.
class CgroupMemory {
 public:
  explicit CgroupMemory(const std::string& root);

  // nullopt: no limit below `memory_total`.
  std::optional<uint64_t> Limit(uint64_t memory_total) const;
  // What the tightest group could still take without killing anybody; nullopt: no limit.
  std::optional<uint64_t> Available(uint64_t memory_total) const;

 private:
  struct Level {
    std::string folder;
    bool is_v2 = true;
  };
  static std::optional<uint64_t> LimitOf(const Level& level, uint64_t memory_total);
  void AddLevels(const std::string& mount, std::string path, bool is_v2);

  std::vector<Level> levels_;
};

// /proc/meminfo: name → bytes.
std::map<std::string, uint64_t> ParseMeminfo(std::string_view text);
// /proc/pressure/memory and the share that is still available → pressure. `psi` may be empty.
v1::MemoryPressure LinuxPressure(std::string_view psi, uint64_t available, uint64_t total);
// First line of /proc/stat: (busy, all) ticks since boot.
struct CpuTicks {
  uint64_t busy = 0;
  uint64_t all = 0;
};
std::optional<CpuTicks> ParseCpuTicks(std::string_view text);
// Of the processor's sensors below /sys/class/thermal; nullopt: it has none, or none can be read.
std::optional<double> HottestCelsius(const std::string& root);

class LinuxProbe : public NodeProbe {
 public:
  // Without a runner, what only nvidia-smi tells is not known.
  explicit LinuxProbe(std::string root, CommandRunner* runner = nullptr);

  v1::Inventory CollectInventory(const InventoryInputs& inputs) override;
  v1::NodeLoad CollectSlowLoad(MonotonicTime now) override;
  std::string CollectMachineId() override;
  void SampleFastLoad(v1::NodeLoad& load) override;
  std::map<std::string, v1::InterfaceKind> CollectInterfaceKinds() override { return {}; }

 private:
  v1::ThermalState Thermal();

  const std::string root_;
  CommandRunner* const runner_;
  const CgroupMemory cgroup_;
  std::optional<CpuTicks> last_ticks_;           // owner thread
  double last_busy_ = 0;                         // owner thread
  std::optional<uint64_t> last_throttle_count_;  // worker thread
  EnergyCounter energy_;                         // worker thread
};

}  // namespace macrame::discovery
