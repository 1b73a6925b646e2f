#pragma once

// What a node is made of and what it is doing now: macrame.v1.Inventory and NodeLoad.
//
// Linux is read from /proc, /sys and /etc/os-release below a root folder; a Mac from what its own
// commands print, through a CommandRunner. Both collectors are plain C++ that compiles and is
// tested everywhere; only MachineProber's two platform files know which machine they are on.
//
// A fact that can't be found out is left at zero or UNSPECIFIED and gets a Reason in
// Inventory.unknown (COMMAND_MISSING, COMMAND_TIMED_OUT, COMMAND_FAILED, OUTPUT_UNREADABLE,
// FACT_UNKNOWN), never a guess.

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "discovery/probe/command_runner.h"
#include "macrame/v1/node.pb.h"
#include "proto/ids.h"

namespace macrame::discovery {

// What the rest of the agent knows better.
struct InventoryInputs {
  NodeId node_id;
  std::vector<v1::Engine> engines;
  // MLX's max_recommended_working_set_size, where MLX runs on a GPU.
  std::optional<uint64_t> mlx_working_set_bytes;
  // What models may take here at most by this node's configuration; 0: no such limit. It goes into
  // Inventory.memory_models_max_bytes; the machine's own limit is told beside it.
  uint64_t models_memory_max_bytes = 0;
  // Folders whose disks are told of: the root and the model stores. Those on one disk give one
  // entry.
  std::vector<std::string> disk_paths = {"/"};
};

// What models may take of a node in all.
struct ModelsMemory {
  uint64_t bytes = 0;          // 0: not known
  bool is_configured = false;  // the node's own limit is the smaller one
};
// The smaller of what the machine allows and what the node's configuration does.
ModelsMemory ModelsMemoryOf(const v1::Inventory& inventory);
// What the node's GPU can keep resident for all processes together, in bytes; 0: it has no GPU that
// shares the machine's memory with its processes, or that is not known.
uint64_t WorkingSetOf(const v1::Inventory& inventory);

// Files below `root` ("" on a live machine). Milliseconds; may block on a dead network disk.
v1::Inventory CollectLinuxInventory(const std::string& root, const InventoryInputs& inputs);
// Seconds at worst: a dozen commands.
v1::Inventory CollectMacInventory(CommandRunner& runner, const InventoryInputs& inputs);

// True when nothing differs that anybody would act on: revision, and free disk space that moved by
// less than 1 % of the disk, are left out.
bool SameFacts(const v1::Inventory& a, const v1::Inventory& b);

// Keeps the inventory and its load up to date. Owner thread: the dispatcher's. MachineProber
// (machine_prober.h) asks the machine; a simulation has its own.
class InventoryProber {
 public:
  virtual ~InventoryProber() = default;

  // Collects for the first time on the calling thread, which may block (start-up), then
  // periodically. `on_change` runs on the owner thread after each change of revision.
  virtual void Start(std::function<void(const v1::Inventory&)> on_change) = 0;
  virtual void Stop() = 0;

  virtual const v1::Inventory& inventory() const = 0;
  virtual void SetModels(std::vector<v1::LocalModel> models) = 0;
  virtual void SetEngines(std::vector<v1::Engine> engines,
                          std::optional<uint64_t> mlx_working_set_bytes) = 0;

  // Below 1 ms on Linux and a Mac. tokens_per_second, requests_* and reserved_bytes are the
  // caller's to fill.
  virtual v1::NodeLoad SampleLoad() = 0;
};

// "mac-studio-01"; never empty.
std::string LocalHostname();

}  // namespace macrame::discovery
