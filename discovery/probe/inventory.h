#pragma once

// What a node is made of and what it is doing now: macrame.v1.Inventory and NodeLoad.
//
// Linux is read from /proc, /sys and /etc/os-release below a root folder; a Mac from what its own
// commands print, through a CommandRunner. Both collectors are plain C++ that compiles and is
// tested everywhere; only InventoryProber's two platform files know which machine they are on.
//
// A fact that can't be found out is left at zero or UNSPECIFIED and gets a Reason in
// Inventory.unknown (COMMAND_MISSING, COMMAND_TIMED_OUT, COMMAND_FAILED, OUTPUT_UNREADABLE,
// FACT_UNKNOWN), never a guess.

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "discovery/base/interfaces.h"
#include "discovery/probe/command_runner.h"
#include "macrame/v1/node.pb.h"
#include "proto/ids.h"
#include "transport/dispatcher.h"

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

// Files below `root` ("" on a live machine). Milliseconds; may block on a dead network disk.
v1::Inventory CollectLinuxInventory(const std::string& root, const InventoryInputs& inputs);
// Seconds at worst: a dozen commands.
v1::Inventory CollectMacInventory(CommandRunner& runner, const InventoryInputs& inputs);

// True when nothing differs that anybody would act on: revision, and free disk space that moved by
// less than 1 % of the disk, are left out.
bool SameFacts(const v1::Inventory& a, const v1::Inventory& b);

// Keeps the inventory and its load up to date. Owner thread: the dispatcher's. Whatever may be slow
// runs on one worker thread, each fact with its own interval.
class InventoryProber {
 public:
  struct Options {
    // Revisions rise from here; Unix milliseconds at start keeps them rising over restarts.
    uint64_t first_revision = 1;
    Duration inventory_interval = std::chrono::seconds(60);
    Duration load_interval = std::chrono::seconds(10);  // of what only commands can tell
    std::string root;                                   // Linux: below which /proc and /sys are
    CommandRunner* runner = nullptr;  // a Mac's commands; null: real ones. Outlives the prober.
  };

  InventoryProber(transport::Dispatcher& dispatcher, InventoryInputs inputs, Options options);
  ~InventoryProber();  // waits for the worker, at most some 50 ms and a blocked disk's time

  // Collects for the first time on the calling thread, which may block (start-up), then
  // periodically. `on_change` runs on the owner thread after each change of revision.
  void Start(std::function<void(const v1::Inventory&)> on_change);
  void Stop();

  const v1::Inventory& inventory() const;
  // For BeaconServiceOptions.kind_of; owner thread; works on after the prober is gone.
  InterfaceKindLookup kind_lookup() const;
  void SetModels(std::vector<v1::LocalModel> models);
  void SetEngines(std::vector<v1::Engine> engines, std::optional<uint64_t> mlx_working_set_bytes);

  // Below 1 ms on Linux and a Mac. tokens_per_second, requests_* and reserved_bytes are the
  // caller's to fill.
  v1::NodeLoad SampleLoad();

 private:
  class Impl;
  std::shared_ptr<Impl> impl_;
};

// "mac-studio-01"; never empty.
std::string LocalHostname();

}  // namespace macrame::discovery
